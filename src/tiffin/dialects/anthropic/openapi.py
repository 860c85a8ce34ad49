"""The Messages API's part of the OpenAPI document: paths and schemas."""

from http import HTTPStatus

import msgspec

from tiffin.dialects.anthropic.errors import status_of, type_of
from tiffin.dialects.anthropic.requests import NEUTRAL, WITHOUT_EFFECT
from tiffin.dialects.openai.openapi import EVENTS, JSON, inference
from tiffin.dialects.openai.openapi_schemas import REF, Schema, open_object, ref, simplify
from tiffin.errors import every_error
from tiffin.types.messages import CountRequest, MessagesRequest

DESCRIPTION = """\
Anthropic's Messages API, over any chat model. Which fields a content block has depends on its \
`type`. What only Anthropic's own models honour is refused by name on \
others, and not listed here."""

_TEXT: Schema = {"type": "string"}
_COUNT: Schema = {"type": "integer", "minimum": 0}


def paths() -> Schema:
    """The endpoints."""
    events = {
        "type": "object",
        "properties": {"data": _TEXT},
        "required": ["data"],
        "description": "A typed event, from `message_start` to `message_stop`.",
    }
    create = inference(
        "createMessage",
        "Answer a conversation, whole or as typed events",
        "MessagesRequest",
        {JSON: ref("MessageAnswer"), EVENTS: events},
    )
    count = inference(
        "countMessageTokens",
        "How many tokens a conversation has, as its model counts them",
        "CountRequest",
        {JSON: open_object({"input_tokens": _COUNT})},
    )
    for operation in (create, count):
        ok = operation["responses"]["200"]
        operation["responses"] = {"200": ok, **_errors()}
    return {
        "/v1/messages": {"post": {**create, "description": DESCRIPTION}},
        "/v1/messages/count_tokens": {"post": count},
    }


def schemas() -> dict[str, Schema]:
    """Requests and answers, by name."""
    _, found = msgspec.json.schema_components(
        [MessagesRequest, CountRequest], ref_template=REF + "{name}"
    )
    for schema in found.values():
        simplify(schema)
        for name in [*NEUTRAL]:
            schema["properties"].pop(name, None)
        for name, what in WITHOUT_EFFECT.items():
            if name in schema["properties"]:
                told = {"description": f"Accepted without effect: {what}."}
                schema["properties"][name] = {**schema["properties"][name], **told}
    return {**found, **_answers()}


def _answers() -> dict[str, Schema]:
    usage = open_object({"input_tokens": _COUNT, "output_tokens": _COUNT})
    message = {
        "id": _TEXT,
        "type": {"const": "message"},
        "role": {"const": "assistant"},
        "model": _TEXT,
        "content": {"type": "array", "items": open_object({"type": _TEXT})},
        "stop_reason": _TEXT,
        "stop_sequence": {"type": ["string", "null"]},
        "usage": usage,
    }
    error = {"type": {"const": "error"}, "error": open_object({"type": _TEXT, "message": _TEXT})}
    return {"MessageAnswer": open_object(message), "MessageError": open_object(error)}


def _errors() -> Schema:
    """Every status that an error may have, with the types that go with it."""
    types: dict[int, set[str]] = {}
    for cls in every_error():
        error = cls("")
        types.setdefault(status_of(error), set()).add(type_of(error))
    content = {JSON: {"schema": ref("MessageError")}}
    return {
        str(status): {
            "description": f"{_phrase(status)}: {', '.join(sorted(names))}",
            "content": content,
        }
        for status, names in sorted(types.items())
    }


def _phrase(status: int) -> str:
    try:
        return HTTPStatus(status).phrase
    except ValueError:
        return "Overloaded"
