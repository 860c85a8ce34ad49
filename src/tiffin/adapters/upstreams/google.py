"""Google's tokens for accounts of programs and for lent logins, by OAuth's token endpoint."""

import asyncio
import time
from collections.abc import Callable
from typing import Final
from urllib.parse import urlsplit

from tiffin.adapters.upstreams.bearer import BearerSigner, Lent
from tiffin.dialects.google import grants
from tiffin.dialects.google.credentials import Login, ServiceAccount
from tiffin.errors import ConfigInvalid, TiffinError, UpstreamUnavailable
from tiffin.ports.backend import Backend, Call

WITHIN_S: Final = 10.0
MAX_BYTES: Final = 65_536

Form = Callable[[], bytes]


def google_signer(
    account: ServiceAccount | Login, backend: Backend, close: Callable[[], None]
) -> BearerSigner:
    """Asks for tokens of an account through a backend of its token endpoint.

    Raises `ConfigInvalid` where the account's key is none.
    """
    parts = urlsplit(account.token_url)
    form = _form(account)

    async def ask() -> Lent | TiffinError:
        call = Call(
            path=(parts.path or "/").encode()
            + (f"?{parts.query}".encode() if parts.query else b""),
            body=await asyncio.to_thread(form),
            headers=b"",
            deadline=asyncio.get_running_loop().time() + WITHIN_S,
            content=grants.FORM,
        )
        return await asked(backend, call, parts.hostname or "")

    return BearerSigner(ask, close)


async def asked(backend: Backend, call: Call, host: str) -> Lent | TiffinError:
    """The token that a call brings, or why it brings none."""
    try:
        async with backend.start(call) as reply:
            body = await reply.read_all(MAX_BYTES)
    except TiffinError as error:
        return UpstreamUnavailable(f"no token from {host}: {error.message}")
    found = grants.token_of(host, reply.status, body)
    if isinstance(found, TiffinError):
        return found
    return Lent(found.access_token, found.expires_in)


def _form(account: ServiceAccount | Login) -> Form:
    """What makes the form that asks for a token."""
    if isinstance(account, Login):
        form = grants.login_form(account)
        return lambda: form
    from cryptography.hazmat.primitives.asymmetric.padding import PKCS1v15
    from cryptography.hazmat.primitives.asymmetric.rsa import RSAPrivateKey
    from cryptography.hazmat.primitives.hashes import SHA256
    from cryptography.hazmat.primitives.serialization import load_pem_private_key

    try:
        # A key that contradicts itself signs what nobody accepts; to find out takes 50 ms.
        key = load_pem_private_key(account.key.encode(), None, unsafe_skip_rsa_key_validation=True)
    except (ValueError, TypeError):
        raise ConfigInvalid("its private_key is no key in PEM without a password") from None
    if not isinstance(key, RSAPrivateKey):
        raise ConfigInvalid("its private_key is no RSA key")
    rsa = key

    def signed() -> bytes:
        text = grants.unsigned(account, int(time.time()))
        return grants.assertion_form(text, rsa.sign(text, PKCS1v15(), SHA256()))

    return signed
