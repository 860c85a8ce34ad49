"""The schemas of the OpenAPI document: generated from the types, with what spans fields added.

They describe what every model accepts. What only some remote models honour is left out.
"""

from typing import Any

import msgspec

from tiffin.dialects.openai.conversation import ROLES
from tiffin.dialects.openai.errors import TABLE
from tiffin.dialects.openai.models import Model, ModelList
from tiffin.dialects.openai.parameters import LOCAL_UNSUPPORTED, NEUTRAL, WITHOUT_EFFECT
from tiffin.dialects.openai.validate import MAX_PROMPTS
from tiffin.types.text import (
    ChatRequest,
    CompletionRequest,
    DetokenizeRequest,
    TokenizeRequest,
)

Schema = dict[str, Any]

REF = "#/components/schemas/"

# A limit that is beyond what a body can hold says nothing.
_MAX_TOLD_ITEMS = 10_000


def ref(name: str) -> Schema:
    """A reference to a schema of the document."""
    return {"$ref": REF + name}


def request_schemas() -> dict[str, Schema]:
    """Every request and what is in it, by name."""
    _, found = msgspec.json.schema_components(
        [ChatRequest, CompletionRequest, TokenizeRequest, DetokenizeRequest, Model, ModelList],
        ref_template=REF + "{name}",
    )
    for schema in found.values():
        simplify(schema)
    _keep_supported(found["ChatRequest"])
    _keep_supported(found["CompletionRequest"])
    found["Part"] = closed_object({"type": {"const": "text"}, "text": {"type": "string"}})
    found["Message"] = _message(found["Message"]["properties"])
    _amend_tools(found)
    _amend_chat(found["ChatRequest"])
    _amend_completion(
        found["CompletionRequest"], found["DetokenizeRequest"]["properties"]["tokens"]
    )
    found["TokenizeRequest"] = _tokenize(found["TokenizeRequest"])
    return found


def simplify(schema: Schema) -> None:
    """Leave out what says nothing: defaults that are null, and limits beyond any body."""
    if schema.get("maxItems", 0) > _MAX_TOLD_ITEMS:
        del schema["maxItems"]
    if schema.get("default", 0) is None:
        del schema["default"]
    for value in list(schema.values()):
        for inner in value if isinstance(value, list) else [value]:
            if isinstance(inner, dict):
                simplify(inner)


def _keep_supported(schema: Schema) -> None:
    for name in list(schema["properties"]):
        if name in WITHOUT_EFFECT:
            schema["properties"][name]["description"] = (
                f"Accepted without effect: {WITHOUT_EFFECT[name]}."
            )
        if name not in LOCAL_UNSUPPORTED:
            continue
        if name in NEUTRAL:
            schema["properties"][name] = {"enum": [*NEUTRAL[name], None]}
        else:
            del schema["properties"][name]


def closed_object(properties: Schema, *optional: str) -> Schema:
    """An object of these fields and no others."""
    return {
        "type": "object",
        "properties": properties,
        "required": [name for name in properties if name not in optional],
        "additionalProperties": False,
    }


def _message(fields: Schema) -> Schema:
    text: Schema = {"anyOf": fields["content"]["anyOf"][:2]}
    calls: Schema = fields["tool_calls"]["anyOf"][0]
    name = {"name": fields["name"]}
    asked = [role for role in ROLES if role not in ("assistant", "tool")]
    says = {"role": {"const": "assistant"}, "content": text}
    no_calls: Schema = {"anyOf": [{**calls, "maxItems": 0}, {"type": "null"}]}
    return {
        "description": "One turn of a conversation; what it carries depends on its role.",
        "anyOf": [
            closed_object({"role": {"enum": asked}, "content": text, **name}, "name"),
            closed_object({**says, "tool_calls": no_calls, **name}, "tool_calls", "name"),
            closed_object(
                {
                    "role": {"const": "assistant"},
                    "content": fields["content"],
                    "tool_calls": {**calls, "minItems": 1},
                    **name,
                },
                "content",
                "name",
            ),
            closed_object(
                {
                    "role": {"const": "tool"},
                    "content": text,
                    "tool_call_id": fields["tool_call_id"]["anyOf"][0],
                    **name,
                },
                "name",
            ),
        ],
    }


def _amend_tools(found: dict[str, Schema]) -> None:
    function = {"const": "function"}
    found["ToolCall"]["properties"]["type"] = function
    found["Tool"]["properties"]["type"] = function
    fields = found["Function"]["properties"]
    fields["strict"] = {"enum": [False, None]}
    schema = {"type": "object", "properties": {"type": {"const": "object"}}}
    fields["parameters"] = {"anyOf": [schema, {"type": "null"}]}
    named = found["JsonSchema"]
    named["properties"]["schema"] = {"type": "object"}
    named["required"].append("schema")
    found["ResponseFormat"] = {
        "anyOf": [
            closed_object(
                {"type": {"enum": ["text", "json_object"]}, "json_schema": {"type": "null"}},
                "json_schema",
            ),
            closed_object({"type": {"const": "json_schema"}, "json_schema": ref("JsonSchema")}),
        ]
    }
    found["StreamOptions"]["properties"]["include_obfuscation"] = {"enum": [False, None]}


