"""Every error has its shape on the wire, and what an upstream said is read back."""

import json

import openai
import pytest

from tiffin.dialects.openai.errors import (
    TABLE,
    error_body,
    error_from_event,
    error_from_reply,
    error_headers,
    status_of,
    stream_error_event,
)
from tiffin.errors import (
    Code,
    ConfigInvalid,
    ContextLengthExceeded,
    InvalidRequest,
    MethodNotAllowed,
    ModelNotFound,
    Overloaded,
    QuotaExceeded,
    RateLimited,
    Rejected,
    TiffinError,
    Unavailable,
    UpstreamFailed,
    UpstreamRefused,
    UpstreamUnavailable,
    every_error,
)

STATUSES = {
    Code.INVALID_ARGUMENT: {400, 405, 408, 413, 422},
    Code.UNAUTHENTICATED: {401},
    Code.PERMISSION_DENIED: {403},
    Code.RESOURCE_EXHAUSTED: {429},
    Code.FAILED_PRECONDITION: {400, 503},
    Code.NOT_FOUND: {404},
    Code.ALREADY_EXISTS: {409},
    Code.UNAVAILABLE: {503},
    Code.DEADLINE_EXCEEDED: {504},
    Code.INTERNAL: {500, 502, 503},
}


def test_the_table_has_exactly_the_errors_that_there_are() -> None:
    slugs = [cls.slug for cls in every_error()]
    assert sorted(slugs) == sorted(TABLE)
    assert len(set(slugs)) == len(slugs)


@pytest.mark.parametrize("cls", every_error(), ids=lambda cls: cls.slug)
def test_the_status_agrees_with_the_canonical_code(cls: type[TiffinError]) -> None:
    assert TABLE[cls.slug].status in STATUSES[cls.code]


def test_the_body_has_all_four_keys() -> None:
    error = ModelNotFound("there is no model 'x'", param="model")
    assert json.loads(error_body(error)) == {
        "error": {
            "message": "there is no model 'x'",
            "type": "invalid_request_error",
            "param": "model",
            "code": "model_not_found",
        }
    }
    assert json.loads(error_body(TiffinError("oh")))["error"]["param"] is None
    assert status_of(error) == 404


def test_a_message_is_bounded() -> None:
    assert len(error_body(InvalidRequest("x" * 100_000))) < 3_000


def test_pace_and_money_are_two_kinds_of_429() -> None:
    pace, money = TABLE[RateLimited.slug], TABLE[QuotaExceeded.slug]
    assert (pace.status, pace.code) == (429, "rate_limit_exceeded")
    assert (money.status, money.type) == (429, "insufficient_quota")


@pytest.mark.parametrize(
    ("seconds", "whole", "milliseconds"),
    [
        *((0.0, b"1", b"1"), (0.25, b"1", b"250"), (1.001, b"2", b"1001")),
        *((60.0, b"60", b"60000"), (1e300, b"86400", b"86400000")),
        (float("inf"), b"86400", b"86400000"),
    ],
)
def test_when_to_try_again(seconds: float, whole: bytes, milliseconds: bytes) -> None:
    assert error_headers(RateLimited("slow", retry_after=seconds)) == [
        (b"retry-after", whole),
        (b"retry-after-ms", milliseconds),
    ]
    assert error_headers(RateLimited("slow")) == [
        (b"retry-after", b"1"),
        (b"retry-after-ms", b"1000"),
    ]
    assert error_headers(QuotaExceeded("spent")) == []


def test_a_wrong_method_is_told_the_right_ones() -> None:
    assert error_headers(MethodNotAllowed("no", allowed="GET")) == [(b"allow", b"GET")]
    assert error_headers(MethodNotAllowed("no")) == []


def test_the_event_of_a_broken_stream() -> None:
    event = stream_error_event(UpstreamFailed("it broke\noff"))
    assert event.startswith(b'data: {"error":{')
    assert event.endswith(b"}}\n\n")
    assert event.count(b"\n") == 2


