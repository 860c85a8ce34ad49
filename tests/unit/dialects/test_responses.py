"""The Responses dialect without a server: what a chat is asked, and what its answer becomes."""

from typing import Any

import msgspec
import pytest

from tiffin.dialects.dialect import Told
from tiffin.dialects.openai.responses import ResponsesAsked, ResponsesDialect
from tiffin.dialects.openai.responses_kept import items_body, refuse_query
from tiffin.errors import (
    ContextLengthExceeded,
    InvalidRequest,
    PreviousResponseNotFound,
    TiffinError,
    UpstreamFailed,
)
from tiffin.gateway.conversations import MemoryConversations, Room
from tiffin.ports.conversations import Kept
from tiffin.ports.exchange import Exchange
from tiffin.testing.clock import FakeClock
from tiffin.testing.exchange import FakeExchange
from tiffin.types.snapshot import Plan, Target

LOCAL = Target(model="m", revision="r", kind="llamacpp", sockets=("s",))
PLAN = Plan(name="m", identity="i", targets=(LOCAL,))
WEATHER = {"type": "function", "name": "weather", "parameters": {"type": "object"}}
CALL = {"type": "function_call", "call_id": "call_1", "name": "weather", "arguments": "{}"}
USAGE = {"prompt_tokens": 7, "completion_tokens": 2, "prompt_tokens_details": {"cached_tokens": 3}}


class Desk:
    """A dialect, its memory, and requests of one tenant or another."""

    def __init__(self, room: Room | None = None) -> None:
        self.kept = MemoryConversations(FakeClock(), room)
        self.dialect = ResponsesDialect(self.kept, _tenant, FakeClock(at_ns=5_000_000_000))

    def ask(self, tenant: str = "t", **fields: Any) -> ResponsesAsked:
        exchange = FakeExchange(b"POST", b"/v1/responses", headers=[(b"who", tenant.encode())])
        body = msgspec.json.encode({"model": "m", "input": "hi", **fields})
        asked = self.dialect.read(exchange, body)
        asked.check(PLAN)
        return asked

    def answer(self, text: str | None = "hello", tenant: str = "t", **fields: Any) -> Any:
        asked = self.ask(tenant, **fields)
        whole = asked.whole(told({"content": text}), LOCAL)
        asked.settle()
        return msgspec.json.decode(whole.body)


def _tenant(exchange: Exchange) -> str:
    return (exchange.header(b"who") or b"").decode()


@pytest.fixture
def desk() -> Desk:
    return Desk()


def told(message: dict[str, Any], finish: str = "stop") -> Told:
    body = {"choices": [{"message": message, "finish_reason": finish}], "usage": USAGE}
    return Told(msgspec.json.encode(body), b"application/json")


def chat(asked: ResponsesAsked) -> Any:
    return msgspec.json.decode(asked.forward(LOCAL).body)


def chunk(**delta: Any) -> bytes:
    finish = delta.pop("finish", None)
    choice = {"index": 0, "delta": delta, "finish_reason": finish}
    return b"data: %b\n\n" % msgspec.json.encode({"choices": [choice]})


END = b'data: {"choices":[],"usage":%b}\n\ndata: [DONE]\n\n' % msgspec.json.encode(USAGE)


def events(stream: bytes) -> list[Any]:
    found = []
    for event in stream.split(b"\n\n")[:-1]:
        name, _, data = event.partition(b"\n")
        decoded = msgspec.json.decode(data.removeprefix(b"data: "))
        assert name == b"event: " + decoded["type"].encode()
        found.append(decoded)
    return found


