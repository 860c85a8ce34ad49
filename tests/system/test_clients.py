"""Unmodified clients and real models through the whole of Tiffin: `openai` and `anthropic`."""

import asyncio
import json
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import anthropic
import openai
import pytest
from anthropic import Anthropic
from openai import AsyncOpenAI, OpenAI

from tests.real_models import model_file
from tests.system.server import KEY, Server
from tests.system.test_messages import WEATHER as ANTHROPIC_WEATHER
from tests.system.test_messages import said, whole_input
from tiffin.config.models import LlamacppModel
from tiffin.control.catalogue.starter import STARTER_MODELS

pytestmark = [pytest.mark.models, pytest.mark.xdist_group("real models")]

WEATHER = {
    "type": "function",
    "function": {
        "name": "get_weather",
        "description": "The weather of a city",
        "parameters": {
            "type": "object",
            "properties": {"city": {"type": "string"}},
            "required": ["city"],
        },
    },
}
PERSON = {
    "type": "object",
    "properties": {"name": {"type": "string"}, "age": {"type": "integer"}},
    "required": ["name", "age"],
    "additionalProperties": False,
}


def section(name: str) -> str:
    """A starter model with its already fetched file."""
    model = STARTER_MODELS[name]
    assert isinstance(model, LlamacppModel)
    return f"""
[models.{name}]
runtime = "llamacpp"
sources = ["file:{model_file(name)}"]
sha256 = "{model.sha256}"
context = 2048
slots = 4
tools = {str(model.tools).lower()}
"""


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    folder = tmp_path_factory.mktemp("clients")
    server = Server(folder, section("chat-tiny") + section("chat"))
    try:
        server.start()
        server.until_answers("chat-tiny", within_s=90)
        server.until_answers("chat", within_s=90)
        yield server
    finally:
        server.close()


@pytest.fixture(scope="module")
def client(server: Server) -> Iterator[OpenAI]:
    with OpenAI(api_key=KEY, base_url=f"{server.status().address}/v1", max_retries=0) as client:
        yield client


def ask(client: OpenAI) -> Any:
    """Requests are built from parts here, which the client's overloads can't follow."""
    return client.chat.completions.create


def streamed(client: OpenAI) -> Any:
    """The same for the client's own streaming helper."""
    return client.chat.completions.stream


def test_models_are_listed(client: OpenAI) -> None:
    assert [model.id for model in client.models.list()] == ["chat", "chat-tiny"]
    assert client.models.retrieve("chat").owned_by == "tiffin"


def test_a_whole_answer(client: OpenAI) -> None:
    answer = ask(client)(
        model="chat",
        messages=[{"role": "user", "content": "What is the capital of France? One word."}],
        temperature=0,
        max_tokens=20,
    )
    assert "Paris" in (answer.choices[0].message.content or "")
    assert answer.usage is not None
    assert answer.usage.prompt_tokens > 10
    assert answer.usage.total_tokens == answer.usage.prompt_tokens + answer.usage.completion_tokens


@pytest.mark.parametrize("model", ["chat", "chat-tiny"])
def test_a_stream_says_what_a_whole_answer_says(client: OpenAI, model: str) -> None:
    wanted = {
        "model": model,
        "messages": [{"role": "user", "content": "Count from one to five."}],
        "temperature": 0,
        "max_tokens": 30,
    }
    whole = ask(client)(**wanted)
    chunks = list(ask(client)(**wanted, stream=True, stream_options={"include_usage": True}))
    said = "".join(c.choices[0].delta.content or "" for c in chunks if c.choices)
    assert said == whole.choices[0].message.content
    assert chunks[0].choices[0].delta.role == "assistant"
    assert chunks[-1].choices == []
    assert chunks[-1].usage.completion_tokens == whole.usage.completion_tokens
    reasons = [c.choices[0].finish_reason for c in chunks if c.choices]
    assert reasons[-1] == whole.choices[0].finish_reason


