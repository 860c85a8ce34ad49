"""Anthropic's API as an upstream: `openai` and `anthropic` unmodified in front of a script."""

from collections.abc import Iterator
from typing import Any

import anthropic
import openai
import pytest
from anthropic import Anthropic
from openai import OpenAI

from tests.system.conftest import ECHO
from tests.system.server import KEY, Server, until
from tests.system.upstream_fake import Answer, Upstream, event, serving

pytestmark = pytest.mark.xdist_group("messages upstream")

SECRET = "sk-ant-theirs"
MODELS = """
[models.claude]
runtime = "remote"
profile = "anthropic"
url = "{url}/v1"
model = "claude-theirs"
key_file = "{key}"

[routes.best]
models = ["claude", "echo"]

[prices]
currency = "USD"

[[prices.models]]
model = "claude"
since = "2020-01-01"
input = "1"
cached = "0.1"
output = "5"
"""
USAGE = {"input_tokens": 4, "cache_read_input_tokens": 10, "output_tokens": 3}
WHOLE: dict[str, Any] = {
    "id": "msg_theirs",
    "type": "message",
    "role": "assistant",
    "model": "claude-theirs",
    "content": [{"type": "text", "text": "Namaste."}],
    "stop_reason": "end_turn",
    "stop_sequence": None,
    "usage": USAGE,
}
START = {**WHOLE, "content": [], "stop_reason": None, "usage": {**USAGE, "output_tokens": 1}}
DELTAS = ({"type": "text_delta", "text": "Nama"}, {"type": "text_delta", "text": "ste."})
EVENTS_TOLD: tuple[dict[str, Any], ...] = (
    {"type": "message_start", "message": START},
    {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}},
    {"type": "ping"},
    *({"type": "content_block_delta", "index": 0, "delta": delta} for delta in DELTAS),
    {"type": "content_block_stop", "index": 0},
    {
        "type": "message_delta",
        "delta": {"stop_reason": "end_turn", "stop_sequence": None},
        "usage": {"output_tokens": 3},
    },
    {"type": "message_stop"},
)
EVENTS = [event(told, told["type"]) for told in EVENTS_TOLD]


@pytest.fixture(scope="module")
def upstream() -> Iterator[Upstream]:
    with serving() as upstream:
        yield upstream


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory, upstream: Upstream) -> Iterator[Server]:
    folder = tmp_path_factory.mktemp("claude")
    key = folder / "theirs"
    key.write_text(SECRET)
    server = Server(folder, ECHO + MODELS.format(url=upstream.address, key=key))
    try:
        server.start()
        server.until_answers("echo")
        yield server
    finally:
        server.close()


@pytest.fixture(autouse=True)
def scripted(upstream: Upstream) -> None:
    upstream.seen.clear()
    upstream.answers.clear()
    upstream.whole = Answer(told=WHOLE)
    upstream.stream = Answer(events=EVENTS)


@pytest.fixture
def chat(server: Server) -> Iterator[OpenAI]:
    with OpenAI(api_key=KEY, base_url=f"{server.status().address}/v1", max_retries=0) as client:
        yield client


@pytest.fixture
def messages(server: Server) -> Iterator[Anthropic]:
    with Anthropic(api_key=KEY, base_url=server.status().address, max_retries=0) as client:
        yield client


def hello(model: str = "claude", **more: Any) -> Any:
    return {"model": model, "messages": [{"role": "user", "content": "hello"}], **more}


def test_a_chat_is_asked_as_a_message(chat: OpenAI, server: Server, upstream: Upstream) -> None:
    reply = chat.chat.completions.with_raw_response.create(**hello(max_tokens=5, temperature=0.5))
    answer = reply.parse()
    assert answer.choices[0].message.content == "Namaste."
    assert answer.usage is not None
    assert answer.usage.prompt_tokens == 14
    assert answer.usage.prompt_tokens_details is not None
    assert answer.usage.prompt_tokens_details.cached_tokens == 10
    [asked] = upstream.seen
    assert asked.path == "/v1/messages"
    assert asked.headers["x-api-key"] == SECRET
    assert asked.headers["anthropic-version"] == "2023-06-01"
    assert "authorization" not in asked.headers
    assert asked.told["model"] == "claude-theirs"
    request = reply.headers["x-request-id"]
    entry = until(lambda: next((e for e in server.accounts() if e["id"] == request), None))
    assert (entry["prompt_tokens"], entry["cached_tokens"]) == (14, 10)
    assert answer.usage.completion_tokens == entry["completion_tokens"]


