"""What a request's fields must mean together, whatever the model."""

from typing import Any

import msgspec
import pytest

from tiffin.dialects.openai.parameters import ALWAYS_UNSUPPORTED, LOCAL_UNSUPPORTED
from tiffin.dialects.openai.requests import decode
from tiffin.dialects.openai.validate import MAX_PROMPTS, chosen_tool, validate
from tiffin.errors import InvalidRequest, SchemaViolation, UnsupportedParameter

USER = {"role": "user", "content": "hi"}
CALL = {"id": "c1", "type": "function", "function": {"name": "add", "arguments": "{}"}}
TOOL = {"type": "function", "function": {"name": "add", "parameters": {"type": "object"}}}
SCHEMA = {"name": "s", "schema": {"type": "object"}}
NAMED = {"type": "function", "function": {"name": "add"}}


def check(kind: str, unsupported: frozenset[str] = LOCAL_UNSUPPORTED, **fields: Any) -> None:
    body = msgspec.json.encode({"model": "m", **fields})
    validate(decode(kind, body), unsupported=unsupported)


def chat(**fields: Any) -> None:
    check("chat", **{"messages": [USER], **fields})


def refusal(kind: str, **fields: Any) -> InvalidRequest:
    with pytest.raises(InvalidRequest) as caught:
        check(kind, **fields)
    return caught.value


@pytest.mark.parametrize(
    "fields",
    [
        {},
        {"temperature": 0, "top_p": 1, "n": 8, "seed": 0, "max_tokens": 1, "stop": "x"},
        {"stream": True, "stream_options": {"include_usage": True, "include_obfuscation": False}},
        {"max_tokens": 5, "max_completion_tokens": 5},
        {"max_completion_tokens": 5},
        {"logprobs": True, "top_logprobs": 20},
        {"logprobs": False},
        {"logit_bias": {"0": -100, "50256": 100}},
        {"tools": [TOOL]},
        {"tools": [TOOL], "tool_choice": "required", "parallel_tool_calls": False},
        {"tools": [TOOL], "tool_choice": NAMED},
        {"tools": [{"type": "function", "function": {"name": "f", "strict": False}}]},
        {"parallel_tool_calls": False},
        {"response_format": {"type": "json_object"}},
        {"response_format": {"type": "json_schema", "json_schema": SCHEMA}},
        {"user": "u", "metadata": {"a": "b"}, "safety_identifier": "s", "prompt_cache_key": "k"},
        {"store": False, "service_tier": "auto", "modalities": ["text"], "verbosity": "medium"},
        {"audio": None, "functions": None, "reasoning_effort": None},
    ],
    ids=str,
)
def test_what_chat_accepts(fields: dict[str, Any]) -> None:
    chat(**fields)


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"stream_options": {"include_usage": True}}, "stream_options"),
        ({"stream": False, "stream_options": {}}, "stream_options"),
        ({"max_tokens": 5, "max_completion_tokens": 6}, "max_completion_tokens"),
        ({"top_logprobs": 1}, "top_logprobs"),
        ({"top_logprobs": 0, "logprobs": False}, "top_logprobs"),
        ({"logit_bias": {"5\n": 1}}, "logit_bias"),
        ({"tool_choice": "auto"}, "tool_choice"),
        ({"tools": [TOOL], "tool_choice": "any"}, "tool_choice"),
        ({"tools": [TOOL], "tool_choice": {"type": "function"}}, "tool_choice"),
        ({"tools": [TOOL], "tool_choice": {**NAMED, "x": 1}}, "tool_choice"),
        (
            {
                "tools": [TOOL],
                "tool_choice": {"type": "function", "function": {"name": "subtract"}},
            },
            "tool_choice.function.name",
        ),
        ({"tools": [{**TOOL, "type": "search"}]}, "tools[0].type"),
        ({"tools": [TOOL, TOOL]}, "tools[1].function.name"),
        ({"tools": [{"type": "function", "function": {"name": "f\n"}}]}, "tools[0].function.name"),
        (
            {"tools": [{"type": "function", "function": {"name": "f", "parameters": {"type": 1}}}]},
            "tools[0].function.parameters.type",
        ),
        ({"response_format": {"type": "xml"}}, "response_format.type"),
        ({"response_format": {"type": "json_schema"}}, "response_format.json_schema"),
        (
            {"response_format": {"type": "json_schema", "json_schema": {"name": "s"}}},
            "response_format.json_schema.schema",
        ),
        (
            {"response_format": {"type": "json_schema", "json_schema": {**SCHEMA, "name": "a\n"}}},
            "response_format.json_schema.name",
        ),
        (
            {"response_format": {"type": "text", "json_schema": SCHEMA}},
            "response_format.json_schema",
        ),
    ],
    ids=str,
)
def test_what_chat_refuses(fields: dict[str, Any], param: str) -> None:
    error = refusal("chat", messages=[USER], **fields)
    assert type(error) is SchemaViolation
    assert error.param == param


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"store": True}, "store"),
        ({"service_tier": "priority"}, "service_tier"),
        ({"reasoning_effort": "high"}, "reasoning_effort"),
        ({"verbosity": "low"}, "verbosity"),
        ({"modalities": ["text", "audio"]}, "modalities"),
        ({"audio": {"voice": "x"}}, "audio"),
        ({"prediction": {}}, "prediction"),
        ({"web_search_options": {}}, "web_search_options"),
        ({"functions": []}, "functions"),
        ({"function_call": "auto"}, "function_call"),
        ({"prompt_cache_retention": "24h"}, "prompt_cache_retention"),
        (
            {"stream": True, "stream_options": {"include_obfuscation": True}},
            "stream_options.include_obfuscation",
        ),
        (
            {"tools": [{"type": "function", "function": {"name": "f", "strict": True}}]},
            "tools[0].function.strict",
        ),
    ],
    ids=str,
)
def test_what_a_local_model_cannot_honour_is_refused_by_name(
    fields: dict[str, Any], param: str
) -> None:
    error = refusal("chat", messages=[USER], **fields)
    assert type(error) is UnsupportedParameter
    assert error.param == param


