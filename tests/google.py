"""Google's token endpoint as its documents have it, and an account of its own."""

import json
from base64 import urlsafe_b64decode
from functools import cache
from typing import Any
from urllib.parse import parse_qs

from cryptography.hazmat.primitives.asymmetric.padding import PKCS1v15
from cryptography.hazmat.primitives.asymmetric.rsa import RSAPrivateKey, generate_private_key
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

EMAIL = "chats@acme.iam.gserviceaccount.com"
BEARER = "urn:ietf:params:oauth:grant-type:jwt-bearer"


@cache
def rsa_key() -> RSAPrivateKey:
    return generate_private_key(65537, 2048)


def pem(key: Any = None) -> str:
    made = key or rsa_key()
    text: bytes = made.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    return text.decode()


def account(token_url: str, **other: str) -> str:
    """The file of a service account's key."""
    fields = {
        "type": "service_account",
        "project_id": "acme",
        "private_key_id": "k1",
        "private_key": other.get("private_key") or pem(),
        "client_email": EMAIL,
        "token_uri": token_url,
    }
    return json.dumps(fields | other)


def claims_of(form: bytes) -> dict[str, Any]:
    """What a form's assertion claims; raises where it isn't signed by the account."""
    fields = parse_qs(form.decode(), strict_parsing=True)
    assert fields["grant_type"] == [BEARER]
    head, claims, signature = fields["assertion"][0].split(".")
    signed = f"{head}.{claims}".encode()
    rsa_key().public_key().verify(_bytes(signature), signed, PKCS1v15(), SHA256())
    assert json.loads(_bytes(head)) == {"alg": "RS256", "typ": "JWT", "kid": "k1"}
    found: dict[str, Any] = json.loads(_bytes(claims))
    return found


def _bytes(part: str) -> bytes:
    return urlsafe_b64decode(part + "=" * (-len(part) % 4))