@pytest.mark.parametrize(
    "cls", [cls for cls in every_error() if cls is not ConfigInvalid], ids=lambda cls: cls.slug
)
def test_a_replicas_error_comes_through(cls: type[TiffinError]) -> None:
    error = cls("why", param="n", retry_after=2.0)
    read = error_from_reply(status_of(error), error_body(error), trusted=True, retry_after=2.0)
    assert issubclass(cls, type(read))
    assert status_of(read) == status_of(error)
    assert (read.message, read.param, read.retry_after) == ("why", "n", 2.0)
    if type(read) is not cls:
        assert type(read) is Rejected  # the kinds of pace share a code


@pytest.mark.parametrize(
    ("status", "code", "cls"),
    [
        (400, "invalid_value", InvalidRequest),
        (400, "context_length_exceeded", ContextLengthExceeded),
        (422, None, InvalidRequest),
        (401, "invalid_api_key", UpstreamRefused),
        (402, None, UpstreamRefused),
        (403, "internal_error", UpstreamRefused),
        (404, "model_not_found", UpstreamRefused),
        (301, None, UpstreamRefused),
        (429, "rate_limit_exceeded", UpstreamUnavailable),
        (503, "overloaded", UpstreamUnavailable),
        (500, "invalid_value", UpstreamFailed),
        (502, None, UpstreamFailed),
    ],
)
def test_what_an_upstream_says_is_judged_by_its_status(
    status: int, code: str | None, cls: type[TiffinError]
) -> None:
    body = json.dumps({"error": {"message": "m" * 5000, "type": None, "param": None, "code": code}})
    error = error_from_reply(status, body.encode(), trusted=False, retry_after=3.0)
    assert type(error) is cls
    assert len(error.message) < 400
    if cls in (UpstreamUnavailable, UpstreamFailed):
        assert error.retry_after == 3.0
    if cls is UpstreamRefused:
        assert "mm" not in error.message


@pytest.mark.parametrize(
    "message",
    [
        "This model's maximum context length is 4096 tokens. However, you requested 5000 tokens",
        "The input (61709 tokens) is longer than the model's context length (40960 tokens).",
        "input length and `max_tokens` exceed context limit: 174167 + 64000 > 200000",
        "prompt is too long: 210000 tokens > 200000 maximum",
    ],
)
@pytest.mark.parametrize("nested", [True, False], ids=["nested", "bare"])
def test_a_prompt_that_is_too_long_is_known_by_what_servers_say(message: str, nested: bool) -> None:
    told = {"message": message, "type": "BadRequestError", "param": None, "code": 400}
    body = {"error": told} if nested else {"object": "error", **told}
    error = error_from_reply(400, json.dumps(body).encode(), trusted=False)
    assert type(error) is ContextLengthExceeded
    assert message in error.message


@pytest.mark.parametrize(
    "body", [b"", b"<html>", b"[]", b'{"error":"text"}', b'{"error":{"message":5}}', b"\xff"]
)
@pytest.mark.parametrize("trusted", [True, False])
def test_nonsense_is_an_error_too(body: bytes, trusted: bool) -> None:
    assert isinstance(error_from_reply(500, body, trusted=trusted), UpstreamFailed)
    assert isinstance(error_from_reply(400, body, trusted=trusted), InvalidRequest)
    assert isinstance(error_from_event(body, trusted=trusted), UpstreamFailed)


def test_an_error_inside_a_stream() -> None:
    payload = error_body(Overloaded("full"))
    assert type(error_from_event(payload, trusted=True)) is Overloaded
    assert type(error_from_event(payload, trusted=False)) is UpstreamFailed


def test_the_client_library_reads_our_errors() -> None:
    error = json.loads(error_body(Unavailable("later")))
    raised = openai.APIError("x", request=None, body=error["error"])  # type: ignore[arg-type]
    assert (raised.code, raised.param, raised.type) == ("unavailable", None, "server_error")
