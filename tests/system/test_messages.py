"""Anthropic's own client, unmodified, through the whole of Tiffin, with fakes."""

from collections.abc import Iterator
from typing import Any

import anthropic
import pytest
from anthropic import Anthropic

from tests.system.conftest import ECHO
from tests.system.server import KEY, Server, until
from tests.system.upstream_fake import WHOLE, Answer, Upstream, chunks, serving

pytestmark = pytest.mark.xdist_group("messages")

ELSEWHERE = """
[models.elsewhere]
runtime = "remote"
url = "{url}/v1"
model = "theirs"

[routes.guarded]
models = ["echo"]
guard = "personal"

[guards.personal]
kind = "personal_data"
"""
WEATHER: Any = {
    "name": "get_weather",
    "description": "The weather of a city",
    "input_schema": {
        "type": "object",
        "properties": {"city": {"type": "string"}},
        "required": ["city"],
    },
}


def client_of(server: Server) -> Anthropic:
    return Anthropic(api_key=KEY, base_url=server.status().address, max_retries=0)


def entry_of(server: Server, request: str) -> dict[str, Any] | None:
    """A request's entry, once control has it."""
    return next((entry for entry in server.accounts() if entry["id"] == request), None)


def whole_input(usage: Any) -> int:
    """Tokens of the input, read from a cache or not."""
    return int(usage.input_tokens + (usage.cache_read_input_tokens or 0))


def said(text: str) -> Any:
    return [{"role": "user", "content": text}]


@pytest.fixture(scope="module")
def upstream() -> Iterator[Upstream]:
    with serving() as upstream:
        yield upstream


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory, upstream: Upstream) -> Iterator[Server]:
    models = ECHO + ELSEWHERE.format(url=upstream.address)
    server = Server(tmp_path_factory.mktemp("messages"), models)
    try:
        server.start()
        server.until_answers("echo")
        yield server
    finally:
        server.close()


@pytest.fixture(scope="module")
def client(server: Server) -> Iterator[Anthropic]:
    with client_of(server) as client:
        yield client


def test_a_whole_message(client: Anthropic, server: Server) -> None:
    answer = client.messages.create(model="echo", max_tokens=50, messages=said("one two three"))
    [block] = answer.content
    assert block.type == "text"
    assert block.text.strip() == "one two three"
    assert (answer.role, answer.stop_reason, answer.model) == ("assistant", "end_turn", "echo")
    assert answer.usage.input_tokens > 0
    assert answer.usage.output_tokens == 3
    assert answer._request_id is not None
    entry = until(lambda: entry_of(server, answer._request_id or ""))
    assert entry["endpoint"] == "messages"


def test_a_streamed_message(client: Anthropic) -> None:
    with client.messages.stream(
        model="echo", max_tokens=50, messages=said("one two three")
    ) as stream:
        kinds = [one.type for one in stream]
        answer = stream.get_final_message()
    assert kinds[0] == "message_start"
    assert kinds[-1] == "message_stop"
    assert stream.get_final_text().strip() == "one two three"
    assert answer.usage.input_tokens > 0
    assert answer.usage.output_tokens == 3
    assert answer.stop_reason == "end_turn"


def test_an_answer_that_ends_at_its_limit_says_so(client: Anthropic) -> None:
    answer = client.messages.create(model="echo", max_tokens=2, messages=said("a b c d"))
    assert answer.stop_reason == "max_tokens"


def test_tools_of_somebody_elses_model(client: Anthropic, upstream: Upstream) -> None:
    function = {"name": "get_weather", "arguments": '{"city":"Pune"}'}
    call = {"id": "call_1", "type": "function", "function": function}
    message = {"role": "assistant", "content": None, "tool_calls": [call]}
    told = {**WHOLE, "choices": [{"index": 0, "message": message, "finish_reason": "tool_calls"}]}
    upstream.answers["/v1/chat/completions"] = Answer(told=told)
    try:
        first = client.messages.create(
            model="elsewhere", max_tokens=50, messages=said("Weather in Pune?"), tools=[WEATHER]
        )
    finally:
        upstream.answers.clear()
    [asking] = first.content
    assert asking.type == "tool_use"
    assert (asking.name, asking.input) == ("get_weather", {"city": "Pune"})
    assert first.stop_reason == "tool_use"
    result: Any = {"type": "tool_result", "tool_use_id": asking.id, "content": "31 degrees"}
    upstream.seen.clear()
    second = client.messages.create(
        model="elsewhere",
        max_tokens=50,
        tools=[WEATHER],
        messages=[
            *said("Weather in Pune?"),
            {"role": "assistant", "content": first.content},
            {"role": "user", "content": [result]},
        ],
    )
    assert second.stop_reason == "end_turn"
    [asked] = upstream.seen
    assert [one["role"] for one in asked.told["messages"]] == ["user", "assistant", "tool"]
    assert asked.told["messages"][2]["tool_call_id"] == "call_1"


def test_a_stream_that_breaks_ends_in_an_error(client: Anthropic, upstream: Upstream) -> None:
    upstream.answers["/v1/chat/completions"] = Answer(events=chunks("Nama", "ste")[:3])
    heard: list[str] = []
    try:
        with (
            pytest.raises(anthropic.APIStatusError, match="broke off"),
            client.messages.stream(model="elsewhere", max_tokens=9, messages=said("hi")) as stream,
        ):
            heard.extend(stream.text_stream)
    finally:
        upstream.answers.clear()
    assert "".join(heard) == "Namaste"


def test_errors_are_those_that_the_client_knows(client: Anthropic, server: Server) -> None:
    with pytest.raises(anthropic.NotFoundError, match="no model 'nothing'"):
        client.messages.create(model="nothing", max_tokens=5, messages=said("hi"))
    with pytest.raises(anthropic.BadRequestError, match="'top_k' is not supported"):
        client.messages.create(
            model="echo", max_tokens=5, messages=said("hi"), extra_body={"top_k": 3}
        )
    with pytest.raises(anthropic.BadRequestError, match="personal"):
        client.messages.create(
            model="guarded", max_tokens=5, messages=said("mail me at asha@example.com")
        )
    stranger = Anthropic(api_key="sk-nobody", base_url=server.status().address, max_retries=0)
    with stranger, pytest.raises(anthropic.AuthenticationError) as refused:
        stranger.messages.create(model="echo", max_tokens=5, messages=said("hi"))
    assert refused.value.body == {
        "type": "error",
        "error": {
            "type": "authentication_error",
            "message": "this API key isn't known here; check it, or ask the operator for one",
        },
    }
    reply = server.http.get("/v1/messages")
    assert (reply.status_code, reply.json()["error"]["type"]) == (405, "invalid_request_error")


def test_tokens_are_counted_as_the_model_counts_them(client: Anthropic) -> None:
    few = client.messages.count_tokens(model="echo", messages=said("one two"))
    more = client.messages.count_tokens(model="echo", messages=said("one two"), system="three")
    assert 0 < few.input_tokens < more.input_tokens
    answer = client.messages.create(model="echo", max_tokens=5, messages=said("one two"))
    assert whole_input(answer.usage) == few.input_tokens
