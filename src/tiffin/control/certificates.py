"""Whether the public port's certificates can be used, and for how long."""

from datetime import UTC, datetime
from typing import Final

from tiffin.config.tls import CERTIFICATE, credentials_of, ends_s
from tiffin.errors import ConfigInvalid
from tiffin.types.tls import Tls

WARN_S: Final = 14 * 86_400
"""An authority that renews by itself has done it by then."""


def check_certificates(tls: Tls, now_s: float) -> None:
    """Raise `ConfigInvalid` where they can't be read, have ended or soon will.

    Nothing is looked at where a program would have to be asked for the key.
    """
    if not tls.on or tls.key_command:
        return
    ends = ends_s(credentials_of(tls))
    if ends > now_s + WARN_S:
        return
    when = datetime.fromtimestamp(ends, UTC).isoformat(sep=" ", timespec="minutes")
    said = f"it ends at {when}" if ends > now_s else "it has ended, so clients refuse it"
    raise ConfigInvalid(f"{tls.certificate}: {said}; put a new one there", where=CERTIFICATE)