def test_a_chats_stream(chat: OpenAI) -> None:
    chunks = list(
        chat.chat.completions.create(**hello(stream=True, stream_options={"include_usage": True}))
    )
    said = "".join(one.choices[0].delta.content or "" for one in chunks if one.choices)
    assert said == "Namaste."
    assert chunks[-1].choices == []
    assert chunks[-1].usage is not None
    assert (chunks[-1].usage.prompt_tokens, chunks[-1].usage.completion_tokens) == (14, 3)


def test_a_response_is_asked_as_a_message_too(chat: OpenAI) -> None:
    assert chat.responses.create(model="claude", input="hello").output_text == "Namaste."


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "stream"])
def test_a_message_is_passed_on_as_it_is(
    messages: Anthropic, upstream: Upstream, stream: bool
) -> None:
    wanted = hello(max_tokens=5, thinking={"type": "adaptive"})
    if stream:
        with messages.messages.stream(**wanted) as events:
            answer: anthropic.types.Message = events.get_final_message()
    else:
        answer = messages.messages.create(**wanted)
    assert answer.id == "msg_theirs"
    assert answer.content[0].to_dict() == {"type": "text", "text": "Namaste."}
    assert (answer.usage.input_tokens, answer.usage.cache_read_input_tokens) == (4, 10)
    [asked] = upstream.seen
    assert asked.told["thinking"] == {"type": "adaptive"}
    assert asked.headers["anthropic-version"] == "2026-10-21"
    assert asked.headers["x-api-key"] == SECRET
    assert KEY not in str(asked.headers)


def test_counting_is_passed_on(messages: Anthropic, upstream: Upstream) -> None:
    upstream.answers["/v1/messages/count_tokens"] = Answer(told={"input_tokens": 14})
    assert messages.messages.count_tokens(**hello()).input_tokens == 14


@pytest.mark.parametrize("kind", ["chat", "message"])
def test_a_stream_that_is_cut_ends_in_an_error(
    chat: OpenAI, messages: Anthropic, upstream: Upstream, kind: str
) -> None:
    upstream.stream = Answer(events=EVENTS[:5])

    def listen() -> None:
        if kind == "chat":
            list(chat.chat.completions.create(**hello(stream=True)))
        else:
            with messages.messages.stream(**hello(max_tokens=5)) as events:
                events.until_done()

    with pytest.raises((openai.APIError, anthropic.APIError), match="broke off"):
        listen()


@pytest.mark.parametrize("kind", ["chat", "message"])
def test_overloaded_another_model_answers(
    chat: OpenAI, messages: Anthropic, upstream: Upstream, kind: str
) -> None:
    told = {"type": "error", "error": {"type": "overloaded_error", "message": "Overloaded"}}
    upstream.whole = Answer(status=529, told=told)
    if kind == "chat":
        chosen = chat.chat.completions.create(**hello("best", max_tokens=5)).choices[0]
        assert chosen.message.content == "hello"
    else:
        block = messages.messages.create(**hello("best", max_tokens=5)).content[0]
        assert block.to_dict() == {"type": "text", "text": "hello"}
    assert upstream.seen


def test_what_it_refuses_is_told(chat: OpenAI, upstream: Upstream) -> None:
    told = {"type": "error", "error": {"type": "invalid_request_error", "message": "too odd"}}
    upstream.whole = Answer(status=400, told=told)
    with pytest.raises(openai.BadRequestError, match="the upstream said: too odd"):
        chat.chat.completions.create(**hello())
