"""Errors in the protocol's shape: a status of the one table, and a message."""

import msgspec

from tiffin.dialects.oip.messages import ErrorReply
from tiffin.dialects.statuses import error_headers, status_of
from tiffin.errors import TiffinError
from tiffin.ports.exchange import Headers

MAX_MESSAGE = 2_000
JSON = (b"content-type", b"application/json")
SLUG = b"x-tiffin-error"
"""The header that names the error, since the protocol's body has a message alone."""


def error_body(error: TiffinError) -> bytes:
    """`{"error": message}`; the message says where in the request the fault is."""
    message = error.message
    if error.param and error.param not in message:
        message = f"{error.param}: {message}"
    return msgspec.json.encode(ErrorReply(error=message[:MAX_MESSAGE]))


def error_response(error: TiffinError) -> tuple[int, Headers, bytes]:
    """An error as a whole response: status, headers, body."""
    named = (SLUG, error.slug.encode())
    return status_of(error), [JSON, named, *error_headers(error)], error_body(error)