def test_a_chat_is_asked_the_same(desk: Desk) -> None:
    asked = desk.ask(
        instructions="Be kind.",
        input=[
            {"role": "user", "content": [{"type": "input_text", "text": "Weather?"}]},
            {"role": "assistant", "content": "I'll look."},
            CALL,
            {"type": "function_call_output", "call_id": "call_1", "output": "31"},
        ],
        tools=[{**WEATHER, "description": "d", "strict": None}],
        tool_choice={"type": "function", "name": "weather"},
        max_output_tokens=9,
        temperature=0.5,
        text={"format": {"type": "json_schema", "name": "n", "schema": {"type": "object"}}},
    )
    path, _, _ = asked.forward(LOCAL)
    assert path == b"/v1/chat/completions"
    assert chat(asked) == {
        "model": "m",
        "messages": [
            {"role": "system", "content": "Be kind."},
            {"role": "user", "content": "Weather?"},
            {
                "role": "assistant",
                "content": "I'll look.",
                "tool_calls": [
                    {
                        "id": "call_1",
                        "type": "function",
                        "function": {"name": "weather", "arguments": "{}"},
                    }
                ],
            },
            {"role": "tool", "tool_call_id": "call_1", "content": "31"},
        ],
        "temperature": 0.5,
        "max_completion_tokens": 9,
        "response_format": {
            "type": "json_schema",
            "json_schema": {"name": "n", "schema": {"type": "object"}},
        },
        "tools": [
            {
                "type": "function",
                "function": {
                    "name": "weather",
                    "description": "d",
                    "parameters": {"type": "object"},
                },
            }
        ],
        "tool_choice": {"type": "function", "function": {"name": "weather"}},
    }


def test_a_whole_answer(desk: Desk) -> None:
    response = desk.answer(metadata={"k": "v"})
    assert response["object"] == "response"
    assert response["status"] == "completed"
    assert response["created_at"] == 5
    assert response["metadata"] == {"k": "v"}
    assert response["store"] is True
    [item] = response["output"]
    assert item["content"] == [
        {"type": "output_text", "text": "hello", "annotations": [], "logprobs": []}
    ]
    usage = response["usage"]
    assert (usage["input_tokens"], usage["output_tokens"], usage["total_tokens"]) == (7, 2, 9)
    assert usage["input_tokens_details"]["cached_tokens"] == 3


def test_calls_and_an_answer_that_was_cut_off(desk: Desk) -> None:
    call = {"id": "c1", "type": "function", "function": {"name": "weather", "arguments": "{}"}}
    asked = desk.ask(tools=[WEATHER])
    message = {"content": None, "tool_calls": [call]}
    response = msgspec.json.decode(asked.whole(told(message, "tool_calls"), LOCAL).body)
    [item] = response["output"]
    assert (item["type"], item["call_id"], item["status"]) == ("function_call", "c1", "completed")
    cut = msgspec.json.decode(desk.ask().whole(told({"content": "a"}, "length"), LOCAL).body)
    assert cut["status"] == cut["output"][0]["status"] == "incomplete"
    assert cut["incomplete_details"] == {"reason": "max_output_tokens"}


@pytest.mark.parametrize(
    "body", [b"x", b'{"choices":[]}', b'{"choices":[{"message":{"content":1}}]}']
)
def test_what_is_no_answer_is_the_upstreams_failure(desk: Desk, body: bytes) -> None:
    with pytest.raises(UpstreamFailed):
        desk.ask().whole(Told(body, b"application/json"), LOCAL)


@pytest.mark.parametrize("size", [1, 7, 10_000])
def test_events_come_in_order_however_the_stream_was_cut(desk: Desk, size: int) -> None:
    asked = desk.ask(stream=True)
    reading = asked.reading(LOCAL)
    stream = (
        chunk(role="assistant", content="") + chunk(content="he") + chunk(content="llo")
    ) + chunk(finish="stop")
    stream += END
    out = b"".join(reading.feed(stream[at : at + size]) for at in range(0, len(stream), size))
    found = events(out)
    assert reading.done
    assert reading.usage.completion_tokens == 2
    assert [event["sequence_number"] for event in found] == list(range(len(found)))
    assert [event["type"] for event in found] == [
        "response.created",
        "response.in_progress",
        "response.output_item.added",
        "response.content_part.added",
        "response.output_text.delta",
        "response.output_text.delta",
        "response.output_text.done",
        "response.content_part.done",
        "response.output_item.done",
        "response.completed",
    ]
    final = found[-1]["response"]
    assert final["output"] == [found[-2]["item"]]
    assert final["output"][0]["content"][0]["text"] == "hello"
    assert final["id"] == found[0]["response"]["id"]
    assert asked.answer_text(out) == "hello"
    assert len(desk.kept) == 0  # a guard may still have a word to say
    asked.settle()
    kept = desk.kept.find("t", final["id"])
    assert kept is not None
    assert msgspec.json.decode(kept.response) == final