async def test_many_at_once_each_get_their_own(server: Server) -> None:
    async with AsyncOpenAI(api_key=KEY, base_url=f"{server.status().address}/v1") as client:

        async def ask(word: str) -> str:
            answer = await client.chat.completions.create(
                model="chat",
                messages=[{"role": "user", "content": f"Repeat this word only: {word}"}],
                temperature=0,
                max_tokens=12,
            )
            return answer.choices[0].message.content or ""

        words = ["banana", "tiger", "purple", "seven", "monday", "river", "piano", "cloud"]
        answers = await asyncio.gather(*(ask(word) for word in words))
        right = sum(word in answer.lower() for word, answer in zip(words, answers, strict=True))
        assert right >= 7


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "stream"])
def test_a_tool_is_called(client: OpenAI, stream: bool) -> None:
    wanted = {
        "model": "chat",
        "messages": [{"role": "user", "content": "What is the weather in Pune right now?"}],
        "tools": [WEATHER],
        "temperature": 0,
        "max_tokens": 100,
    }
    if stream:
        with streamed(client)(**wanted) as events:
            answer = events.get_final_completion()
    else:
        answer = ask(client)(**wanted)
    choice = answer.choices[0]
    assert choice.finish_reason == "tool_calls"
    assert choice.message.tool_calls
    call = choice.message.tool_calls[0].function
    assert call.name == "get_weather"
    assert json.loads(call.arguments)["city"].lower().startswith("pune")


def test_a_tools_answer_is_understood(client: OpenAI) -> None:
    answer = ask(client)(
        model="chat",
        messages=[
            {"role": "user", "content": "What is the weather in Pune?"},
            {
                "role": "assistant",
                "tool_calls": [
                    {
                        "id": "call_1",
                        "type": "function",
                        "function": {"name": "get_weather", "arguments": '{"city":"Pune"}'},
                    }
                ],
            },
            {"role": "tool", "tool_call_id": "call_1", "content": "31 degrees, sunny"},
            {"role": "user", "content": "How many degrees is it? Answer with the number."},
        ],
        temperature=0,
        max_tokens=20,
    )
    assert "31" in (answer.choices[0].message.content or "")


@pytest.mark.parametrize(
    "choice", ["required", {"type": "function", "function": {"name": "get_weather"}}]
)
def test_a_required_tool_is_always_called(client: OpenAI, choice: object) -> None:
    answer = ask(client)(
        model="chat",
        messages=[{"role": "user", "content": "Tell me a joke about Mumbai."}],
        tools=[WEATHER],
        tool_choice=choice,
        temperature=0,
        max_tokens=100,
    )
    calls = answer.choices[0].message.tool_calls
    assert calls
    assert "city" in json.loads(calls[0].function.arguments)


@pytest.mark.parametrize("model", ["chat", "chat-tiny"])
def test_a_schema_is_enforced(client: OpenAI, model: str) -> None:
    for seed in range(2):
        answer = ask(client)(
            model=model,
            messages=[{"role": "user", "content": "Invent a person, as prose, please."}],
            response_format={
                "type": "json_schema",
                "json_schema": {"name": "person", "schema": PERSON, "strict": True},
            },
            seed=seed,
            max_tokens=60,
        )
        if answer.choices[0].finish_reason == "length":
            continue
        person = json.loads(answer.choices[0].message.content or "")
        assert set(person) == {"name", "age"}
        assert isinstance(person["age"], int)


def respond(client: OpenAI) -> Any:
    """Requests for responses are built from parts too."""
    return client.responses.create


def test_a_response_goes_on_where_the_last_ended(client: OpenAI) -> None:
    first = respond(client)(
        model="chat", input="My dog is called Bruno. Just say hello.", temperature=0
    )
    second = respond(client)(
        model="chat",
        input="What is my dog called? One word.",
        previous_response_id=first.id,
        temperature=0,
        max_output_tokens=20,
    )
    assert "Bruno" in second.output_text
    assert second.usage.input_tokens > first.usage.total_tokens


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "stream"])
def test_a_response_calls_a_tool_and_uses_what_it_says(client: OpenAI, stream: bool) -> None:
    tool = {"type": "function", **WEATHER["function"]}  # type: ignore[dict-item]
    asked = {"role": "user", "content": "What is the weather in Pune right now?"}
    wanted = {"model": "chat", "input": [asked], "tools": [tool], "temperature": 0}
    if stream:
        with client.responses.stream(**wanted) as events:  # type: ignore[call-overload]
            first = events.get_final_response()
    else:
        first = respond(client)(**wanted)
    [call] = [item for item in first.output if item.type == "function_call"]
    assert json.loads(call.arguments)["city"].lower().startswith("pune")
    result = {"type": "function_call_output", "call_id": call.call_id, "output": "31 degrees"}
    second = respond(client)(
        **{**wanted, "input": [asked, *first.output, result], "tools": []}, max_output_tokens=60
    )
    assert "31" in second.output_text


