"""How the revisions of a model are called: `NAME@LABEL`, or `NAME@` and a digest's first digits."""

import re
from typing import Final

AT: Final = "@"
DIGEST: Final = re.compile(r"[0-9a-f]{8,64}")


def name_of(model: str, version: str) -> str:
    """What a version of a model is called."""
    return f"{model}{AT}{version}"


def base_of(name: str) -> str:
    """The model that a name is, or is a revision of."""
    return name.partition(AT)[0]
