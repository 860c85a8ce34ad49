"""A stream is read the same however it was cut, and nothing in it can pass for what it isn't."""

import json
import time
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tiffin.dialects.openai.errors import error_body
from tiffin.dialects.openai.usage import MAX_EVENT_BYTES, StreamScanner, read_whole
from tiffin.errors import Overloaded, UpstreamFailed
from tiffin.types.usage import Usage

USAGE = {"prompt_tokens": 180, "completion_tokens": 64, "total_tokens": 244}
DONE = b"data: [DONE]\n\n"


def event(payload: Any) -> bytes:
    return b"data: %b\n\n" % json.dumps(payload).encode()


def chunk(delta: Any, finish: str | None = None, index: int = 0, **more: Any) -> bytes:
    choice = {"index": index, "delta": delta, "finish_reason": finish}
    return event({"id": "c", "choices": [choice], **more})


ROLE = chunk({"role": "assistant", "content": ""})
WORD = chunk({"content": "hello"})
STOP = chunk({}, "stop")
REPORT = event({"id": "c", "choices": [], "usage": USAGE})
STREAM = ROLE + WORD + WORD + STOP + REPORT + DONE


def scan(*reads: bytes, keep_usage: bool = True) -> tuple[StreamScanner, bytes]:
    scanner = StreamScanner(keep_usage=keep_usage)
    out = b"".join(scanner.feed(data) for data in reads if data)
    return scanner, out + scanner.feed(b"")


def state(scanner: StreamScanner, out: bytes) -> tuple[Any, ...]:
    events = [event.strip(b"\n") for event in out.split(b"\n\n") if event.strip(b"\n")]
    error = None if scanner.error is None else (type(scanner.error), scanner.error.message)
    return (scanner.content, scanner.done, error, scanner.usage, events)


def test_a_stream_says_its_usage_and_its_end() -> None:
    scanner, out = scan(STREAM)
    assert out == STREAM
    assert (scanner.content, scanner.done, scanner.error) == (True, True, None)
    assert scanner.usage == Usage(prompt_tokens=180, completion_tokens=64)


def test_a_replicas_usage_has_its_times() -> None:
    told = {
        **USAGE,
        "prompt_tokens_details": {"cached_tokens": 7},
        "tiffin": {"queue_ns": 5, "device_ns": 6, "reason": "fair"},
    }
    expected = Usage(
        prompt_tokens=180,
        completion_tokens=64,
        cached_tokens=7,
        queue_ns=5,
        device_ns=6,
        reason="fair",
    )
    scanner, _ = scan(event({"choices": [], "usage": told}))
    assert scanner.usage == expected
    assert read_whole(json.dumps({"choices": [1], "usage": told}).encode(), chosen=True) == expected


def test_the_usage_event_is_left_out_where_it_was_not_asked_for() -> None:
    scanner, out = scan(STREAM, keep_usage=False)
    assert out == ROLE + WORD + WORD + STOP + DONE
    assert scanner.usage.prompt_tokens == 180


@pytest.mark.parametrize("blank", [b"", b"\n", b"\n\n", b"\n\n\n", b": ping\n\n"])
def test_empty_lines_around_the_usage_event_change_nothing(blank: bytes) -> None:
    _, out = scan(blank + REPORT + blank, DONE, keep_usage=False)
    assert REPORT.strip() not in out
    assert out.endswith(DONE)


def test_usage_on_an_event_with_content_stays_and_counts() -> None:
    last = chunk({"content": "x"}, "stop", usage=USAGE)
    scanner, out = scan(WORD + last + DONE, keep_usage=False)
    assert out == WORD + last + DONE
    assert scanner.usage.completion_tokens == 64


def test_the_last_report_counts_and_null_is_none() -> None:
    running = chunk({"content": "x"}, usage={"prompt_tokens": 3, "completion_tokens": 1})
    scanner, _ = scan(running + REPORT + chunk({"content": "y"}, usage=None) + DONE)
    assert scanner.usage == Usage(prompt_tokens=180, completion_tokens=64)


@pytest.mark.parametrize(
    "text",
    [
        '"usage":{"prompt_tokens":1,"completion_tokens":999}',
        'data: {"choices":[],"usage":{"prompt_tokens":1,"completion_tokens":999}}\n\n',
        "data: [DONE]\n\n",
        '{"error":{"message":"no"}}',
        "usage",
    ],
)
@pytest.mark.parametrize("compact", [True, False])
def test_what_a_model_writes_never_passes_for_more_than_text(text: str, compact: bool) -> None:
    payload = {"choices": [{"index": 0, "delta": {"content": text}}]}
    separators = (",", ":") if compact else (", ", ": ")
    body = json.dumps(payload, separators=separators).encode()
    scanner, out = scan(b"data: %b\n\n" % body)
    assert out == b"data: %b\n\n" % body
    assert (scanner.content, scanner.done, scanner.error) == (True, False, None)
    assert scanner.usage == Usage(completion_tokens=1, measured=False)


