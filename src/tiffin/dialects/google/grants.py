"""What Google's tokens are asked for with, and what the answer says."""

import re
from base64 import urlsafe_b64encode
from typing import Final
from urllib.parse import urlencode

import msgspec

from tiffin.dialects.google.credentials import Login, ServiceAccount
from tiffin.errors import TiffinError, UpstreamRefused, UpstreamUnavailable

SCOPE: Final = "https://www.googleapis.com/auth/cloud-platform"
FORM: Final = b"content-type: application/x-www-form-urlencoded\r\n"
LASTS_S: Final = 3600
"""How long an assertion holds, which is the longest that one may."""
UNAUTHORISED: Final = 401
_BEARER: Final = "urn:ietf:params:oauth:grant-type:jwt-bearer"
_CODE: Final = re.compile(r"[a-z_]{1,40}")


class Token(msgspec.Struct):
    """A token, and for how many seconds it holds."""

    access_token: str
    expires_in: float = 3600.0

    def __repr__(self) -> str:
        return f"Token(expires_in={self.expires_in:g})"


class _Fault(msgspec.Struct):
    error: str = ""
    error_description: str = ""


_TOKEN = msgspec.json.Decoder(Token)
_FAULT = msgspec.json.Decoder(_Fault)


def unsigned(account: ServiceAccount, now_s: int) -> bytes:
    """The assertion of who asks, without its signature (RS256)."""
    head = {"alg": "RS256", "typ": "JWT", "kid": account.key_id}
    claims = {
        "iss": account.email,
        "scope": SCOPE,
        "aud": account.token_url,
        "iat": now_s,
        "exp": now_s + LASTS_S,
    }
    return b".".join(_part(msgspec.json.encode(one)) for one in (head, claims))


def assertion_form(assertion: bytes, signature: bytes) -> bytes:
    """The form that asks for a token with a signed assertion."""
    signed = b"%b.%b" % (assertion, _part(signature))
    return urlencode({"grant_type": _BEARER, "assertion": signed}).encode()


def login_form(login: Login) -> bytes:
    """The form that asks for a token with a login."""
    fields = {
        "grant_type": "refresh_token",
        "client_id": login.client_id,
        "client_secret": login.client_secret,
        "refresh_token": login.refresh_token,
    }
    return urlencode(fields).encode()


def token_of(host: str, status: int, body: bytes) -> Token | TiffinError:
    """The token that an answer has, or what it means that it has none."""
    if status == 200:
        try:
            token = _TOKEN.decode(body)
        except msgspec.DecodeError:
            return UpstreamUnavailable(f"{host} answered with something that is no token")
        plain = token.access_token and all("!" <= letter <= "~" for letter in token.access_token)
        if not plain or token.expires_in <= 0:
            return UpstreamUnavailable(f"{host} answered with something that is no token")
        return token
    if status == 429 or status >= 500:
        return UpstreamUnavailable(f"{host} gives no token now (status {status})")
    error = UpstreamRefused(f"{host} gives our account no token (status {status}{_why(body)})")
    error.status = UNAUTHORISED
    return error


def _why(body: bytes) -> str:
    try:
        fault = _FAULT.decode(body)
    except msgspec.DecodeError:
        return ""
    why = f", {fault.error}" if _CODE.fullmatch(fault.error) else ""
    if "iat" in fault.error_description and "exp" in fault.error_description:
        why += "; by its clock we ask at another time: set this machine's"
    return why


def _part(data: bytes) -> bytes:
    return urlsafe_b64encode(data).rstrip(b"=")
