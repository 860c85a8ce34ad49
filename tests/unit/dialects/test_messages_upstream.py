"""Chats as Anthropic is asked them, and its answers as a chat's."""

import itertools
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.dialects.test_messages import OWN, OWN_EVENTS
from tests.unit.dialects.test_profiles import target
from tiffin.dialects.anthropic.chat_answers import ChunksOfEvents, completion
from tiffin.dialects.anthropic.upstream import message_request
from tiffin.dialects.openai.text import TextEndpoint
from tiffin.dialects.openai.usage import StreamScanner, read_whole
from tiffin.errors import InvalidRequest, UpstreamFailed
from tiffin.testing.exchange import FakeExchange
from tiffin.types.snapshot import Plan
from tiffin.types.usage import Usage

CHAT = TextEndpoint("chat", b"/v1/chat/completions")
HI = [{"role": "user", "content": "hi"}]
SCHEMA = {"type": "object", "properties": {"city": {"type": "string"}}}
FUNCTION = {"name": "weather", "description": "Of a city", "parameters": SCHEMA}
TOOLS = [{"type": "function", "function": FUNCTION}]


def sent(**fields: Any) -> dict[str, Any]:
    """What Anthropic is asked for a chat with these fields."""
    body, _ = message_request(json.dumps({"model": "claude", "messages": HI, **fields}).encode())
    told: dict[str, Any] = json.loads(body)
    return told


def text(said: str) -> dict[str, Any]:
    return {"type": "text", "text": said}


def test_a_conversation_with_tools() -> None:
    call = {
        "id": "t1",
        "type": "function",
        "function": {"name": "weather", "arguments": '{"city":"Pune"}'},
    }
    odd = {"id": "t2", "type": "function", "function": {"name": "weather", "arguments": "Goa"}}
    found = sent(
        messages=[
            {"role": "system", "content": "Be brief."},
            {"role": "user", "content": [text("Weather?"), text("")]},
            {"role": "assistant", "content": "", "tool_calls": [call, odd]},
            {"role": "tool", "tool_call_id": "t1", "content": "31"},
            {"role": "tool", "tool_call_id": "t2", "content": "none"},
            {"role": "developer", "content": "Be kind."},
            {"role": "user", "content": "So?"},
        ],
        tools=TOOLS,
        tool_choice="required",
        parallel_tool_calls=False,
        max_completion_tokens=7,
        stop="END",
        user="asha",
        stream=True,
    )
    assert found == {
        "model": "claude",
        "max_tokens": 7,
        "system": [text("Be brief."), text("Be kind.")],
        "messages": [
            {"role": "user", "content": [text("Weather?")]},
            {
                "role": "assistant",
                "content": [
                    {"type": "tool_use", "id": "t1", "name": "weather", "input": {"city": "Pune"}},
                    {
                        "type": "tool_use",
                        "id": "t2",
                        "name": "weather",
                        "input": {"arguments": "Goa"},
                    },
                ],
            },
            {
                "role": "user",
                "content": [
                    {"type": "tool_result", "tool_use_id": "t1", "content": [text("31")]},
                    {"type": "tool_result", "tool_use_id": "t2", "content": [text("none")]},
                    text("So?"),
                ],
            },
        ],
        "stream": True,
        "stop_sequences": ["END"],
        "metadata": {"user_id": "asha"},
        "tools": [{"name": "weather", "description": "Of a city", "input_schema": SCHEMA}],
        "tool_choice": {"type": "any", "disable_parallel_tool_use": True},
    }


@pytest.mark.parametrize(
    ("choice", "told"),
    [
        ("auto", {"type": "auto"}),
        ("none", {"type": "none"}),
        (
            {"type": "function", "function": {"name": "weather"}},
            {"type": "tool", "name": "weather"},
        ),
    ],
)
def test_which_tool_is_to_be_used(choice: Any, told: dict[str, Any]) -> None:
    assert sent(tools=TOOLS, tool_choice=choice)["tool_choice"] == told


def test_images_and_schemas() -> None:
    content = [
        {"type": "image_url", "image_url": {"url": "data:image/png;base64,aGk="}},
        {"type": "image_url", "image_url": {"url": "https://example.com/a.png"}},
    ]
    named = {"name": "x", "schema": SCHEMA}
    found = sent(
        messages=[{"role": "user", "content": content}],
        response_format={"type": "json_schema", "json_schema": named},
    )
    sources = [block["source"] for block in found["messages"][0]["content"]]
    assert sources == [
        {"type": "base64", "media_type": "image/png", "data": "aGk="},
        {"type": "url", "url": "https://example.com/a.png"},
    ]
    assert found["output_config"] == {"format": {"type": "json_schema", "schema": SCHEMA}}
    assert found["max_tokens"] == 4096


