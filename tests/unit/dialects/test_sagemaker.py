"""Chats in the wrapping of SageMaker's endpoints: streams, errors and what is asked."""

import json
from struct import pack
from typing import Any
from zlib import crc32

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.aws import json_lines, message
from tests.system.upstream_fake import chunks
from tiffin.dialects.aws.events import MAX_MESSAGE, Messages
from tiffin.dialects.aws.sagemaker import DONE, Lines, meant, streams
from tiffin.errors import UpstreamFailed, UpstreamRefused

EVENTS = b"".join(chunks("Nama", "ste."))
BROKEN: dict[str, str] = {"message_type": "exception", "exception_type": "ModelStreamError"}


def told(*parts: bytes) -> bytes:
    """What comes of a stream that comes in these parts and ends."""
    lines = Lines()
    return b"".join(map(lines.feed, parts)) + lines.end()


@given(st.lists(st.binary(max_size=40), max_size=4), st.data())
def test_messages_are_found_however_they_are_cut(
    payloads: list[bytes], data: st.DataObject
) -> None:
    stream = b"".join(message(payload, n=str(at)) for at, payload in enumerate(payloads))
    at = data.draw(st.integers(0, len(stream)))
    messages = Messages()
    found = [*messages.feed(stream[:at]), *messages.feed(stream[at:])]
    assert [one.payload for one in found] == payloads
    assert [one.headers[":n"] for one in found] == [str(at) for at in range(len(payloads))]
    assert not messages.inside


@given(st.binary(max_size=40), st.data())
def test_no_damage_goes_unseen(payload: bytes, data: st.DataObject) -> None:
    stream = bytearray(message(payload))
    at = data.draw(st.integers(0, len(stream) - 1))
    stream[at] ^= data.draw(st.integers(1, 255))
    with pytest.raises(UpstreamFailed):
        list(Messages().feed(bytes(stream)))


@pytest.mark.parametrize(("length", "headers"), [(15, 0), (20, 5), (MAX_MESSAGE + 1, 0)])
def test_no_message_has_such_a_length(length: int, headers: int) -> None:
    head = pack(">II", length, headers)
    with pytest.raises(UpstreamFailed, match="length"):
        list(Messages().feed(head + pack(">I", crc32(head))))


@given(st.integers(1, len(EVENTS) - 1))
def test_events_pass_as_they_are(at: int) -> None:
    assert told(message(EVENTS[:at]), message(b""), message(EVENTS[at:])) == EVENTS


@given(st.data())
def test_json_lines_become_events(data: st.DataObject) -> None:
    lines = json_lines("Nama", "ste.")
    at = data.draw(st.integers(1, len(lines) - 1))
    wanted = b"".join(b"data: %b\n\n" % line for line in lines.splitlines()) + DONE
    assert told(message(lines[:at]), message(lines[at:])) == wanted
    assert told(message(lines.rstrip())) == wanted, "the last line need not end"


def test_json_lines_that_no_reason_ends_are_not_whole() -> None:
    assert DONE not in told(message(json_lines("Nama", finish=None)))
    assert told() == b""


def test_a_stream_that_breaks_off_says_so() -> None:
    whole = message(json_lines("Nama"))
    with pytest.raises(UpstreamFailed, match="inside a message"):
        told(whole, whole[:-1])
    with pytest.raises(UpstreamFailed, match=r"ModelStreamError.*out of memory"):
        told(whole, message(b'{"Message": "out of memory"}', **BROKEN))
    with pytest.raises(UpstreamFailed, match="InternalFailure"):
        told(message(b"", message_type="error", error_code="InternalFailure"))


def test_a_line_has_an_end() -> None:
    with pytest.raises(UpstreamFailed, match="more than"):
        told(*[message(b"{" + b"x" * 600_000)] * 2)


def test_a_stream_is_asked_for_at_a_path_of_its_own() -> None:
    said = b'{"messages":[{"role":"user","content":"\\"stream\\":true"}]%b}'
    assert streams(said % b',"stream":true')
    assert not streams(said % b',"stream":false')
    assert not streams(said % b"")


@pytest.mark.parametrize(
    ("status", "body", "wanted"),
    [
        (400, {"message": "Endpoint e not found"}, (400, None)),
        (400, {"message": "Rate exceeded"}, (429, None)),
        (403, {"message": "not authorized"}, (403, None)),
        (424, {"OriginalStatusCode": 400, "OriginalMessage": "too long"}, (400, b"too long")),
        (424, {"OriginalStatusCode": 0, "OriginalMessage": ""}, (502, b"")),
        (424, {"OriginalStatusCode": 200}, (502, b"")),
        (500, [], (500, None)),
    ],
)
def test_errors_mean_what_the_container_said(
    status: int, body: Any, wanted: tuple[int, bytes | None]
) -> None:
    raw = json.dumps(body).encode()
    found, words = meant(status, raw)
    assert (found, words) == (wanted[0], raw if wanted[1] is None else wanted[1])


@pytest.mark.parametrize(
    ("said", "reason"),
    [
        ("Signature expired: 20150830T123600Z is now earlier than 20150830T124500Z", "clock"),
        ("Signature not yet current: 20150830T123600Z is still later than 2015", "clock"),
        ("The security token included in the request is expired", "session"),
    ],
)
def test_what_an_operator_can_mend_is_said(said: str, reason: str) -> None:
    with pytest.raises(UpstreamRefused, match=reason) as caught:
        meant(403, json.dumps({"message": said}).encode())
    assert caught.value.status == 403
    assert "2015" not in caught.value.message
