"""Messages requests as chats, chats' answers as messages, and faults by the client's names."""

import itertools
import json
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tiffin.dialects.anthropic.counting import CountAsked, read_count
from tiffin.dialects.anthropic.dialect import MessagesAsked, MessagesDialect, read_message_request
from tiffin.dialects.anthropic.errors import error_response, stream_error_event
from tiffin.dialects.dialect import Told
from tiffin.errors import (
    InvalidRequest,
    Overloaded,
    QuotaExceeded,
    SchemaViolation,
    TiffinError,
    UnsupportedParameter,
    UpstreamFailed,
    every_error,
)
from tiffin.testing.exchange import FakeExchange
from tiffin.types.snapshot import Plan, Target
from tiffin.types.usage import Usage

LOCAL = Target(model="m", revision="r", kind="llamacpp")
REMOTE = Target(model="m", revision="r", kind="remote", upstream_model="theirs")
NATIVE = Target(
    model="m", revision="r", kind="remote", protocol="anthropic", upstream_model="claude"
)
HI = [{"role": "user", "content": "hi"}]
TOOL = {"name": "weather", "input_schema": {"type": "object", "properties": {}}}
DIALECT = MessagesDialect(read_message_request)


def exchange(**headers: str) -> FakeExchange:
    lines = [(name.replace("_", "-").encode(), value.encode()) for name, value in headers.items()]
    return FakeExchange(b"POST", b"/v1/messages", headers=lines)


def asked(target: Target = REMOTE, **fields: Any) -> MessagesAsked:
    body = {"model": "m", "max_tokens": 9, "messages": HI, **fields}
    found = DIALECT.read(exchange(), json.dumps(body).encode())
    assert isinstance(found, MessagesAsked)
    found.check(Plan(name="m", identity="", targets=(target,)))
    return found


def chat(target: Target = REMOTE, **fields: Any) -> dict[str, Any]:
    """The chat that a request becomes."""
    found: dict[str, Any] = msgspec.json.decode(asked(target, **fields).forward(target).body)
    return found


def block(kind: str, **fields: Any) -> dict[str, Any]:
    return {"type": kind, **fields}


def test_a_conversation_with_tools_becomes_a_chat() -> None:
    turns = [
        {"role": "user", "content": [block("text", text="Weather?")]},
        {
            "role": "assistant",
            "content": [
                block("thinking", thinking="hm", signature="s"),
                block("text", text="Let me see."),
                block("tool_use", id="t1", name="weather", input={"city": "Pune"}),
                block("tool_use", id="t2", name="weather", input={"city": "Goa"}),
            ],
        },
        {
            "role": "user",
            "content": [
                block("tool_result", tool_use_id="t1", content="31 degrees"),
                block(
                    "tool_result",
                    tool_use_id="t2",
                    is_error=True,
                    content=[block("text", text="no "), block("text", text="such city")],
                ),
                block("text", text="So?", cache_control={"type": "ephemeral"}),
            ],
        },
    ]
    found = chat(
        messages=turns,
        system=[block("text", text="Be brief.")],
        tools=[TOOL],
        tool_choice={"type": "any", "disable_parallel_tool_use": True},
        stop_sequences=["END"],
        metadata={"user_id": "asha"},
    )
    call = {"name": "weather", "arguments": '{"city":"Pune"}'}
    other = {"name": "weather", "arguments": '{"city":"Goa"}'}
    assert found["messages"] == [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": "Weather?"},
        {
            "role": "assistant",
            "content": "Let me see.",
            "tool_calls": [
                {"id": "t1", "type": "function", "function": call},
                {"id": "t2", "type": "function", "function": other},
            ],
        },
        {"role": "tool", "content": "31 degrees", "tool_call_id": "t1"},
        {"role": "tool", "content": "Error: no such city", "tool_call_id": "t2"},
        {"role": "user", "content": "So?"},
    ]
    function = {"name": "weather", "parameters": TOOL["input_schema"]}
    assert found["tools"] == [{"type": "function", "function": function}]
    assert (found["tool_choice"], found["parallel_tool_calls"]) == ("required", False)
    assert (found["stop"], found["user"], found["max_tokens"]) == (["END"], "asha", 9)
    assert found["model"] == "theirs"


