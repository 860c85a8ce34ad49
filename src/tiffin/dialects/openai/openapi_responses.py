"""The Responses API's part of the OpenAPI document: paths and schemas."""

from typing import Any

import msgspec

from tiffin.dialects.openai.openapi import EVENTS, JSON, inference, operation
from tiffin.dialects.openai.openapi_schemas import (
    REF,
    Schema,
    closed_object,
    open_object,
    ref,
    simplify,
)
from tiffin.dialects.openai.parameters import WITHOUT_EFFECT
from tiffin.dialects.openai.responses_items import STATUSES
from tiffin.dialects.openai.responses_kept import DEFAULT_LIMIT, MAX_LIMIT
from tiffin.types.responses import ResponseRequest
from tiffin.types.text import MAX_MESSAGES

KEPT = """\
Responses are kept in the server's memory, for an hour at most, so that their tenant can continue \
them with `previous_response_id`; a restart loses them, and so may many or large ones after them. \
`store: false` keeps nothing; `store` of the answer says whether it was kept."""

_NULL: Schema = {"type": "null"}
_OBJECT: Schema = {"type": "object"}
_TEXT: Schema = {"type": "string"}
_MAYBE_TEXT: Schema = {"type": ["string", "null"]}
# Known, and refused by name whatever they ask for.
_NEVER = (
    *("conversation", "prompt", "max_tool_calls", "context_management", "moderation"),
    *("prompt_cache_options", "prompt_cache_retention", "background_options"),
    *("access_programs", "image"),
)


def paths() -> Schema:
    """The endpoints."""
    name = {"type": "string", "minLength": 1, "maxLength": 128, "pattern": "^[A-Za-z0-9_-]+$"}
    which = {"name": "response_id", "in": "path", "required": True, "schema": name}
    deleted = open_object({"id": _TEXT, "deleted": {"const": True}})
    events = {"type": "object", "properties": {"data": _TEXT}, "required": ["data"]}
    create = inference(
        "createResponse",
        "Answer a conversation, whole or as typed events, and keep the answer",
        "ResponseRequest",
        {JSON: ref("Response"), EVENTS: {**events, "description": "A typed event; no `[DONE]`."}},
    )
    return {
        "/v1/responses": {"post": {**create, "description": KEPT}},
        "/v1/responses/{response_id}": {
            "get": {
                **operation("getResponse", "A response that was kept", {JSON: ref("Response")}),
                "parameters": [which],
            },
            "delete": {
                **operation("deleteResponse", "Let a response go", {JSON: deleted}),
                "parameters": [which],
            },
        },
        "/v1/responses/{response_id}/input_items": {
            "get": {
                **operation(
                    "listInputItems", "What a response answered", {JSON: ref("ResponseItems")}
                ),
                "parameters": [which, *(_query(*known) for known in _QUERY)],
            },
        },
    }


_QUERY: tuple[tuple[str, Schema], ...] = (
    (
        "limit",
        {"type": "integer", "minimum": 1, "maximum": MAX_LIMIT, "default": DEFAULT_LIMIT},
    ),
    ("order", {"enum": ["asc", "desc"], "default": "desc"}),
    ("after", {"type": "string", "minLength": 1, "maxLength": 256}),
)


def _query(name: str, schema: Schema) -> Schema:
    return {"name": name, "in": "query", "required": False, "schema": schema}


def schemas() -> dict[str, Schema]:
    """Requests and answers, by name."""
    _, found = msgspec.json.schema_components([ResponseRequest], ref_template=REF + "{name}")
    for schema in found.values():
        simplify(schema)
    request, tool = found["ResponseRequest"], found["FunctionTool"]
    _amend_tool(tool)
    _amend_request(request)
    return {
        "ResponseRequest": request,
        "FunctionTool": tool,
        "ResponseItem": {"anyOf": list(_items())},
        "ResponseTextFormat": _format(found["TextFormat"]["properties"]),
        **_answers(),
    }


def _amend_tool(tool: Schema) -> None:
    fields = tool["properties"]
    for name in ("allowed_callers", "defer_loading", "output_schema", "async"):
        del fields[name]
    fields["type"] = {"const": "function"}
    fields["strict"] = {"enum": [False, None]}
    fields["parameters"] = {
        "anyOf": [{**_OBJECT, "properties": {"type": {"const": "object"}}}, _NULL]
    }


