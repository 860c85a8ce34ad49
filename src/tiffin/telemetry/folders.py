"""Reasons as a client may read them: where files lie on this machine is the operator's to know."""

import re
from typing import Final

_PART: Final = r"""[^\s'"`/:,;()]+"""
_QUOTED: Final = re.compile(r"""(['"`])((?:file:(?://)?)?)/(?:[^'"`\n]*/)([^'"`/\n]*)\1""")
_BARE: Final = re.compile(rf"""(?:(?<![\w/:.~-])|(?<=file:)|(?<=file://))(?:/{_PART})+/""")


def without_folders(text: str) -> str:
    """The text with each absolute path cut to its last name; addresses of the web stay."""
    return _BARE.sub("", _QUOTED.sub(r"\1\2\3\1", text))
