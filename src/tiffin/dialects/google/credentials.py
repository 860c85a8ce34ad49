"""Google's credentials as files hold them, and where their tokens are had from."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final
from urllib.parse import urlsplit

import msgspec

from tiffin.config.egress import ANY, may_reach
from tiffin.dialects.links import refusal
from tiffin.errors import ConfigInvalid

TOKENS: Final = "https://oauth2.googleapis.com/token"
EXPECTED: Final = (
    "expected the JSON of a service account's key, of a login for applications"
    " (authorized_user), or an access token"
)


class _File(msgspec.Struct):
    type: str = ""
    client_email: str = ""
    private_key_id: str = ""
    private_key: str = ""
    client_id: str = ""
    client_secret: str = ""
    refresh_token: str = ""
    token_uri: str = TOKENS


@dataclass(frozen=True, slots=True)
class ServiceAccount:
    """An account for programs: who it is, and the key that it signs with, in PEM."""

    token_url: str
    email: str
    key_id: str
    key: str = field(repr=False)


@dataclass(frozen=True, slots=True)
class Login:
    """Somebody's login, lent to programs."""

    token_url: str
    client_id: str
    client_secret: str = field(repr=False)
    refresh_token: str = field(repr=False)


def is_file(text: str) -> bool:
    """Whether a secret is such a file; otherwise it is a token itself."""
    return text.startswith("{")


def read_account(text: str, allowed: Sequence[str]) -> ServiceAccount | Login:
    """What a file holds; its tokens are had from a host that is `allowed`.

    Raises `ConfigInvalid`, which repeats nothing of it but that host.
    """
    try:
        found = msgspec.json.decode(text, type=_File)
    except msgspec.DecodeError:
        raise ConfigInvalid(EXPECTED) from None
    url = found.token_uri
    if problem := _not_there(url, allowed):
        host = urlsplit(url).hostname or "" if not problem.startswith("it is no") else ""
        raise ConfigInvalid(f"its token_uri ({host[:80]}) isn't asked: {problem}")
    if found.type == "service_account" and found.client_email and found.private_key:
        return ServiceAccount(url, found.client_email, found.private_key_id, found.private_key)
    if found.type == "authorized_user" and found.client_id and found.refresh_token:
        return Login(url, found.client_id, found.client_secret, found.refresh_token)
    raise ConfigInvalid(EXPECTED)


def _not_there(url: str, allowed: Sequence[str]) -> str:
    """Why a file's own word isn't enough to ask that address; empty where it is.

    What `[egress]` lists by name may be anywhere; what only `*` allows must be on the internet.
    """
    if not may_reach(url, allowed):
        return "its host isn't in egress.allow"
    if may_reach(url, [entry for entry in allowed if entry != ANY]):
        return "" if urlsplit(url).scheme in ("http", "https") else "it is no address"
    if not url.startswith("https://"):
        return "it must begin with https://"
    return refusal(url)