def _amend_request(request: Schema) -> None:
    fields: dict[str, Schema] = request["properties"]
    for name in _NEVER:
        del fields[name]
    for name, what in WITHOUT_EFFECT.items():
        if name in fields and name != "metadata":
            fields[name]["description"] = f"Accepted without effect: {what}."
    fields["input"] = {
        "anyOf": [_TEXT, {"type": "array", "minItems": 1, "maxItems": MAX_MESSAGES, "items": _ITEM}]
    }
    fields["tool_choice"] = {
        "anyOf": [
            {"enum": ["none", "auto", "required", None]},
            closed_object({"type": {"const": "function"}, "name": _TEXT}),
        ]
    }
    fields["text"] = _or_null(
        closed_object(
            {
                "format": _or_null(ref("ResponseTextFormat")),
                "verbosity": {"enum": ["medium", None]},
            },
            "format",
            "verbosity",
        )
    )
    fields["reasoning"] = _or_null(closed_object({"effort": {"enum": ["none", None]}}, "effort"))
    fields["stream_options"] = _or_null(
        closed_object({"include_obfuscation": {"enum": [False, None]}}, "include_obfuscation")
    )
    fields["include"] = {"type": ["array", "null"], "maxItems": 0}
    for name, neutral in (
        ("truncation", "disabled"),
        ("background", False),
        ("top_logprobs", 0),
    ):
        fields[name] = {"enum": [neutral, None]}
    fields["service_tier"] = {"enum": ["auto", "default", "flex", None]}
    request["required"] = ["model", "input"]
    streams = {"properties": {"stream": {"const": True}}, "required": ["stream"]}
    offers = {"properties": {"tools": {"type": "array", "minItems": 1}}, "required": ["tools"]}
    request["allOf"] = [
        {"anyOf": [{"properties": {"stream_options": _NULL}}, streams]},
        {"anyOf": [{"properties": {"tool_choice": {"enum": ["none", "auto", None]}}}, offers]},
    ]


_ITEM: Schema = ref("ResponseItem")


def _or_null(schema: Schema) -> Schema:
    return {"anyOf": [schema, _NULL]}


def _items() -> tuple[Schema, ...]:
    about: Schema = {
        "id": {"type": ["string", "null"], "maxLength": 256},
        "status": {"enum": [*STATUSES, None]},
    }
    call = {"type": "string", "minLength": 1, "maxLength": 256}
    name = {"type": "string", "minLength": 1, "maxLength": 64}
    anything: Schema = {"type": ["array", "null"]}
    given = _text_or_parts(closed_object({"type": {"const": "input_text"}, "text": _TEXT}))
    said = _text_or_parts(
        closed_object(
            {
                "type": {"const": "output_text"},
                "text": _TEXT,
                "annotations": anything,
                "logprobs": anything,
            },
            "annotations",
            "logprobs",
        ),
        closed_object({"type": {"const": "refusal"}, "refusal": _TEXT}),
    )
    message: Schema = {"type": {"enum": ["message", None]}}
    asks = {"role": {"enum": ["user", "system", "developer"]}, "content": given}
    says = {"role": {"const": "assistant"}, "content": said}
    calls = {"type": {"const": "function_call"}, "call_id": call, "name": name, "arguments": _TEXT}
    answers = {"type": {"const": "function_call_output"}, "call_id": call, "output": given}
    return (
        closed_object({**message, **asks, **about}, "type", *about),
        closed_object({**message, **says, **about}, "type", *about),
        closed_object({**calls, **about}, *about),
        closed_object({**answers, **about}, *about),
    )


def _text_or_parts(*parts: Schema) -> Schema:
    items: Schema = parts[0] if len(parts) == 1 else {"anyOf": list(parts)}
    return {"anyOf": [_TEXT, {"type": "array", "minItems": 1, "maxItems": 1024, "items": items}]}


def _format(fields: dict[str, Any]) -> Schema:
    nothing = dict.fromkeys(("name", "description", "schema", "strict"), _NULL)
    plain = {"type": {"enum": ["text", "json_object"]}, **nothing}
    named = {
        "type": {"const": "json_schema"},
        "name": fields["name"]["anyOf"][0],
        "schema": _OBJECT,
        "description": fields["description"],
        "strict": fields["strict"],
    }
    return {
        "anyOf": [closed_object(plain, *nothing), closed_object(named, "description", "strict")]
    }


def _answers() -> dict[str, Schema]:
    count: Schema = {"type": "integer", "minimum": 0}
    usage = open_object(
        {
            "input_tokens": count,
            "input_tokens_details": open_object({"cached_tokens": count}),
            "output_tokens": count,
            "output_tokens_details": open_object({"reasoning_tokens": count}),
            "total_tokens": count,
        }
    )
    item = open_object({"id": _TEXT, "type": _TEXT})
    response = {
        "id": _TEXT,
        "object": {"const": "response"},
        "created_at": {"type": "integer"},
        "status": {"enum": list(STATUSES)},
        "model": _TEXT,
        "output": {"type": "array", "items": item},
        "incomplete_details": _or_null(open_object({"reason": _TEXT})),
        "previous_response_id": _MAYBE_TEXT,
        "store": {"type": "boolean"},
        "usage": _or_null(usage),
    }
    page = {
        "object": {"const": "list"},
        "data": {"type": "array", "items": item},
        "first_id": _MAYBE_TEXT,
        "last_id": _MAYBE_TEXT,
        "has_more": {"type": "boolean"},
    }
    return {"Response": open_object(response), "ResponseItems": open_object(page)}
