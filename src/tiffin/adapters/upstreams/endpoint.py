"""Where a hop leads, and how long each of its phases may take."""

import ssl
from dataclasses import dataclass


@dataclass(slots=True, frozen=True)
class Endpoint:
    """Where to connect: a unix socket's `path`, or `host` and `port`, with TLS where `tls` is set.

    `headers` are whole lines that every request carries; `authority` is the Host header; `prefix`
    goes before every call's path.
    """

    authority: bytes
    path: str = ""
    host: str = ""
    port: int = 0
    tls: ssl.SSLContext | None = None
    headers: bytes = b""
    prefix: bytes = b""


@dataclass(slots=True, frozen=True)
class Timeouts:
    """Seconds for each phase of an exchange; the call's own deadline holds beside them."""

    connect_s: float = 5.0
    first_byte_s: float = 300.0
    between_bytes_s: float = 300.0
