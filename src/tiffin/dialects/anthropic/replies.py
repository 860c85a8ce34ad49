"""A chat's answer as a message of Anthropic's API: what it is made of, and the whole of it."""

from collections.abc import Collection
from typing import Any

import msgspec

from tiffin.dialects.openai.answers import only_choice
from tiffin.errors import UpstreamFailed
from tiffin.types.ids import new_id
from tiffin.types.usage import Usage

encode = msgspec.json.Encoder().encode

_REASONS = {"length": "max_tokens", "tool_calls": "tool_use", "content_filter": "refusal"}


def message_head(model: str) -> dict[str, Any]:
    """A message before it says anything."""
    return {
        "id": new_id("msg"),
        "type": "message",
        "role": "assistant",
        "model": model,
        "content": [],
        "stop_reason": None,
        "stop_sequence": None,
    }


def stop_of(finish: str | None, matched: Any, stops: Collection[str]) -> dict[str, str | None]:
    """Why a message ended; `matched` is the stop text that did it, where a server says so."""
    if isinstance(matched, str) and matched in stops:
        return {"stop_reason": "stop_sequence", "stop_sequence": matched}
    return {"stop_reason": _REASONS.get(finish or "stop", "end_turn"), "stop_sequence": None}


def usage_object(usage: Usage, cost: str = "") -> dict[str, Any]:
    """Usage as the wire has it: what was read from a cache isn't in `input_tokens`."""
    told: dict[str, Any] = {
        "input_tokens": max(0, usage.prompt_tokens - usage.cached_tokens),
        "cache_creation_input_tokens": 0,
        "cache_read_input_tokens": usage.cached_tokens,
        "output_tokens": usage.completion_tokens,
    }
    if cost:
        told["tiffin"] = {"cost": cost}
    return told


def tool_use(name: str, call_id: str, given: Any) -> dict[str, Any]:
    """A block that asks for a tool."""
    return {"type": "tool_use", "id": call_id, "name": name, "input": given}


def whole_message(body: bytes, model: str, usage: Usage, stops: Collection[str]) -> bytes:
    """The message that a chat's whole answer makes; raises `UpstreamFailed` where it is none."""
    choice = only_choice(body)
    said = choice.message
    text = said.content or said.refusal
    blocks: list[dict[str, Any]] = [{"type": "text", "text": text}] if text else []
    for call in said.tool_calls or ():
        given = input_of(call.function.arguments)
        blocks.append(tool_use(call.function.name, call.id, given))
    return encode(
        {
            **message_head(model),
            "content": blocks,
            **stop_of(choice.finish_reason, choice.stop_reason, stops),
            "usage": usage_object(usage),
        }
    )


def input_of(arguments: str) -> dict[str, Any]:
    """A call's arguments, as an object; raises `UpstreamFailed` where they are none."""
    try:
        return msgspec.json.decode(arguments or "{}", type=dict[str, Any])
    except msgspec.DecodeError as error:
        raise UpstreamFailed("a call's arguments are no JSON object") from error