def test_a_remote_model_may_honour_more() -> None:
    chat(
        unsupported=ALWAYS_UNSUPPORTED,
        reasoning_effort="high",
        service_tier="flex",
        audio={"voice": "x"},
        functions=[{"name": "f"}],
    )
    check("completion", unsupported=ALWAYS_UNSUPPORTED, prompt="a", n=2, best_of=3, suffix="x")
    error = refusal("chat", messages=[USER], store=True, unsupported=ALWAYS_UNSUPPORTED)
    assert error.param == "store"


def test_tools_may_be_unsupported() -> None:
    without = LOCAL_UNSUPPORTED | {"tools", "tool_choice"}
    assert refusal("chat", unsupported=without, messages=[USER], tools=[TOOL]).param == "tools"
    fields = {"messages": [USER], "tools": [TOOL]}
    assert refusal("tokenize", unsupported=without, **fields).param == "tools"


def nested(depth: int) -> dict[str, Any]:
    value: dict[str, Any] = {}
    for _ in range(depth - 1):
        value = {"a": value}
    return value


def test_schemas_are_bounded_in_depth_and_size() -> None:
    def tool(number: int, parameters: dict[str, Any]) -> dict[str, Any]:
        return {"type": "function", "function": {"name": f"f{number}", "parameters": parameters}}

    chat(tools=[tool(0, nested(64))])
    error = refusal("chat", messages=[USER], tools=[tool(0, nested(65))])
    assert "64 deep" in error.message
    error = refusal("chat", messages=[USER], tools=[tool(0, {"a": "x" * 65_536})])
    assert error.param == "tools[0].function.parameters"
    error = refusal("chat", messages=[USER], tools=[tool(n, {"a": "x" * 60_000}) for n in range(5)])
    assert error.param == "tools"
    deep = {"type": "json_schema", "json_schema": {"name": "s", "schema": nested(65)}}
    assert "deep" in refusal("chat", messages=[USER], response_format=deep).message