def test_a_responses_schema_is_enforced(client: OpenAI) -> None:
    response = respond(client)(
        model="chat",
        input="Invent a person, as prose, please.",
        text={"format": {"type": "json_schema", "name": "person", "schema": PERSON}},
        temperature=0,
        max_output_tokens=200,
    )
    assert set(json.loads(response.output_text)) == {"name", "age"}
    cut = respond(client)(
        model="chat", input="Count to a hundred.", temperature=0, max_output_tokens=3
    )
    assert cut.status == "incomplete"
    assert cut.incomplete_details.reason == "max_output_tokens"


def test_choices_stop_and_logprobs(client: OpenAI) -> None:
    answer = ask(client)(
        model="chat-tiny",
        messages=[{"role": "user", "content": "Tell me about the sea."}],
        n=3,
        seed=7,
        stop=["."],
        logprobs=True,
        top_logprobs=2,
        max_tokens=40,
    )
    assert [choice.index for choice in answer.choices] == [0, 1, 2]
    for choice in answer.choices:
        assert "." not in (choice.message.content or "")
        assert choice.logprobs is not None
        assert choice.logprobs.content
        assert all(len(token.top_logprobs) == 2 for token in choice.logprobs.content)
        assert all(token.logprob <= 0 for token in choice.logprobs.content)
    again = ask(client)(
        model="chat-tiny",
        messages=[{"role": "user", "content": "Tell me about the sea."}],
        n=3,
        seed=7,
        stop=["."],
        max_tokens=40,
    )
    assert len({choice.message.content for choice in again.choices}) > 1


def test_plain_completions(client: OpenAI) -> None:
    answer = client.completions.create(
        model="chat-tiny", prompt="The capital of France is", max_tokens=5, temperature=0, echo=True
    )
    assert answer.choices[0].text.startswith("The capital of France is")
    several = client.completions.create(
        model="chat-tiny", prompt=["One two three", "Red green"], max_tokens=3, temperature=0
    )
    assert [choice.index for choice in several.choices] == [0, 1]
    pieces = [
        chunk.choices[0].text
        for chunk in client.completions.create(
            model="chat-tiny", prompt="Once upon a", max_tokens=5, temperature=0, stream=True
        )
        if chunk.choices
    ]
    assert len("".join(pieces)) > 3


def test_hindi_comes_out_whole(client: OpenAI) -> None:
    chunks = ask(client)(
        model="chat",
        messages=[{"role": "user", "content": "Repeat exactly: नमस्ते दुनिया"}],
        temperature=0,
        max_tokens=40,
        stream=True,
    )
    said = "".join(c.choices[0].delta.content or "" for c in chunks if c.choices)
    assert "नमस्ते" in said
    assert "\ufffd" not in said


@pytest.mark.parametrize(
    ("changed", "error", "code", "param"),
    [
        ({"model": "gpt-9"}, openai.NotFoundError, "model_not_found", "model"),
        (
            {"messages": [{"role": "user", "content": "word " * 5000}]},
            openai.BadRequestError,
            "context_length_exceeded",
            "messages",
        ),
        ({"temperature": 9}, openai.BadRequestError, "invalid_value", "temperature"),
        ({"tools": [WEATHER]}, openai.BadRequestError, "unsupported_parameter", "tools"),
        ({"reasoning_effort": "high"}, openai.BadRequestError, None, "reasoning_effort"),
        ({"extra_body": {"guided": 1}}, openai.BadRequestError, "unknown_parameter", "guided"),
        (
            {
                "response_format": {
                    "type": "json_schema",
                    "json_schema": {"name": "x", "schema": {"not": {"type": "string"}}},
                }
            },
            openai.BadRequestError,
            "invalid_value",
            "response_format.json_schema.schema",
        ),
    ],
    ids=lambda value: str(value)[:30] if isinstance(value, dict) else "",
)
def test_bad_requests_are_refused_by_name(
    client: OpenAI,
    changed: dict[str, object],
    error: type[openai.APIStatusError],
    code: str | None,
    param: str,
) -> None:
    request = {"model": "chat-tiny", "messages": [{"role": "user", "content": "x"}], **changed}
    with pytest.raises(error) as refused:
        ask(client)(**request)
    assert (refused.value.param or "").startswith(param)
    assert code is None or refused.value.code == code


