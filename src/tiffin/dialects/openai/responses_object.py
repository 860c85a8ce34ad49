"""The `response` object: what was asked, what came of it, and what it used."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import msgspec

from tiffin.types.ids import new_id
from tiffin.types.responses import ResponseRequest
from tiffin.types.usage import Usage

encode = msgspec.json.Encoder().encode

# Why a chat ended, where its answer isn't complete; everything else is an end that was meant.
_CUT_OFF = {"length": "max_output_tokens", "content_filter": "content_filter"}


@dataclass(slots=True)
class Outcome:
    """How an answer stands. `finish` is the chat's reason, empty while it runs; `cost` is what the
    usage costs, empty where nobody says."""

    output: list[dict[str, Any]] = field(default_factory=list)
    finish: str = ""
    usage: Usage | None = None
    cost: str = ""

    @property
    def status(self) -> str:
        """`in_progress`, `completed` or `incomplete`."""
        if not self.finish:
            return "in_progress"
        return "incomplete" if self.finish in _CUT_OFF else "completed"


class Form:
    """Everything of one response that is known before its answer: id, time, what was asked."""

    def __init__(self, request: ResponseRequest, created: int) -> None:
        self.id = new_id("resp")
        self._head = {"id": self.id, "object": "response", "created_at": created}
        self._asked = _asked(request)

    def response(self, outcome: Outcome, *, store: bool) -> dict[str, Any]:
        """The whole object. `store` is whether it is, or is to be, kept."""
        reason = _CUT_OFF.get(outcome.finish)
        return {
            **self._head,
            "status": outcome.status,
            "background": False,
            "error": None,
            "incomplete_details": None if reason is None else {"reason": reason},
            **self._asked,
            "output": outcome.output,
            "store": store,
            "usage": _usage(outcome.usage, outcome.cost),
        }


def _asked(request: ResponseRequest) -> dict[str, Any]:
    wanted = request.text.format if request.text else None
    told = {"type": "text"} if wanted is None else msgspec.to_builtins(wanted)
    if told["type"] == "json_schema":
        told = {"strict": None, "description": None, **told}
    tools = msgspec.to_builtins(request.tools or [])
    return {
        "instructions": request.instructions,
        "max_output_tokens": request.max_output_tokens,
        "max_tool_calls": None,
        "metadata": request.metadata or {},
        "model": request.model,
        "parallel_tool_calls": request.parallel_tool_calls is not False,
        "previous_response_id": request.previous_response_id,
        "reasoning": {
            "effort": request.reasoning.effort if request.reasoning else None,
            "summary": None,
        },
        "safety_identifier": request.safety_identifier,
        "prompt_cache_key": request.prompt_cache_key,
        "service_tier": "flex" if request.service_tier == "flex" else "default",
        "temperature": request.temperature,
        "text": {"format": told, "verbosity": "medium"},
        "tool_choice": request.tool_choice or "auto",
        "tools": [{"parameters": None, "strict": None, **tool} for tool in tools],
        "top_logprobs": 0,
        "top_p": request.top_p,
        "truncation": "disabled",
        "user": request.user,
    }


def _usage(usage: Usage | None, cost: str) -> dict[str, Any] | None:
    if usage is None or not usage.measured:
        return None
    return {
        "input_tokens": usage.prompt_tokens,
        "input_tokens_details": {"cached_tokens": usage.cached_tokens, "cache_write_tokens": 0},
        "output_tokens": usage.completion_tokens,
        "output_tokens_details": {"reasoning_tokens": usage.reasoning_tokens},
        "total_tokens": usage.prompt_tokens + usage.completion_tokens,
        "tiffin": {
            "queue_ns": usage.queue_ns,
            "device_ns": usage.device_ns,
            "reason": usage.reason,
            **({"cost": cost} if cost else {}),
        },
    }


def part(kind: str, text: str) -> dict[str, Any]:
    """A part of a message: `output_text` or `refusal`."""
    if kind == "refusal":
        return {"type": "refusal", "refusal": text}
    return {"type": "output_text", "text": text, "annotations": [], "logprobs": []}


def message_item(name: str, status: str, parts: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """What a model said."""
    said = {"id": name, "type": "message", "role": "assistant", "status": status}
    return {**said, "content": list(parts)}


def call_item(
    name: str, status: str, *, call_id: str, function: str, arguments: str
) -> dict[str, Any]:
    """A call that a model asks for."""
    return {
        "id": name,
        "type": "function_call",
        "status": status,
        "call_id": call_id,
        "name": function,
        "arguments": arguments,
    }
