"""Errors in the shape of Anthropic's API: statuses and types, in answers and in streams."""

import msgspec

from tiffin.dialects.statuses import STATUS, error_headers
from tiffin.errors import TiffinError
from tiffin.ports.exchange import Headers

MAX_MESSAGE = 2_000
# Where it has a status of its own for what others have another for.
_OWN_STATUS = {"overloaded": 529, "insufficient_quota": 402}
_TYPES = {
    401: "authentication_error",
    402: "billing_error",
    403: "permission_error",
    404: "not_found_error",
    409: "conflict_error",
    413: "request_too_large",
    429: "rate_limit_error",
    504: "timeout_error",
    529: "overloaded_error",
}


class _Error(msgspec.Struct):
    type: str
    message: str


class _Body(msgspec.Struct, tag_field="type", tag="error"):
    error: _Error


def status_of(error: TiffinError) -> int:
    """The HTTP status."""
    return _OWN_STATUS.get(error.slug) or STATUS[error.slug]


def type_of(error: TiffinError) -> str:
    """The `type` by which clients tell errors apart."""
    status = status_of(error)
    return _TYPES.get(status) or ("api_error" if status >= 500 else "invalid_request_error")


def error_body(error: TiffinError) -> bytes:
    """The error object."""
    return msgspec.json.encode(_Body(_Error(type_of(error), error.message[:MAX_MESSAGE])))


def error_response(error: TiffinError) -> tuple[int, Headers, bytes]:
    """An error as a whole response: status, headers, body."""
    headers = [(b"content-type", b"application/json"), *error_headers(error)]
    return status_of(error), headers, error_body(error)


def stream_error_event(error: TiffinError) -> bytes:
    """The last event of a stream that can't be ended well; no `message_stop` follows it."""
    return b"event: error\ndata: %b\n\n" % error_body(error)