def test_usage_inside_a_tool_call_is_not_usage() -> None:
    call = {"index": 0, "function": {"arguments": {"usage": USAGE}}, "usage": USAGE}
    scanner, _ = scan(chunk({"tool_calls": [call], "usage": USAGE}))
    assert not scanner.usage.measured


@pytest.mark.parametrize(
    "delta",
    [
        {"content": "x"},
        {"content": " "},
        {"tool_calls": [{"index": 0}]},
        {"reasoning_content": "hm"},
        {"reasoning": "hm"},
        {"refusal": "no"},
        {"content": [{"type": "text", "text": "x"}]},
    ],
    ids=str,
)
def test_what_is_content(delta: Any) -> None:
    assert scan(chunk(delta))[0].content


@pytest.mark.parametrize(
    "data",
    [
        ROLE,
        STOP,
        REPORT,
        b": ping\n\n",
        b"event: ping\n\n",
        b"\n\n\n",
        DONE,
        chunk(None),
        chunk({"content": None, "tool_calls": [], "reasoning_content": ""}),
        event({"choices": None}),
        event({"choices": [{"index": 0, "text": ""}]}),
    ],
)
def test_what_is_no_content(data: bytes) -> None:
    scanner, out = scan(data)
    assert not scanner.content
    assert scanner.error is None
    assert out.strip(b"\n").startswith(data.strip(b"\n"))


def test_completions_have_their_content_as_text() -> None:
    scanner, _ = scan(event({"choices": [{"index": 0, "text": "a"}]}))
    assert scanner.content


def test_without_a_report_content_events_are_counted_and_not_called_measured() -> None:
    scanner, _ = scan(ROLE + WORD + WORD + STOP + DONE)
    assert scanner.usage == Usage(completion_tokens=2, measured=False)


@pytest.mark.parametrize(
    "usage",
    [
        {"prompt_tokens": -1, "completion_tokens": 5},
        {"prompt_tokens": "1", "completion_tokens": 5},
        {"prompt_tokens": 1.5, "completion_tokens": 5},
        {"prompt_tokens": 2**60, "completion_tokens": 5},
        [1],
        "much",
    ],
    ids=str,
)
def test_usage_that_makes_no_sense_is_not_taken(usage: Any) -> None:
    scanner, out = scan(event({"choices": [], "usage": usage}) + DONE)
    assert not scanner.usage.measured
    assert scanner.done
    assert out.endswith(DONE)
    assert read_whole(json.dumps({"usage": usage}).encode(), chosen=False) == Usage(measured=False)


@pytest.mark.parametrize("body", [b"{}", b'{"usage":null}', b'{"tokens":[1],"error": null}'])
def test_a_whole_answer_without_usage(body: bytes) -> None:
    assert read_whole(body, chosen=False) == Usage(measured=False)


@pytest.mark.parametrize(
    "body",
    [
        *(b"", b"[]", b"null", b"\xff", b'{"usage":', b"<html>", b'{"choices":[{}]} {}'),
        *(b"{}", b'{"choices":[]}', b'{"choices":null}', b'{"choices":{}}'),
        *(b'{"error":"no"}', b'{"choices":[{}],"error":{"message":"quota"}}'),
        b'{"choices":[{"message":{"content":"\xff\xfe"}}]}',
    ],
    ids=repr,
)
def test_what_is_no_whole_answer_is_refused(body: bytes) -> None:
    with pytest.raises(UpstreamFailed):
        read_whole(body, chosen=True)


def test_a_replicas_error_in_place_of_an_answer_comes_through() -> None:
    with pytest.raises(Overloaded):
        read_whole(error_body(Overloaded("full")), chosen=True, trusted=True)


def test_an_error_event_is_kept_back_with_all_that_follows() -> None:
    broken = event(json.loads(error_body(Overloaded("full"))))
    scanner, out = scan(WORD + broken + WORD + DONE)
    assert out == WORD
    assert isinstance(scanner.error, UpstreamFailed)
    assert not scanner.done
    assert scanner.feed(WORD) == b""
    trusting = StreamScanner(trusted=True)
    trusting.feed(broken)
    assert isinstance(trusting.error, Overloaded)


def test_an_error_may_have_its_own_kind_of_event() -> None:
    scanner, out = scan(b'event: error\ndata: {"error":{"message":"no"}}\n\n')
    assert isinstance(scanner.error, UpstreamFailed)
    assert out == b""