def _amend_chat(chat: Schema) -> None:
    fields = chat["properties"]
    name = {"type": "string", "description": "The name of one of `tools`."}
    fields["tool_choice"] = {
        "anyOf": [
            {"enum": ["none", "auto", "required"]},
            closed_object(
                {"type": {"const": "function"}, "function": closed_object({"name": name})}
            ),
            {"type": "null"},
        ]
    }
    chat["allOf"] = [
        _needs("stream_options", "stream", {"const": True}),
        _needs("top_logprobs", "logprobs", {"const": True}),
        _needs("tool_choice", "tools", {"type": "array"}),
        {"anyOf": [_absent("max_tokens"), _absent("max_completion_tokens")]},
    ]


def _amend_completion(completion: Schema, tokens: Schema) -> None:
    fields = completion["properties"]
    ids = {**tokens, "minItems": 1}
    several = {"type": "array", "minItems": 1, "maxItems": MAX_PROMPTS}
    text = {"type": "string", "minLength": 1}
    fields["prompt"] = {
        "anyOf": [
            text,
            {**several, "items": text},
            ids,
            {**several, "items": ids},
        ]
    }
    echoes_not: Schema = {"properties": {"echo": {"enum": [False, None]}}}
    completion["allOf"] = [
        _needs("stream_options", "stream", {"const": True}),
        {"anyOf": [echoes_not, _absent("logprobs")]},
    ]


def _tokenize(schema: Schema) -> Schema:
    fields = schema["properties"]
    options = {name: fields[name] for name in ("model", "add_special_tokens", "return_token_strs")}
    either = {
        "prompt": {"type": "string"},
        "messages": fields["messages"]["anyOf"][0],
        "tools": fields["tools"],
    }
    optional = ("add_special_tokens", "return_token_strs", "tools")
    return {
        "description": schema["description"],
        "anyOf": [
            closed_object({**options, "prompt": either["prompt"]}, *optional),
            closed_object(
                {**options, "messages": either["messages"], "tools": either["tools"]}, *optional
            ),
        ],
    }


def _absent(name: str) -> Schema:
    return {"properties": {name: {"type": "null"}}}


def _needs(name: str, other: str, value: Schema) -> Schema:
    """A field may be given only where another has this value."""
    return {"anyOf": [_absent(name), {"properties": {other: value}, "required": [other]}]}


def reply_schemas() -> dict[str, Schema]:
    """Every answer, by name; remote models may add fields."""
    count: Schema = {"type": "integer", "minimum": 0}
    usage = open_object(
        {
            "prompt_tokens": count,
            "completion_tokens": count,
            "total_tokens": count,
            "prompt_tokens_details": {
                "anyOf": [open_object({"cached_tokens": count}), {"type": "null"}]
            },
            "tiffin": open_object(
                {
                    "queue_ns": count,
                    "device_ns": count,
                    "reason": {"type": "string"},
                    "cost": {"type": "string"},
                },
                *("queue_ns", "device_ns", "reason", "cost"),
            ),
        },
        "prompt_tokens_details",
        "tiffin",
    )
    index = {"index": count, "finish_reason": {"type": ["string", "null"]}}
    maybe: Schema = {"type": ["object", "null"]}
    message = open_object(
        {
            "role": {"const": "assistant"},
            "content": {"type": ["string", "null"]},
            "tool_calls": {"type": ["array", "null"], "items": ref("ToolCall")},
        },
        "tool_calls",
    )
    nullable_usage: Schema = {"anyOf": [ref("Usage"), {"type": "null"}]}
    return {
        "Usage": usage,
        "ChatCompletion": _answer(
            "chat.completion", {**index, "message": message, "logprobs": maybe}, ref("Usage")
        ),
        "ChatCompletionChunk": _answer(
            "chat.completion.chunk",
            {**index, "delta": {"type": "object"}, "logprobs": maybe},
            nullable_usage,
            "usage",
        ),
        "Completion": _answer(
            "text_completion",
            {**index, "text": {"type": "string"}, "logprobs": maybe},
            nullable_usage,
            "usage",
        ),
        "Tokens": open_object(
            {"tokens": {"type": "array", "items": count}, "count": count, "max_model_len": count},
            "max_model_len",
        ),
        "Text": open_object({"prompt": {"type": "string"}}),
        "Health": open_object({"status": {"type": "string"}}),
        "Error": open_object(
            {
                "error": open_object(
                    {
                        "message": {"type": "string"},
                        "type": {"type": "string"},
                        "param": {"type": ["string", "null"]},
                        "code": {"enum": sorted({shape.code for shape in TABLE.values()})},
                    }
                )
            }
        ),
    }


def open_object(properties: Schema, *optional: str) -> Schema:
    """An object with these fields, of which only the `optional` may be missing."""
    return {
        "type": "object",
        "properties": properties,
        "required": [name for name in properties if name not in optional],
    }


def _answer(kind: str, choice: Schema, usage: Schema, *optional: str) -> Schema:
    return open_object(
        {
            "id": {"type": "string"},
            "object": {"const": kind},
            "created": {"type": "integer"},
            "model": {"type": "string"},
            "choices": {"type": "array", "items": open_object(choice, "logprobs")},
            "usage": usage,
        },
        *optional,
    )