def test_calls_are_streamed_beside_text(desk: Desk) -> None:
    first = {"index": 0, "id": "c1", "function": {"name": "weather", "arguments": ""}}
    second = {"index": 1, "id": "c2", "function": {"name": "weather", "arguments": "{}"}}
    stream = (
        chunk(content="Let me see.")
        + chunk(tool_calls=[first])
        + chunk(tool_calls=[{"index": 0, "function": {"arguments": '{"a'}}])
        + chunk(tool_calls=[{"index": 0, "function": {"arguments": '":1}'}}])
        + chunk(tool_calls=[second])
        + chunk(finish="tool_calls")
    )
    reading = desk.ask(stream=True, tools=[WEATHER]).reading(LOCAL)
    found = events(reading.feed(stream + END))
    final = found[-1]["response"]
    assert [item["type"] for item in final["output"]] == [
        "message",
        "function_call",
        "function_call",
    ]
    done = [e for e in found if e["type"] == "response.function_call_arguments.done"]
    assert [(e["output_index"], e["arguments"]) for e in done] == [(1, '{"a":1}'), (2, "{}")]
    deltas = [e for e in found if e["type"] == "response.function_call_arguments.delta"]
    assert "".join(e["delta"] for e in deltas if e["output_index"] == 1) == '{"a":1}'


def test_nothing_is_said_before_there_is_content(desk: Desk) -> None:
    reading = desk.ask(stream=True).reading(LOCAL)
    assert reading.feed(chunk(role="assistant", content="")) == b""
    assert not reading.content
    assert reading.feed(b'data: {"error":{"message":"full","code":"overloaded"}}\n\n') == b""
    assert reading.error is not None
    assert reading.error.slug == "overloaded"


def test_a_stream_that_breaks_off_is_not_done_and_not_kept(desk: Desk) -> None:
    reading = desk.ask(stream=True).reading(LOCAL)
    reading.feed(chunk(content="he"))
    reading.feed(b"")
    assert not reading.done
    assert len(desk.kept) == 0


@pytest.mark.parametrize(
    "nonsense",
    [
        b'data: {"choices":[{"index":0,"delta":{"content":["x"]}}]}\n\n',
        b'data: {"choices":[{"index":1,"delta":{"content":"x"}}]}\n\n',
        b"data: nonsense\n\n",
    ],
)
def test_chunks_of_another_shape_break_it_off(desk: Desk, nonsense: bytes) -> None:
    reading = desk.ask(stream=True).reading(LOCAL)
    reading.feed(nonsense)
    assert isinstance(reading.error, UpstreamFailed)
    assert not reading.done


def test_an_empty_answer_is_still_one(desk: Desk) -> None:
    reading = desk.ask(stream=True).reading(LOCAL)
    found = events(reading.feed(chunk(finish="stop") + END))
    assert found[-1]["type"] == "response.completed"
    assert found[-1]["response"]["output"][0]["content"] == []


def test_a_conversation_goes_on(desk: Desk) -> None:
    first = desk.answer("hello", input="one", instructions="Be brief.")
    second = desk.answer("world", input="two", previous_response_id=first["id"])
    third = desk.ask(input="three", previous_response_id=second["id"])
    assert [(m["role"], m["content"]) for m in chat(third)["messages"]] == [
        ("user", "one"),
        ("assistant", "hello"),
        ("user", "two"),
        ("assistant", "world"),
        ("user", "three"),
    ]


def test_a_call_is_answered_in_the_next_request(desk: Desk) -> None:
    call = {"id": "c1", "type": "function", "function": {"name": "weather", "arguments": "{}"}}
    asked = desk.ask(tools=[WEATHER])
    first = msgspec.json.decode(asked.whole(told({"tool_calls": [call]}), LOCAL).body)
    asked.settle()
    output = {"type": "function_call_output", "call_id": "c1", "output": "31"}
    second = desk.ask(input=[output], previous_response_id=first["id"])
    assert [m["role"] for m in chat(second)["messages"]] == ["user", "assistant", "tool"]
    again = desk.ask(input=[{"role": "user", "content": "hi"}, *first["output"], output])
    assert [m["role"] for m in chat(again)["messages"]] == ["user", "assistant", "tool"]