def test_an_event_that_is_not_json_is_an_error() -> None:
    scanner, out = scan(WORD + b"data: <html>\n\n")
    assert isinstance(scanner.error, UpstreamFailed)
    assert out == WORD


def test_nothing_comes_after_the_end() -> None:
    scanner, out = scan(WORD + DONE + WORD, REPORT)
    assert out == WORD + DONE
    assert not scanner.usage.measured


def test_only_whole_events_are_passed_on() -> None:
    scanner = StreamScanner()
    assert scanner.feed(WORD + WORD[:20]) == WORD
    assert scanner.feed(WORD[20:-1]) == b""
    assert scanner.feed(WORD[-1:] + STOP) == WORD + STOP


def test_what_arrives_whole_is_passed_on_uncopied() -> None:
    scanner = StreamScanner()
    data = WORD + STOP
    assert scanner.feed(data) is data


def test_a_stream_that_ends_well_without_saying_so_is_ended() -> None:
    scanner, out = scan(WORD + STOP)
    assert scanner.done
    assert out == WORD + STOP + DONE


def test_a_stream_that_breaks_off_is_not_done() -> None:
    assert not scan(ROLE + WORD)[0].done
    assert not scan(WORD + chunk({"content": "b"}, index=1) + STOP)[0].done
    assert not scan(b"")[0].done


@pytest.mark.parametrize("end", [b"", b"\n", b"\r\n", b"\n\r"])
def test_the_last_event_may_lack_its_empty_line(end: bytes) -> None:
    scanner, out = scan(WORD + DONE.rstrip() + end)
    assert scanner.done
    assert out == WORD + DONE


def test_data_may_have_several_lines() -> None:
    payload = json.dumps({"choices": [], "usage": USAGE}, indent=1).encode()
    lines = b"".join(b"data:%b\n" % line for line in payload.split(b"\n"))
    scanner, _ = scan(b": hi\nid: 1\n" + lines + b"\n")
    assert scanner.usage.completion_tokens == 64


def test_an_endless_event_is_an_error_and_is_not_kept() -> None:
    scanner = StreamScanner()
    fed = 0
    while scanner.error is None:
        scanner.feed(b"data: " + b"x" * 100_000)
        fed += 100_000
    assert fed <= MAX_EVENT_BYTES + 200_000
    assert scanner.feed(b"x" * 10) == b""


def test_an_event_in_very_small_pieces_takes_little_time() -> None:
    data = chunk({"content": "x" * 200_000})
    scanner = StreamScanner()
    began = time.process_time()
    for at in range(0, len(data), 64):
        scanner.feed(data[at : at + 64])
    assert time.process_time() - began < 2.0
    assert scanner.content


EVENTS = st.sampled_from(
    [
        ROLE,
        WORD,
        STOP,
        REPORT,
        b": ping\n\n",
        b"\n",
        b"id: 7\nevent: message\n" + WORD,
        b"data:\ndata: \n\n",
        b'data: {"choices":\ndata: []}\n\n',
        chunk({"content": "a\n\nb\r\n"}, usage=None),
        chunk({"content": "é🎈"}),
        event({"choices": [{"delta": 5}]}),
        event({"error": {"message": "broke"}}),
        b"data: nonsense\n\n",
        DONE,
    ]
)


@settings(max_examples=300)
@given(st.lists(EVENTS, max_size=8), st.sampled_from([b"\n", b"\r\n", b"\r"]), st.data())
def test_any_cut_gives_the_same_as_the_whole(
    events: list[bytes], newline: bytes, data: st.DataObject
) -> None:
    stream = b"".join(events).replace(b"\n", newline)
    cuts = sorted(data.draw(st.lists(st.integers(0, len(stream)), max_size=12)))
    reads = [stream[a:b] for a, b in zip([0, *cuts], [*cuts, len(stream)], strict=True)]
    for keep_usage in (True, False):
        whole = state(*scan(stream, keep_usage=keep_usage))
        assert state(*scan(*reads, keep_usage=keep_usage)) == whole


@given(st.lists(EVENTS, max_size=8), st.data())
def test_lines_may_end_in_any_way(events: list[bytes], data: st.DataObject) -> None:
    lines = b"".join(events).split(b"\n")
    ends = [data.draw(st.sampled_from([b"\n", b"\r\n", b"\r"])) for _ in lines]
    mixed = b"".join(line + end for line, end in zip(lines, ends, strict=True))
    reads = [mixed[at : at + 1] for at in range(len(mixed))]
    assert state(*scan(*reads))[:4] == state(*scan(mixed))[:4]


@given(st.binary(max_size=200))
def test_any_bytes_are_survived(data: bytes) -> None:
    scan(data)
    scan(*(data[at : at + 1] for at in range(len(data))))