def test_images_go_where_a_model_sees_and_are_refused_by_place_where_none_does() -> None:
    source = {"type": "base64", "media_type": "image/png", "data": "aGk="}
    content = [
        block("tool_result", tool_use_id="t", content="x"),
        block("text", text="What is it?"),
        block("image", source=source),
    ]
    messages = [{"role": "user", "content": content}]
    [_, said] = chat(messages=messages)["messages"]
    assert said["content"][1]["image_url"] == {"url": "data:image/png;base64,aGk="}
    with pytest.raises(UnsupportedParameter) as refused:
        asked(LOCAL, messages=messages)
    assert refused.value.param == "messages[0].content[2].type"
    assert asked(messages=messages).extent().images == 1


def test_a_schema_for_the_answer_is_passed_on() -> None:
    schema = {"type": "object", "properties": {}}
    found = chat(output_config={"format": {"type": "json_schema", "schema": schema}})
    assert found["response_format"]["json_schema"]["schema"] == schema


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"top_k": 5}, "top_k"),
        ({"thinking": {"type": "enabled", "budget_tokens": 2000}}, "thinking"),
        ({"tools": [{"type": "web_search_20250305", "name": "web_search"}]}, "tools[0].type"),
        ({"tools": [TOOL, {**TOOL, "name": "b", "strict": True}]}, "tools[1].strict"),
        ({"tools": [{"name": "a"}]}, "tools[0].input_schema"),
        ({"tools": [{**TOOL, "input_schema": {"type": "array"}}]}, "tools[0].input_schema.type"),
        ({"tools": [TOOL], "tool_choice": {"type": "tool", "name": "no"}}, "tool_choice.name"),
        ({"tools": [TOOL], "tool_choice": {"type": "maybe"}}, "tool_choice"),
        ({"stop_sequences": list("abcde")}, "stop_sequences"),
        ({"output_config": {"format": {"type": "json"}}}, "output_config.format"),
        ({"output_config": {"effort": "high"}}, "output_config.effort"),
        ({"messages": [*HI, {"role": "assistant", "content": "A"}]}, "messages[1].role"),
        ({"messages": [{"role": "tool", "content": "A"}]}, "messages[0].role"),
        ({"messages": [{"role": "user", "content": []}]}, "messages[0].content"),
        ({"messages": [{"role": "user", "content": [block("document")]}]}, None),
        (
            {"messages": [{"role": "user", "content": [block("tool_result", content="")]}]},
            "messages[0].content[0].tool_use_id",
        ),
        ({"temperature": 1.5}, "temperature"),
        ({"max_tokens": None}, "max_tokens"),
        ({"sytem": "x"}, "sytem"),
    ],
)
def test_what_a_chat_cannot_honour_is_refused_by_its_own_name(
    fields: dict[str, Any], param: str | None
) -> None:
    with pytest.raises(InvalidRequest) as refused:
        asked(LOCAL, **fields)
    assert refused.value.param == (param or "messages[0].content[0].type")
    assert refused.value.param.split(".")[0] in refused.value.message


@pytest.mark.parametrize(
    "fields",
    [
        {"thinking": {"type": "disabled"}, "service_tier": "auto", "speed": "standard"},
        {"tools": [{**TOOL, "type": "custom", "defer_loading": False}]},
        {"tool_choice": {"type": "auto"}},
        {"system": ""},
    ],
)
def test_what_asks_for_nothing_is_honoured_by_every_model(fields: dict[str, Any]) -> None:
    asked(LOCAL, **fields)


def test_anthropics_own_models_are_sent_what_was_asked() -> None:
    fields = {
        "thinking": {"type": "enabled", "budget_tokens": 2000},
        "tools": [{"type": "web_search_20250305", "name": "web_search", "max_uses": 2}],
        "top_k": 5,
    }
    path, content, body = asked(NATIVE, **fields).forward(NATIVE)
    assert path == b"/messages"
    assert content == b"content-type: application/json\r\nanthropic-version: 2026-10-21\r\n"
    wanted = {"model": "claude", "max_tokens": 9, "messages": HI, **fields}
    assert msgspec.json.decode(body) == wanted


@pytest.mark.parametrize(
    ("beta", "passed"), [("a-2025-01-01,b", True), ("a\tb", False), ("x" * 600, False)]
)
def test_betas_go_with_a_request_to_anthropic(beta: str, passed: bool) -> None:
    body = json.dumps({"model": "m", "max_tokens": 9, "messages": HI}).encode()
    found = DIALECT.read(exchange(anthropic_beta=beta), body)
    found.check(Plan(name="m", identity="", targets=(NATIVE,)))
    assert (b"anthropic-beta: " in found.forward(NATIVE).headers) is passed


