"""The one table from an error's slug to HTTP status and OpenAI's error object, and back.

Clients tell a 429 of pace from one of money by `code`: `rate_limit_exceeded` may be tried again
after the time that the headers say; `insufficient_quota` may not.
"""

import re
from contextlib import suppress
from typing import NamedTuple

import msgspec

from tiffin.dialects.statuses import STATUS
from tiffin.dialects.statuses import error_headers as error_headers
from tiffin.dialects.statuses import status_of as status_of
from tiffin.errors import (
    ConfigInvalid,
    ContextLengthExceeded,
    InvalidRequest,
    Overloaded,
    TiffinError,
    UpstreamFailed,
    UpstreamRefused,
    UpstreamUnavailable,
    every_error,
)
from tiffin.ports.exchange import Headers

MAX_MESSAGE = 2_000
# What an upstream that isn't ours says may repeat a request, so less of it is passed on.
MAX_FOREIGN_MESSAGE = 300


class Shape(NamedTuple):
    """How an error looks on the wire: HTTP status, OpenAI's `type` and `code`."""

    status: int
    type: str
    code: str


_INVALID = "invalid_request_error"
_SERVER = "server_error"

_CODES: dict[str, tuple[str, str]] = {
    "internal_error": (_SERVER, "internal_error"),
    "invalid_request": (_INVALID, "invalid_request"),
    "malformed_body": (_INVALID, "malformed_body"),
    "invalid_value": (_INVALID, "invalid_value"),
    "context_length_exceeded": (_INVALID, "context_length_exceeded"),
    "unsupported_parameter": (_INVALID, "unsupported_parameter"),
    "unsupported_operation": (_INVALID, "unsupported_operation"),
    "unknown_parameter": (_INVALID, "unknown_parameter"),
    "payload_too_large": (_INVALID, "payload_too_large"),
    "request_timeout": (_INVALID, "request_timeout"),
    "method_not_allowed": (_INVALID, "method_not_allowed"),
    "idempotency_key_reused": (_INVALID, "idempotency_key_reused"),
    "invalid_api_key": (_INVALID, "invalid_api_key"),
    "key_expired": (_INVALID, "key_expired"),
    "permission_denied": (_INVALID, "permission_denied"),
    "out_of_scope": (_INVALID, "out_of_scope"),
    "residency_denied": (_INVALID, "residency_denied"),
    "tenant_suspended": (_INVALID, "tenant_suspended"),
    "rejected": ("requests", "rate_limit_exceeded"),
    "rate_limit_exceeded": ("requests", "rate_limit_exceeded"),
    "concurrency_limit_exceeded": ("concurrency", "rate_limit_exceeded"),
    "overloaded": (_SERVER, "overloaded"),
    "insufficient_quota": ("insufficient_quota", "insufficient_quota"),
    "content_blocked": (_INVALID, "content_filter"),
    "not_found": (_INVALID, "not_found"),
    "model_not_found": (_INVALID, "model_not_found"),
    "endpoint_not_found": (_INVALID, "endpoint_not_found"),
    "response_not_found": (_INVALID, "response_not_found"),
    "previous_response_not_found": (_INVALID, "previous_response_not_found"),
    "conflict": (_INVALID, "conflict"),
    "idempotency_key_in_use": (_INVALID, "idempotency_key_in_use"),
    "indeterminate": (_INVALID, "indeterminate"),
    "unavailable": (_SERVER, "unavailable"),
    "no_healthy_replica": (_SERVER, "no_healthy_replica"),
    "model_loading": (_SERVER, "model_loading"),
    "draining": (_SERVER, "draining"),
    "journal_unavailable": (_SERVER, "journal_unavailable"),
    "limit_store_unavailable": (_SERVER, "limit_store_unavailable"),
    "upstream_unavailable": (_SERVER, "upstream_unavailable"),
    "deadline_exceeded": (_SERVER, "deadline_exceeded"),
    "run_failed": (_SERVER, "run_failed"),
    "load_failed": (_SERVER, "load_failed"),
    "model_timeout": (_SERVER, "model_timeout"),
    "upstream_failed": (_SERVER, "upstream_failed"),
    "upstream_refused": (_SERVER, "upstream_refused"),
    "artifact_error": (_SERVER, "artifact_error"),
    "digest_mismatch": (_SERVER, "digest_mismatch"),
    "artifact_unavailable": (_SERVER, "artifact_unavailable"),
    "config_invalid": (_INVALID, "config_invalid"),
}
TABLE = {slug: Shape(STATUS[slug], kind, code) for slug, (kind, code) in _CODES.items()}


class _Error(msgspec.Struct):
    message: str = ""
    type: str | None = None
    param: str | None = None
    code: str | int | None = None


class _Body(msgspec.Struct):
    error: _Error


class _OnTheHop(_Error):
    retry_after_ms: float | None = None
    full_ms: float = 0.0


class _BodyOnTheHop(msgspec.Struct):
    error: _OnTheHop