def test_a_wrong_key_is_an_authentication_error(server: Server) -> None:
    with (
        OpenAI(api_key="sk-wrong", base_url=f"{server.status().address}/v1") as client,
        pytest.raises(openai.AuthenticationError),
    ):
        client.models.list()


def test_tokens_there_and_back(server: Server) -> None:
    there = server.http.post("/tokenize", json={"model": "chat", "prompt": "नमस्ते, world"}).json()
    assert there["count"] == len(there["tokens"])
    back = server.http.post("/detokenize", json={"model": "chat", "tokens": there["tokens"]}).json()
    assert back["prompt"] == "नमस्ते, world"


def test_curl_streams(server: Server, tmp_path: Path) -> None:
    wanted = {
        "model": "chat-tiny",
        "stream": True,
        "max_tokens": 8,
        "messages": [{"role": "user", "content": "Say hello"}],
    }
    done = subprocess.run(
        [
            "curl",
            "-sN",
            f"{server.status().address}/v1/chat/completions",
            "-H",
            f"Authorization: Bearer {KEY}",
            "-d",
            json.dumps(wanted),
        ],
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    assert done.stdout.startswith("data: {")
    assert done.stdout.endswith("data: [DONE]\n\n")


@pytest.fixture(scope="module")
def other(server: Server) -> Iterator[Anthropic]:
    with Anthropic(api_key=KEY, base_url=server.status().address, max_retries=0) as client:
        yield client


@pytest.mark.parametrize("model", ["chat", "chat-tiny"])
def test_a_message_says_the_same_whole_and_streamed(other: Anthropic, model: str) -> None:
    wanted: Any = {
        "model": model,
        "max_tokens": 24,
        "system": "You are brief.",
        "messages": said("Count from one to five."),
        "extra_body": {"temperature": 0},
    }
    whole = other.messages.create(**wanted)
    with other.messages.stream(**wanted) as stream:
        streamed = stream.get_final_message()
    assert whole.content[0].type == "text"
    assert streamed.content[0].to_dict() == whole.content[0].to_dict()
    assert streamed.stop_reason == whole.stop_reason
    assert streamed.usage.output_tokens == whole.usage.output_tokens
    counted = other.messages.count_tokens(
        model=model, system=wanted["system"], messages=wanted["messages"]
    )
    assert whole_input(whole.usage) == counted.input_tokens
    assert whole_input(streamed.usage) == counted.input_tokens


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "stream"])
def test_a_message_calls_a_tool_and_uses_what_it_says(other: Anthropic, stream: bool) -> None:
    asked = said("What is the weather in Pune right now?")
    wanted: Any = {
        "model": "chat",
        "max_tokens": 100,
        "tools": [ANTHROPIC_WEATHER],
        "messages": asked,
        "extra_body": {"temperature": 0},
    }
    if stream:
        with other.messages.stream(**wanted) as events:
            first: anthropic.types.Message = events.get_final_message()
    else:
        first = other.messages.create(**wanted)
    assert first.stop_reason == "tool_use"
    [asking] = [block for block in first.content if block.type == "tool_use"]
    assert str(asking.input["city"]).lower().startswith("pune")
    result = {"type": "tool_result", "tool_use_id": asking.id, "content": "31 degrees"}
    turns = [
        *asked,
        {"role": "assistant", "content": first.content},
        {"role": "user", "content": [result]},
    ]
    second = other.messages.create(**{**wanted, "messages": turns, "tools": []})
    assert second.content[0].type == "text"
    assert "31" in second.content[0].text


def test_a_messages_schema_is_enforced(other: Anthropic) -> None:
    schema = {
        "type": "object",
        "properties": {"name": {"type": "string"}, "age": {"type": "integer"}},
        "required": ["name", "age"],
        "additionalProperties": False,
    }
    answer = other.messages.create(
        model="chat",
        max_tokens=100,
        messages=said("Invent a person, as prose, please."),
        output_config={"format": {"type": "json_schema", "schema": schema}},
        extra_body={"temperature": 0},
    )
    assert answer.content[0].type == "text"
    assert set(json.loads(answer.content[0].text)) == {"name", "age"}