@pytest.mark.parametrize("version", ["2023-06-01", "2026-10-21"])
def test_versions_that_are_known_go_with_a_request_to_anthropic(version: str) -> None:
    body = json.dumps({"model": "m", "max_tokens": 9, "messages": HI}).encode()
    found = DIALECT.read(exchange(anthropic_version=version), body)
    found.check(Plan(name="m", identity="", targets=(NATIVE,)))
    assert b"anthropic-version: %b\r\n" % version.encode() in found.forward(NATIVE).headers


def test_a_version_that_is_not_known_is_refused() -> None:
    with pytest.raises(InvalidRequest, match="anthropic-version must be 2023-06-01 or 2026"):
        DIALECT.read(exchange(anthropic_version="2099-01-01"), b"{}")


def whole(**message: Any) -> dict[str, Any]:
    choice = {"index": 0, "message": {"role": "assistant", **message}, "finish_reason": "stop"}
    usage = {
        "prompt_tokens": 20,
        "completion_tokens": 3,
        "prompt_tokens_details": {"cached_tokens": 16},
    }
    return {"choices": [choice], "usage": usage}


def answered(told: dict[str, Any], **fields: Any) -> dict[str, Any]:
    found = asked(**fields).whole(Told(json.dumps(told).encode(), b"application/json"), REMOTE)
    assert found.usage.prompt_tokens == 20
    message: dict[str, Any] = msgspec.json.decode(found.body)
    return message


def test_a_whole_answer_becomes_a_message() -> None:
    call = {"id": "t1", "type": "function", "function": {"name": "weather", "arguments": "{}"}}
    told = whole(content="See:", tool_calls=[call])
    told["choices"][0]["finish_reason"] = "tool_calls"
    found = answered(told)
    assert found.pop("id").startswith("msg_")
    assert found == {
        "type": "message",
        "role": "assistant",
        "model": "m",
        "content": [
            {"type": "text", "text": "See:"},
            {"type": "tool_use", "id": "t1", "name": "weather", "input": {}},
        ],
        "stop_reason": "tool_use",
        "stop_sequence": None,
        "usage": {
            "input_tokens": 4,
            "cache_creation_input_tokens": 0,
            "cache_read_input_tokens": 16,
            "output_tokens": 3,
        },
    }


@pytest.mark.parametrize(
    ("finish", "matched", "reason"),
    [
        ("stop", None, ("end_turn", None)),
        ("stop", "END", ("stop_sequence", "END")),
        ("stop", 128001, ("end_turn", None)),
        ("length", None, ("max_tokens", None)),
        ("content_filter", None, ("refusal", None)),
    ],
)
def test_why_it_ended_is_told(finish: str, matched: Any, reason: tuple[str, str | None]) -> None:
    told = whole(content="x")
    told["choices"][0] |= {"finish_reason": finish, "stop_reason": matched}
    found = answered(told, stop_sequences=["END"])
    assert (found["stop_reason"], found["stop_sequence"]) == reason


@pytest.mark.parametrize("arguments", ["[]", "{", "null"])
def test_a_call_without_an_object_is_no_answer(arguments: str) -> None:
    call = {"id": "t1", "type": "function", "function": {"name": "a", "arguments": arguments}}
    with pytest.raises(UpstreamFailed, match="arguments"):
        answered(whole(tool_calls=[call]))


def chunk(**delta: Any) -> bytes:
    finish = delta.pop("finish_reason", None)
    choice = {"index": 0, "delta": delta, "finish_reason": finish}
    return b"data: %b\n\n" % json.dumps({"choices": [choice], "usage": None}).encode()


def part(index: int, name: str = "", arguments: str = "") -> dict[str, Any]:
    function = {"name": name or None, "arguments": arguments}
    return {"index": index, "id": f"t{index}" if name else None, "function": function}


STREAM = (
    chunk(role="assistant", content="")
    + chunk(content="Let ")
    + chunk(content="me see.")
    + chunk(tool_calls=[part(0, "weather")])
    + chunk(tool_calls=[part(0, arguments='{"city":')])
    + chunk(tool_calls=[part(0, arguments='"Pune"}')])
    + chunk(tool_calls=[part(1, "weather", "{}")])
    + chunk(finish_reason="tool_calls")
    + b'data: {"choices":[],"usage":{"prompt_tokens":7,"completion_tokens":5}}\n\n'
    + b"data: [DONE]\n\n"
)


