"""The headers that say who sent a message, as Standard Webhooks 1.0.0 has them."""

import hmac
from base64 import b64decode, b64encode
from binascii import Error
from typing import Final

from tiffin.ports.webhooks import Lines

PREFIX: Final = "whsec_"


def signed(key: str, id_: str, at_s: int, body: bytes) -> Lines:
    """The headers of a message that is sent now: HMAC-SHA256 over its id, the moment and the body.

    A key that begins with `whsec_` is in base64 behind that; any other is itself.
    """
    content = f"{id_}.{at_s}.".encode() + body
    mark = b64encode(hmac.digest(_bytes_of(key), content, "sha256"))
    return (
        (b"webhook-id", id_.encode()),
        (b"webhook-timestamp", str(at_s).encode()),
        (b"webhook-signature", b"v1," + mark),
    )


def _bytes_of(key: str) -> bytes:
    if key.startswith(PREFIX):
        try:
            return b64decode(key.removeprefix(PREFIX), validate=True)
        except Error:
            return key.encode()
    return key.encode()
