"""What every dialect over HTTP says of an error beside its body: the status, and when to retry."""

from math import ceil

from tiffin.errors import MethodNotAllowed, Pace, RateLimited, TiffinError
from tiffin.ports.exchange import Headers

# When to come again where another try may help and nobody knows when.
SOON_S = 1.0
# More than anybody means; an upstream may say anything.
MAX_RETRY_S = 86_400.0

_PACE = {
    of: tuple(
        b"x-ratelimit-%b-%b" % (what, of.encode()) for what in (b"limit", b"remaining", b"reset")
    )
    for of in ("requests", "tokens")
}

STATUS: dict[str, int] = {
    "internal_error": 500,
    "invalid_request": 400,
    "malformed_body": 400,
    "invalid_value": 400,
    "context_length_exceeded": 400,
    "unsupported_parameter": 400,
    "unsupported_operation": 400,
    "unknown_parameter": 400,
    "payload_too_large": 413,
    "request_timeout": 408,
    "method_not_allowed": 405,
    "idempotency_key_reused": 422,
    "invalid_api_key": 401,
    "key_expired": 401,
    "permission_denied": 403,
    "out_of_scope": 403,
    "residency_denied": 403,
    "tenant_suspended": 403,
    "rejected": 429,
    "rate_limit_exceeded": 429,
    "concurrency_limit_exceeded": 429,
    "overloaded": 503,
    "insufficient_quota": 429,
    "content_blocked": 400,
    "not_found": 404,
    "model_not_found": 404,
    "endpoint_not_found": 404,
    "response_not_found": 404,
    "previous_response_not_found": 404,
    "conflict": 409,
    "idempotency_key_in_use": 409,
    "indeterminate": 409,
    "unavailable": 503,
    "no_healthy_replica": 503,
    "model_loading": 503,
    "draining": 503,
    "journal_unavailable": 503,
    "limit_store_unavailable": 503,
    "upstream_unavailable": 503,
    "deadline_exceeded": 504,
    "run_failed": 500,
    "load_failed": 503,
    "model_timeout": 504,
    "upstream_failed": 502,
    "upstream_refused": 502,
    "artifact_error": 503,
    "digest_mismatch": 503,
    "artifact_unavailable": 503,
    "config_invalid": 400,
}
"""The HTTP status of every error, by its slug."""


def status_of(error: TiffinError) -> int:
    """The HTTP status."""
    return STATUS[error.slug]


def error_headers(error: TiffinError) -> Headers:
    """When to try again, in whole seconds (at least 1) and milliseconds; or the right methods.

    And how the limit stands that refused it.
    """
    if isinstance(error, MethodNotAllowed) and error.allowed:
        return [(b"allow", error.allowed.encode())]
    seconds = error.retry_after
    if seconds is None:
        if not error.retryable:
            return []
        seconds = SOON_S
    pace = error.pace if isinstance(error, RateLimited) else None
    return [*retry_headers(seconds), *(pace_headers(pace) if pace else ())]


def retry_headers(seconds: float) -> Headers:
    """When to try again."""
    seconds = min(max(0.0, seconds), MAX_RETRY_S)
    return [
        (b"retry-after", b"%d" % max(1, ceil(seconds))),
        (b"retry-after-ms", b"%d" % max(1, ceil(seconds * 1000))),
    ]


def pace_headers(pace: Pace) -> Headers:
    """OpenAI's three headers of a limit of requests or tokens."""
    limit, remaining, reset = _PACE[pace.of]
    return [
        (limit, b"%d" % pace.limit),
        (remaining, b"%d" % pace.left),
        (reset, duration(pace.resets_ms)),
    ]


def duration(ms: int) -> bytes:
    """A time as these headers have it: `6m0s`, `1.5s`, `20ms`, `0s`."""
    if 0 < ms < 1000:
        return b"%dms" % ms
    if ms < 60_000:
        return b"%gs" % (ms / 1000)
    minutes, ms = divmod(ms, 60_000)
    hours, minutes = divmod(minutes, 60)
    text = b"%dm%gs" % (minutes, ms / 1000)
    return b"%dh%b" % (hours, text) if hours else text