def events_of(stream: bytes) -> list[dict[str, Any]]:
    events = []
    for event in stream.split(b"\n\n"):
        if event:
            name, _, payload = event.partition(b"\n")
            told = json.loads(payload.removeprefix(b"data: "))
            assert name == b"event: " + told["type"].encode()
            events.append(told)
    return events


@given(st.lists(st.integers(1, len(STREAM) - 1), max_size=12))
def test_a_stream_becomes_typed_events_however_it_is_cut(cuts: list[int]) -> None:
    reading = asked(stream=True).reading(REMOTE)
    reading.priced = lambda usage: f"{usage.completion_tokens} INR"
    ends = [*sorted(cuts), len(STREAM)]
    starts = [0, *ends[:-1]]
    out = b"".join(reading.feed(STREAM[a:b]) for a, b in zip(starts, ends, strict=True) if a < b)
    assert reading.done
    assert reading.error is None
    events = events_of(out)
    assert [event["type"] for event in events] == [
        "message_start",
        "ping",
        "content_block_start",
        "content_block_delta",
        "content_block_delta",
        "content_block_stop",
        "content_block_start",
        "content_block_delta",
        "content_block_delta",
        "content_block_stop",
        "content_block_start",
        "content_block_delta",
        "content_block_stop",
        "message_delta",
        "message_stop",
    ]
    assert events[0]["message"]["content"] == []
    starts_of = [event for event in events if event["type"] == "content_block_start"]
    assert [one["index"] for one in starts_of] == [0, 1, 2]
    assert starts_of[1]["content_block"]["id"] == "t0"
    assert events[-2]["delta"] == {"stop_reason": "tool_use", "stop_sequence": None}
    used = events[-2]["usage"]
    assert (used["input_tokens"], used["output_tokens"]) == (7, 5)
    assert used["tiffin"] == {"cost": "5 INR"}
    assert asked(stream=True).answer_text(out).split("\n") == [
        "Let me see.",
        'weather{"city":"Pune"}',
        "weather{}",
    ]


def test_nothing_is_said_before_there_is_content() -> None:
    reading = asked(stream=True).reading(REMOTE)
    assert reading.feed(chunk(role="assistant", content="")) == b""
    assert not reading.content
    assert reading.feed(chunk(content="a")).startswith(b"event: message_start")
    assert reading.content


def test_an_empty_answer_is_a_message_without_blocks() -> None:
    reading = asked(stream=True).reading(REMOTE)
    out = reading.feed(chunk(finish_reason="stop") + b"data: [DONE]\n\n")
    kinds = [event["type"] for event in events_of(out)]
    assert kinds == ["message_start", "ping", "message_delta", "message_stop"]


@pytest.mark.parametrize(
    "bad",
    [
        chunk(tool_calls=[part(0, "a")])
        + chunk(tool_calls=[part(1, "b")])
        + chunk(tool_calls=[part(0, arguments="{}")]),
        chunk(content="a").replace(b'"index": 0', b'"index": 1'),
        b'data: {"error":{"message":"it broke"}}\n\n',
        b"data: nonsense\n\n",
    ],
)
def test_what_no_message_can_be_made_of_ends_in_an_error(bad: bytes) -> None:
    reading = asked(stream=True).reading(REMOTE)
    reading.feed(chunk(content="a") + bad)
    assert isinstance(reading.error, UpstreamFailed)
    assert not reading.done


OWN_EVENTS: tuple[dict[str, Any], ...] = (
    {
        "type": "message_start",
        "message": {
            "type": "message",
            "content": [],
            "usage": {"input_tokens": 4, "cache_read_input_tokens": 10, "output_tokens": 1},
        },
    },
    {"type": "ping"},
    {"type": "content_block_start", "index": 0, "content_block": block("text", text="")},
    {"type": "content_block_delta", "index": 0, "delta": block("text_delta", text="Hi")},
    {"type": "content_block_stop", "index": 0},
    {
        "type": "message_delta",
        "delta": {"stop_reason": "end_turn"},
        "usage": {"output_tokens": 12},
    },
    {"type": "message_stop"},
)
OWN = b"".join(
    b"event: %b\ndata: %b\n\n" % (told["type"].encode(), json.dumps(told).encode())
    for told in OWN_EVENTS
)