def test_free_form_values_of_remote_models_are_bounded_too() -> None:
    error = refusal("chat", messages=[USER], audio=nested(65), unsupported=ALWAYS_UNSUPPORTED)
    assert error.param == "audio"


@pytest.mark.parametrize(
    "fields",
    [
        {"prompt": "a"},
        {"prompt": ["a", "b"], "n": 2, "best_of": 2},
        {"prompt": [1, 2]},
        {"prompt": [[1], [2, 3]]},
        {"prompt": "a", "echo": True, "logprobs": None},
        {"prompt": "a", "echo": False, "logprobs": 5, "suffix": ""},
        {"prompt": ["a"] * MAX_PROMPTS, "n": 8},
    ],
    ids=str,
)
def test_what_completions_accept(fields: dict[str, Any]) -> None:
    check("completion", **fields)


@pytest.mark.parametrize(
    ("fields", "param", "cls"),
    [
        ({"prompt": ""}, "prompt", SchemaViolation),
        ({"prompt": []}, "prompt", SchemaViolation),
        ({"prompt": ["a", ""]}, "prompt[1]", SchemaViolation),
        ({"prompt": [[1], []]}, "prompt[1]", SchemaViolation),
        ({"prompt": ["a", 1]}, "prompt", SchemaViolation),
        ({"prompt": [1, [1]]}, "prompt", SchemaViolation),
        ({"prompt": ["a"] * (MAX_PROMPTS + 1)}, "prompt", SchemaViolation),
        ({"prompt": "a", "n": 2, "best_of": 1}, "best_of", SchemaViolation),
        ({"prompt": "a", "best_of": 2}, "best_of", UnsupportedParameter),
        ({"prompt": "a", "suffix": "b"}, "suffix", UnsupportedParameter),
        ({"prompt": "a", "echo": True, "logprobs": 0}, "logprobs", UnsupportedParameter),
        ({"prompt": "a", "stream_options": {}}, "stream_options", SchemaViolation),
    ],
    ids=str,
)
def test_what_completions_refuse(
    fields: dict[str, Any], param: str, cls: type[InvalidRequest]
) -> None:
    error = refusal("completion", **fields)
    assert type(error) is cls
    assert error.param == param


def test_the_best_of_several_cannot_be_streamed() -> None:
    error = refusal(
        "completion", unsupported=ALWAYS_UNSUPPORTED, prompt="a", best_of=2, stream=True
    )
    assert "streamed" in error.message


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({}, "prompt"),
        ({"prompt": "a", "messages": [USER]}, "messages"),
        ({"prompt": "a", "tools": [TOOL]}, "tools"),
        ({"messages": [{"role": "user"}]}, "messages[0].content"),
        ({"messages": [USER], "tools": [TOOL, TOOL]}, "tools[1].function.name"),
    ],
    ids=str,
)
def test_what_tokenize_refuses(fields: dict[str, Any], param: str) -> None:
    assert refusal("tokenize", **fields).param == param


def test_what_tokenize_and_detokenize_accept() -> None:
    check("tokenize", prompt="")
    check("tokenize", messages=[USER], tools=[TOOL], add_special_tokens=False)
    check("detokenize", tokens=[])


@pytest.mark.parametrize(
    ("choice", "name"),
    [("auto", None), (None, None), (NAMED, "add"), ({"type": "function", "function": 1}, None)],
    ids=str,
)
def test_the_chosen_tool(choice: str | dict[str, Any] | None, name: str | None) -> None:
    assert chosen_tool(choice) == name


