"""What may stand for a host in an address: what somebody could find it by."""

import re
from urllib.parse import SplitResult

_NAME = re.compile(r"(?=.{1,253}$)[a-z0-9_-]{1,63}(\.[a-z0-9_-]{1,63})*\.?")
_IPV6 = re.compile(r"[0-9a-f:.]*:[0-9a-f:.]*")


def has_host(parts: SplitResult) -> bool:
    """Whether an address that was split says a host, and no port that can't be.

    Raises `ValueError` where its port isn't one.
    """
    host = parts.hostname or ""
    return bool(_NAME.fullmatch(host) or _IPV6.fullmatch(host)) and parts.port != 0