@pytest.mark.parametrize("ends", [b"\n", b"\r\n"], ids=["lf", "crlf"])
@given(st.lists(st.integers(1, len(OWN) - 1), max_size=8))
def test_anthropics_own_stream_is_passed_on_as_it_is(ends: bytes, cuts: list[int]) -> None:
    stream = OWN.replace(b"\n", ends)
    reading = asked(NATIVE, stream=True).reading(NATIVE)
    places = [0, *sorted(cuts), len(stream)]
    out = b"".join(reading.feed(stream[a:b]) for a, b in itertools.pairwise(places) if a < b)
    assert out == OWN
    assert reading.done
    assert reading.usage == Usage(prompt_tokens=14, completion_tokens=12, cached_tokens=10)


def test_a_cut_stream_of_anthropics_is_no_whole_one() -> None:
    reading = asked(NATIVE, stream=True).reading(NATIVE)
    reading.feed(OWN[: OWN.index(b"event: message_delta")])
    reading.feed(b"")
    assert reading.content
    assert not reading.done
    assert reading.usage == Usage(
        prompt_tokens=14, completion_tokens=1, cached_tokens=10, measured=False
    )


def test_an_error_in_anthropics_stream_is_told_and_not_passed_on() -> None:
    reading = asked(NATIVE, stream=True).reading(NATIVE)
    told = {"type": "error", "error": {"type": "overloaded_error", "message": "Overloaded"}}
    assert reading.feed(b"event: error\ndata: %b\n\n" % json.dumps(told).encode()) == b""
    assert isinstance(reading.error, UpstreamFailed)
    assert "Overloaded" in reading.error.message


def test_anthropics_own_answer_is_passed_on_and_counted() -> None:
    usage = {
        "input_tokens": 4,
        "cache_read_input_tokens": 10,
        "cache_creation_input_tokens": 6,
        "output_tokens": 2,
    }
    body = json.dumps({"type": "message", "content": [], "usage": usage}).encode()
    found = asked(NATIVE).whole(Told(body, b"application/json"), NATIVE)
    assert found.body == body
    assert found.usage == Usage(prompt_tokens=20, completion_tokens=2, cached_tokens=10)
    with pytest.raises(UpstreamFailed):
        asked(NATIVE).whole(Told(b'{"type":"other"}', b""), NATIVE)


def test_tokens_are_counted_by_the_model_itself() -> None:
    body = json.dumps({"model": "m", "messages": HI, "system": "s", "tools": [TOOL]}).encode()
    found: CountAsked = read_count(exchange(), body)
    found.check(Plan(name="m", identity="", targets=(LOCAL,)))
    path, _, sent = found.forward(LOCAL)
    told = msgspec.json.decode(sent)
    assert path == b"/tokenize"
    assert [message["role"] for message in told["messages"]] == ["system", "user"]
    assert told["tools"][0]["function"]["name"] == "weather"
    answer = found.whole(Told(b'{"count":12,"tokens":[]}', b""), LOCAL)
    assert msgspec.json.decode(answer.body) == {"input_tokens": 12}
    found.check(Plan(name="m", identity="", targets=(NATIVE,)))
    assert found.forward(NATIVE).path == b"/messages/count_tokens"
    with pytest.raises(UpstreamFailed):
        found.whole(Told(b'{"count":12}', b""), NATIVE)


@pytest.mark.parametrize("cls", every_error(), ids=lambda cls: cls.slug)
def test_every_error_has_anthropics_shape(cls: type[TiffinError]) -> None:
    error = cls("what happened")
    status, _, body = error_response(error)
    told = json.loads(body)
    assert told["type"] == "error"
    assert set(told["error"]) == {"type", "message"}
    assert 400 <= status < 600
    assert json.loads(stream_error_event(error).partition(b"data: ")[2]) == told


@pytest.mark.parametrize(
    ("error", "status", "kind"),
    [
        (Overloaded("full"), 529, "overloaded_error"),
        (QuotaExceeded("spent"), 402, "billing_error"),
        (SchemaViolation("wrong"), 400, "invalid_request_error"),
        (UpstreamFailed("broke"), 502, "api_error"),
    ],
)
def test_errors_have_the_types_that_clients_know(
    error: TiffinError, status: int, kind: str
) -> None:
    found, _, body = error_response(error)
    assert (found, json.loads(body)["error"]["type"]) == (status, kind)