class _Line(msgspec.Struct):
    """The Open Inference Protocol's error."""

    error: str


class _Plain(msgspec.Struct):
    """What Cohere and services of AWS say, in either spelling."""

    message: str = ""
    spelled: str = msgspec.field(name="Message", default="")


_READER = msgspec.json.Decoder(_BodyOnTheHop)
_LINE = msgspec.json.Decoder(_Line)
_BARE = msgspec.json.Decoder(_OnTheHop)
# How servers say it that don't have OpenAI's code for it: vLLM, SGLang, llama.cpp, Anthropic.
_TOO_LONG = re.compile(r"context (length|size|window|limit)|prompt is too long", re.IGNORECASE)
_PLAIN = msgspec.json.Decoder(_Plain)
# Several slugs share a wire code; the most general of them is read back.
_BY_CODE = {
    TABLE[cls.slug].code: cls for cls in reversed(every_error()) if cls is not ConfigInvalid
}


def error_body(error: TiffinError) -> bytes:
    """OpenAI's error object, with all four of its keys."""
    shape = TABLE[error.slug]
    told = _Error(error.message[:MAX_MESSAGE], shape.type, error.param, shape.code)
    return msgspec.json.encode(_Body(told))


def error_response(error: TiffinError) -> tuple[int, Headers, bytes]:
    """An error as a whole response: status, headers, body."""
    headers = [(b"content-type", b"application/json"), *error_headers(error)]
    return status_of(error), headers, error_body(error)


def hop_error_response(error: TiffinError) -> tuple[int, Headers, bytes]:
    """An error as a replica tells it to the gateway: exactly, with what is the gateway's alone."""
    if not isinstance(error, Overloaded):
        return error_response(error)
    shape = TABLE[error.slug]
    told = _OnTheHop(error.message[:MAX_MESSAGE], shape.type, error.param, shape.code)
    told.full_ms = error.full_s * 1000
    if error.retry_after is not None:
        told.retry_after_ms = error.retry_after * 1000
    headers = [(b"content-type", b"application/json"), *error_headers(error)]
    return shape.status, headers, msgspec.json.encode(_BodyOnTheHop(told))


def stream_error_event(error: TiffinError) -> bytes:
    """The last event of a stream that can't be ended well; no `[DONE]` follows it."""
    return b"data: %b\n\n" % error_body(error)


def error_from_reply(
    status: int, body: bytes, *, trusted: bool, retry_after: float | None = None
) -> TiffinError:
    """What a failed reply of a replica (`trusted`) or of somebody's upstream means to our client.

    A replica's error comes through as it was raised. Of an upstream's, what the client can mend is
    passed on; that our key or our quota there is refused isn't the client's to know.
    """
    told = _read(body)
    if trusted and isinstance(told.code, str) and told.code in _BY_CODE:
        message = told.message[:MAX_MESSAGE]
        if told.retry_after_ms is not None:
            retry_after = told.retry_after_ms / 1000
        error = _BY_CODE[told.code](message, retry_after=retry_after, param=told.param)
        if isinstance(error, Overloaded):
            error.full_s = told.full_ms / 1000
        return error
    message = f"the upstream said: {told.message[:MAX_FOREIGN_MESSAGE]}"
    if status in (400, 413, 422):
        kind = ContextLengthExceeded if _is_too_long(told) else InvalidRequest
        return kind(message, param=told.param)
    if status in (408, 409, 425, 429, 503):
        return UpstreamUnavailable(
            f"the upstream is busy (status {status})", retry_after=retry_after
        )
    if status >= 500:
        return UpstreamFailed(f"the upstream failed (status {status})", retry_after=retry_after)
    if status == 404:
        return UpstreamRefused("the upstream doesn't have the model or endpoint (status 404)")
    return UpstreamRefused(f"the upstream refused the request (status {status})")


def error_from_event(payload: bytes, *, trusted: bool) -> TiffinError:
    """What an error event inside a stream means, by the same rule."""
    if trusted:
        return error_from_reply(500, payload, trusted=True)
    return UpstreamFailed(f"the upstream broke off: {_read(payload).message[:MAX_FOREIGN_MESSAGE]}")


def _read(body: bytes) -> _OnTheHop:
    with suppress(msgspec.DecodeError):
        return _READER.decode(body).error
    with suppress(msgspec.DecodeError):
        return _OnTheHop(_LINE.decode(body).error)
    with suppress(msgspec.DecodeError):
        plain = _PLAIN.decode(body)
        if said := plain.message or plain.spelled:
            return _OnTheHop(said)
    with suppress(msgspec.DecodeError):
        if (bare := _BARE.decode(body)).message:  # as vLLM and SGLang tell theirs
            return bare
    return _OnTheHop("it gave no reason")


def _is_too_long(told: _OnTheHop) -> bool:
    """Whether what was sent doesn't fit the model's context."""
    return told.code == ContextLengthExceeded.slug or bool(_TOO_LONG.search(told.message))