@pytest.mark.parametrize(
    ("fields", "version"),
    [({}, b"2026-10-21"), ({"temperature": 0}, b"2023-06-01"), ({"top_p": 0.5}, b"2023-06-01")],
)
def test_the_version_is_one_that_takes_what_is_asked(
    fields: dict[str, Any], version: bytes
) -> None:
    body = json.dumps({"model": "claude", "messages": HI, **fields}).encode()
    assert message_request(body)[1] == version


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"temperature": 1.5}, "temperature"),
        ({"n": 2}, "n"),
        ({"seed": 1}, "seed"),
        ({"response_format": {"type": "json_object"}}, "response_format.type"),
    ],
)
def test_what_it_cannot_do_is_refused_before_it_is_asked(
    fields: dict[str, Any], param: str
) -> None:
    body = json.dumps({"model": "m", "messages": HI, **fields}).encode()
    asked = CHAT.read(FakeExchange(b"POST", b"/"), body)
    with pytest.raises(InvalidRequest) as refused:
        asked.check(Plan(name="m", identity="", targets=(target("anthropic"),)))
    assert refused.value.param == param


def test_a_whole_answer() -> None:
    usage = {
        "input_tokens": 4,
        "cache_read_input_tokens": 10,
        "cache_creation_input_tokens": 6,
        "output_tokens": 5,
        "output_tokens_details": {"thinking_tokens": 2},
    }
    content = [
        {"type": "thinking", "thinking": "hm", "signature": "s"},
        text("See:"),
        {"type": "tool_use", "id": "t1", "name": "weather", "input": {"city": "Pune"}},
    ]
    message = {"id": "msg_1", "model": "claude", "content": content, "usage": usage}
    body = completion(json.dumps({**message, "stop_reason": "tool_use"}).encode(), 7)
    told = json.loads(body)
    [choice] = told["choices"]
    assert choice["finish_reason"] == "tool_calls"
    assert choice["message"]["content"] == "See:"
    assert choice["message"]["reasoning_content"] == "hm"
    [call] = choice["message"]["tool_calls"]
    assert (call["id"], json.loads(call["function"]["arguments"])) == ("t1", {"city": "Pune"})
    assert told["usage"]["prompt_tokens_details"]["cache_write_tokens"] == 6
    assert read_whole(body, chosen=True) == Usage(
        prompt_tokens=20, completion_tokens=5, cached_tokens=10, reasoning_tokens=2
    )


@pytest.mark.parametrize("body", [b"", b"{}", b'{"content":1}'])
def test_what_is_no_message_is_no_answer(body: bytes) -> None:
    with pytest.raises(UpstreamFailed):
        completion(body, 7)


def stream(*told: dict[str, Any]) -> bytes:
    return b"".join(
        b"event: %b\ndata: %b\n\n" % (one["type"].encode(), json.dumps(one).encode())
        for one in told
    )


CALLING = stream(
    *OWN_EVENTS[:5],
    {
        "type": "content_block_start",
        "index": 1,
        "content_block": {"type": "tool_use", "id": "t1", "name": "weather", "input": {}},
    },
    {
        "type": "content_block_delta",
        "index": 1,
        "delta": {"type": "input_json_delta", "partial_json": '{"city":'},
    },
    {
        "type": "content_block_delta",
        "index": 1,
        "delta": {"type": "input_json_delta", "partial_json": '"Pune"}'},
    },
    {"type": "content_block_stop", "index": 1},
    {"type": "message_delta", "delta": {"stop_reason": "tool_use"}, "usage": {"output_tokens": 9}},
    {"type": "message_stop"},
)


@given(st.lists(st.integers(1, len(CALLING) - 1), max_size=10))
def test_a_stream_becomes_a_chats_however_it_is_cut(cuts: list[int]) -> None:
    chunks, scanner = ChunksOfEvents(7), StreamScanner()
    places = [0, *sorted(cuts), len(CALLING)]
    out = b"".join(chunks.feed(CALLING[a:b]) for a, b in itertools.pairwise(places) if a < b)
    assert scanner.feed(out) == out
    assert scanner.done
    assert scanner.usage == Usage(prompt_tokens=14, completion_tokens=9, cached_tokens=10)
    told = [json.loads(one[6:]) for one in out.split(b"\n\n")[:-2]]
    deltas = [one["choices"][0]["delta"] for one in told if one["choices"]]
    assert "".join(delta.get("content", "") for delta in deltas) == "Hi"
    calls = [call for delta in deltas for call in delta.get("tool_calls", ())]
    assert "".join(call["function"]["arguments"] for call in calls) == '{"city":"Pune"}'
    assert (calls[0]["id"], {call["index"] for call in calls}) == ("t1", {0})
    assert told[-2]["choices"][0]["finish_reason"] == "tool_calls"


@pytest.mark.parametrize("end", [b"event: message_delta", b"event: message_stop"])
def test_a_stream_that_is_cut_is_never_whole(end: bytes) -> None:
    chunks, scanner = ChunksOfEvents(7), StreamScanner()
    scanner.feed(chunks.feed(OWN[: OWN.index(end)]) + chunks.feed(b""))
    scanner.feed(b"")
    assert scanner.content
    assert not scanner.done


def test_an_error_in_a_stream_is_the_upstreams() -> None:
    chunks, scanner = ChunksOfEvents(7), StreamScanner()
    error = {"type": "error", "error": {"type": "overloaded_error", "message": "Overloaded"}}
    scanner.feed(chunks.feed(stream(*OWN_EVENTS[:4], error)))
    assert isinstance(scanner.error, UpstreamFailed)
    assert "Overloaded" in scanner.error.message


def test_what_is_no_event_breaks_the_answer() -> None:
    with pytest.raises(UpstreamFailed):
        ChunksOfEvents(7).feed(b"data: nonsense\n\n")