def test_a_tenants_conversation_is_its_own(desk: Desk) -> None:
    mine = desk.answer(tenant="mine")
    assert desk.ask("mine", previous_response_id=mine["id"])
    with pytest.raises(PreviousResponseNotFound, match=mine["id"]):
        desk.ask("theirs", previous_response_id=mine["id"])


def test_what_isnt_to_be_stored_isnt(desk: Desk) -> None:
    response = desk.answer(store=False)
    assert response["store"] is False
    with pytest.raises(PreviousResponseNotFound):
        desk.ask(previous_response_id=response["id"])


def test_what_is_too_large_to_keep_says_so() -> None:
    response = Desk(Room(one_bytes=3000)).answer("x" * 5000)
    assert response["store"] is False


IMAGE = {"role": "user", "content": [{"type": "input_image", "image_url": "u"}]}
FILE = {"role": "user", "content": [{"type": "input_file", "file_id": "f"}]}


@pytest.mark.parametrize(
    ("fields", "slug", "param"),
    [
        ({"input": None}, "invalid_value", "input"),
        ({"input": []}, "invalid_value", "input"),
        ({"input": [IMAGE]}, "unsupported_parameter", "input[0].content[0].type"),
        ({"input": [FILE]}, "unsupported_parameter", "input[0].content[0].type"),
        (
            {"input": [{"type": "reasoning", "summary": []}]},
            "unsupported_parameter",
            "input[0].type",
        ),
        ({"input": [{"content": "x"}]}, "unsupported_parameter", "input[0].type"),
        ({"input": [{"role": "robot", "content": "x"}]}, "invalid_value", "input[0].role"),
        ({"input": [{"role": "user"}]}, "invalid_value", "input[0].content"),
        (
            {"input": [{"role": "user", "content": "x", "name": "n"}]},
            "invalid_value",
            "input[0].name",
        ),
        ({"input": [{"role": "user", "contents": "x"}]}, "unknown_parameter", "input[0].contents"),
        (
            {"input": [{"role": "user", "content": [{"type": "output_text", "text": "x"}]}]},
            "invalid_value",
            "input[0].content[0].type",
        ),
        ({"input": [{**CALL, "status": "odd"}]}, "invalid_value", "input[0].status"),
        (
            {"input": [{"type": "function_call_output", "call_id": "c", "output": "x"}]},
            "invalid_value",
            "input[0].call_id",
        ),
        ({"tools": [{"type": "web_search"}]}, "unsupported_parameter", "tools[0].type"),
        ({"tools": [{"type": "web_search", "x": 1}]}, "unsupported_parameter", "tools[0].type"),
        ({"tools": [{**WEATHER, "strict": True}]}, "unsupported_parameter", "tools[0].strict"),
        ({"tools": [WEATHER, WEATHER]}, "invalid_value", "tools[1].name"),
        (
            {"tools": [{**WEATHER, "parameters": {"type": "array"}}]},
            "invalid_value",
            "tools[0].parameters.type",
        ),
        ({"tool_choice": "required"}, "invalid_value", "tool_choice"),
        ({"tools": [WEATHER], "tool_choice": {"type": "web"}}, "invalid_value", "tool_choice"),
        (
            {"tools": [WEATHER], "tool_choice": {"type": "function", "name": "no"}},
            "invalid_value",
            "tool_choice.name",
        ),
        ({"text": {"format": {"type": "xml"}}}, "invalid_value", "text.format.type"),
        (
            {"text": {"format": {"type": "json_schema", "name": "n"}}},
            "invalid_value",
            "text.format.schema",
        ),
        ({"text": {"format": {"type": "text", "name": "n"}}}, "invalid_value", "text.format.name"),
        ({"text": {"verbosity": "high"}}, "unsupported_parameter", "text.verbosity"),
        ({"reasoning": {"effort": "high"}}, "unsupported_parameter", "reasoning.effort"),
        ({"reasoning": {"summary": "auto"}}, "unsupported_parameter", "reasoning.summary"),
        ({"truncation": "auto"}, "unsupported_parameter", "truncation"),
        ({"background": True}, "unsupported_parameter", "background"),
        ({"include": ["x"]}, "unsupported_parameter", "include"),
        ({"top_logprobs": 3}, "unsupported_parameter", "top_logprobs"),
        ({"conversation": "c"}, "unsupported_parameter", "conversation"),
        ({"prompt": {"id": "p"}}, "unsupported_parameter", "prompt"),
        ({"stream_options": {}}, "invalid_value", "stream_options"),
        ({"max_output_tokens": 0}, "invalid_value", "max_output_tokens"),
        ({"inputs": "x"}, "unknown_parameter", "inputs"),
        ({"previous_response_id": "resp_x"}, "previous_response_not_found", "previous_response_id"),
    ],
)
def test_refused_by_name(desk: Desk, fields: dict[str, Any], slug: str, param: str) -> None:
    with pytest.raises(TiffinError) as refused:
        desk.ask(**fields)
    assert (refused.value.slug, refused.value.param) == (slug, param)
    assert "function" not in refused.value.message.partition("'")[2].partition("'")[0]


