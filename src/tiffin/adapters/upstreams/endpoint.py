"""Where a hop leads, and how long each of its phases may take."""

import ssl
from collections.abc import Callable
from dataclasses import dataclass
from math import inf
from typing import Final

from tiffin.errors import UpstreamUnavailable

# About how long one of our processes takes to be there again.
REPLACED_S: Final = 2.0


@dataclass(slots=True, frozen=True)
class Endpoint:
    """Where to connect: a unix socket's `path`, or `host` and `port`, with TLS where `tls` is set.

    `headers` are whole lines that every request carries; `authority` is the Host header; `prefix`
    goes before every call's path, of which `place` says where that is answered.
    """

    authority: bytes
    path: str = ""
    host: str = ""
    port: int = 0
    tls: ssl.SSLContext | None = None
    headers: bytes = b""
    prefix: bytes = b""
    place: Callable[[bytes], bytes] = bytes

    def unreachable(self, error: OSError | UnicodeError) -> UpstreamUnavailable:
        """What it means that no connection was made.

        Who listens at a unix socket is one of ours, and the supervisor replaces it when it ends.
        """
        if self.path and isinstance(error, FileNotFoundError | ConnectionError):
            message = f"the {self.authority.decode()} is gone and being replaced"
            return UpstreamUnavailable(message, retry_after=REPLACED_S)
        if isinstance(error, UnicodeError):
            return UpstreamUnavailable(f"can't connect: '{self.host[:80]}' is no host's name")
        reason = error.strerror or type(error).__name__
        return UpstreamUnavailable(f"can't connect: {reason}")

    def broke(self) -> UpstreamUnavailable:
        """What it means that a connection ended before there was an answer."""
        if self.path:
            message = (
                f"the {self.authority.decode()} ended before it answered; it is being replaced"
            )
            return UpstreamUnavailable(message, retry_after=REPLACED_S)
        return UpstreamUnavailable("the connection broke before an answer")


@dataclass(slots=True, frozen=True)
class Timeouts:
    """Seconds for each phase of an exchange and for all of it, from sending the request to the end
    of its reply; the call's own deadline holds beside them. A stream brings `least_bytes_per_s`, as
    long as somebody reads it."""

    connect_s: float = 5.0
    first_byte_s: float = 300.0
    between_bytes_s: float = 300.0
    total_s: float = inf
    least_bytes_per_s: int = 0