@pytest.mark.parametrize(
    "messages",
    [
        [{"role": "system", "content": "a"}, {"role": "developer", "content": ""}, USER],
        [{"role": "user", "content": [{"type": "text", "text": "a"}], "name": "bob"}],
        [USER, {"role": "assistant", "content": "a"}, USER],
        [USER, {"role": "assistant", "tool_calls": [CALL]}],
        [USER, {"role": "assistant", "content": "a", "tool_calls": [], "annotations": []}],
        [{"role": "tool", "content": "3", "tool_call_id": "c1"}],
        [{"role": "assistant", "content": "", "refusal": None, "audio": None}],
    ],
    ids=str,
)
def test_conversations_that_are_accepted(messages: list[Any]) -> None:
    chat(messages=messages)


@pytest.mark.parametrize(
    ("message", "param", "cls"),
    [
        ({"role": "user"}, "content", SchemaViolation),
        ({"role": "tool", "tool_call_id": "c"}, "content", SchemaViolation),
        ({"role": "assistant"}, "content", SchemaViolation),
        ({"role": "assistant", "tool_calls": []}, "content", SchemaViolation),
        ({"role": "owner", "content": "a"}, "role", SchemaViolation),
        ({"role": "function", "content": "a"}, "role", UnsupportedParameter),
        ({"role": "tool", "content": "a"}, "tool_call_id", SchemaViolation),
        ({"role": "user", "content": "a", "tool_call_id": "c"}, "tool_call_id", SchemaViolation),
        ({"role": "user", "content": "a", "tool_calls": [CALL]}, "tool_calls", SchemaViolation),
        ({"role": "user", "content": "a", "refusal": "no"}, "refusal", SchemaViolation),
        ({"role": "assistant", "refusal": "no"}, "refusal", UnsupportedParameter),
        ({"role": "assistant", "function_call": {}}, "function_call", UnsupportedParameter),
        ({"role": "assistant", "audio": {"id": "a"}}, "audio", UnsupportedParameter),
        ({"role": "assistant", "annotations": [1]}, "annotations", UnsupportedParameter),
        (
            {"role": "assistant", "tool_calls": [{**CALL, "type": "custom"}]},
            "tool_calls[0].type",
            SchemaViolation,
        ),
        (
            {"role": "user", "content": [{"type": "image_url", "image_url": {"url": "x"}}]},
            "content[0].type",
            UnsupportedParameter,
        ),
        ({"role": "user", "content": [{"type": "video"}]}, "content[0].type", SchemaViolation),
        ({"role": "user", "content": [{"type": "text"}]}, "content[0].text", SchemaViolation),
        (
            {"role": "user", "content": [{"type": "text", "text": "a", "file": 1}]},
            "content[0].file",
            SchemaViolation,
        ),
    ],
    ids=str,
)
def test_messages_that_are_refused(
    message: dict[str, Any], param: str, cls: type[InvalidRequest]
) -> None:
    error = refusal("chat", messages=[USER, message])
    assert type(error) is cls
    assert error.param == f"messages[1].{param}"


def test_a_remote_model_may_see_images_and_hear_refusals() -> None:
    image = {"type": "image_url", "image_url": {"url": "x"}}
    refused = {"type": "refusal", "refusal": "no"}
    chat(
        unsupported=ALWAYS_UNSUPPORTED,
        messages=[
            {"role": "user", "content": [image]},
            {"role": "assistant", "content": [refused]},
            {"role": "assistant", "refusal": "no"},
        ],
    )
    error = refusal(
        "chat", unsupported=ALWAYS_UNSUPPORTED, messages=[{"role": "user", "content": [refused]}]
    )
    assert error.param == "messages[0].content[0].type"


def test_a_refusal_never_repeats_more_than_a_little() -> None:
    error = refusal("chat", messages=[{"role": "x" * 5_000, "content": "secret" * 100}])
    assert len(error.message) < 250
    assert "secret" not in error.message
