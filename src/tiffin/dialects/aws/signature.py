"""AWS Signature Version 4: what a request's sender proves with a key that it doesn't send; pure."""

import hashlib
import hmac
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final, NamedTuple
from urllib.parse import quote, unquote_plus

ALGORITHM: Final = "AWS4-HMAC-SHA256"
_PLAIN: Final = "-_.~"

Headers = Iterable[tuple[str, str]]


@dataclass(frozen=True, slots=True)
class Credentials:
    """A pair of keys, and the session's `token` where they are for a while only."""

    access_key: str
    secret: str = field(repr=False)
    token: str = field(default="", repr=False)


class Scope(NamedTuple):
    """For whom a signature counts: a `service` in a `region`, on the day of `moment`, which is UTC
    as `20150830T123600Z`."""

    region: str
    service: str
    moment: str

    @property
    def name(self) -> str:
        """As it is signed."""
        return f"{self.moment[:8]}/{self.region}/{self.service}/aws4_request"


class Signed(NamedTuple):
    """What is signed of a request: `path` as it goes on the wire with its query, the digest of the
    body in hexadecimal, and headers, the moment's and the session's among them."""

    method: str
    path: str
    headers: Headers
    body_sha256: str


def authorization(request: Signed, credentials: Credentials, scope: Scope) -> str:
    """The value of the header that carries the signature."""
    canonical, names = canonical_request(request)
    digest = hashlib.sha256(canonical.encode()).hexdigest()
    text = f"{ALGORITHM}\n{scope.moment}\n{scope.name}\n{digest}"
    signature = _hmac(_signing_key(credentials.secret, scope), text).hex()
    return (
        f"{ALGORITHM} Credential={credentials.access_key}/{scope.name},"
        f" SignedHeaders={names}, Signature={signature}"
    )


def canonical_request(request: Signed) -> tuple[str, str]:
    """The one spelling that every way to write a request has, and its headers' names."""
    path, _, query = request.path.partition("?")
    headers: dict[str, list[str]] = {}
    for name, value in request.headers:
        headers.setdefault(name.lower(), []).append(" ".join(value.split()))
    names = ";".join(sorted(headers))
    lines = "".join(f"{name}:{','.join(headers[name])}\n" for name in sorted(headers))
    parts = (
        *(request.method, _path(path), _query(query)),
        *(lines, names, request.body_sha256),
    )
    return "\n".join(parts), names


def _path(path: str) -> str:
    """Every byte escaped that may be, once more than on the wire; without empty and dot parts."""
    parts: list[str] = []
    for part in path.split("/"):
        if part == "..":
            parts[-1:] = []
        elif part not in ("", "."):
            parts.append(quote(part, safe=_PLAIN))
    end = "/" if parts and path.endswith("/") else ""
    return "/" + "/".join(parts) + end


def _query(query: str) -> str:
    pairs = (one.partition("=") for one in query.split("&") if one)
    return "&".join(sorted(f"{_anew(name)}={_anew(value)}" for name, _, value in pairs))


def _anew(text: str) -> str:
    return quote(unquote_plus(text), safe=_PLAIN)


def _signing_key(secret: str, scope: Scope) -> bytes:
    key = f"AWS4{secret}".encode()
    for part in scope.name.split("/"):
        key = _hmac(key, part)
    return key


def _hmac(key: bytes, text: str) -> bytes:
    return hmac.digest(key, text.encode(), "sha256")