def test_what_asks_for_nothing_is_accepted(desk: Desk) -> None:
    desk.ask(
        truncation="disabled",
        background=False,
        include=[],
        top_logprobs=0,
        service_tier="auto",
        tool_choice="auto",
        tools=[],
        parallel_tool_calls=True,
        reasoning={"effort": None},
        text={"format": {"type": "text"}, "verbosity": "medium"},
        user="u",
        safety_identifier="s",
        prompt_cache_key="k",
    )


def test_a_models_errors_are_told_in_the_requests_terms(desk: Desk) -> None:
    error = ContextLengthExceeded("'messages' has too many tokens", param="messages")
    status, _, body = desk.dialect.error(error)
    said = msgspec.json.decode(body)["error"]
    assert (status, said["param"]) == (400, "input")
    assert said["message"].startswith("'input'")
    [event] = events(desk.dialect.stream_error(error))
    assert event["type"] == "error"
    assert event["error"]["code"] == event["code"] == "context_length_exceeded"


def test_a_guard_sees_every_turn(desk: Desk) -> None:
    first = desk.answer("secret answer", input="first question")
    asked = desk.ask(instructions="hush", input="now", previous_response_id=first["id"])
    seen = {piece.text for piece in asked.pieces()}
    assert {"hush", "first question", "secret answer", "now"} <= seen


def page(kept: Kept, query: bytes = b"") -> Any:
    return msgspec.json.decode(items_body(kept, query))


def test_input_items_are_paged(desk: Desk) -> None:
    first = desk.answer("b", input="a")
    second = desk.answer("d", input="c", previous_response_id=first["id"])
    kept = desk.kept.find("t", second["id"])
    assert kept is not None
    everything = page(kept, b"order=asc")
    assert [item["content"][0]["text"] for item in everything["data"]] == ["a", "b", "c"]
    assert not everything["has_more"]
    newest = page(kept, b"limit=2")
    assert [item["content"][0]["text"] for item in newest["data"]] == ["c", "b"]
    assert newest["has_more"]
    rest = page(kept, b"after=" + newest["last_id"].encode())
    assert [item["content"][0]["text"] for item in rest["data"]] == ["a"]


@pytest.mark.parametrize(
    "query", [b"limit=0", b"limit=x", b"limit=101", b"order=up", b"after=x", b"include=y", b"q=1"]
)
def test_bad_queries_are_refused(desk: Desk, query: bytes) -> None:
    kept = desk.kept.find("t", desk.answer()["id"])
    assert kept is not None
    with pytest.raises(InvalidRequest) as refused:
        items_body(kept, query)
    assert refused.value.param == query.partition(b"=")[0].decode()


def test_a_response_takes_no_query() -> None:
    refuse_query(b"stream=false")
    with pytest.raises(InvalidRequest):
        refuse_query(b"stream=true")
