"""Answers of Anthropic's Messages API as a chat's: whole, or chunk by chunk."""

from typing import Any

import msgspec

from tiffin.dialects.anthropic.native import Used
from tiffin.dialects.events import Events, payload_of
from tiffin.dialects.openai.replies import DONE
from tiffin.errors import UpstreamFailed

encode = msgspec.json.Encoder().encode

_FINISHES = {
    "max_tokens": "length",
    "model_context_window_exceeded": "length",
    "tool_use": "tool_calls",
    "refusal": "content_filter",
}


class _Block(msgspec.Struct):
    type: str
    text: str = ""
    thinking: str = ""
    id: str = ""
    name: str = ""
    input: Any = None


class _Message(msgspec.Struct):
    content: list[_Block]
    id: str = ""
    model: str = ""
    stop_reason: str | None = None
    usage: Used | None = None


class _Delta(msgspec.Struct):
    type: str = ""
    text: str = ""
    thinking: str = ""
    partial_json: str = ""
    stop_reason: str | None = None


class _Event(msgspec.Struct):
    type: str = ""
    index: int = 0
    message: _Message | None = None
    content_block: _Block | None = None
    delta: _Delta | None = None
    usage: Used | None = None
    error: Any = None


_MESSAGES = msgspec.json.Decoder(_Message)
_EVENTS = msgspec.json.Decoder(_Event)


def completion(body: bytes, created: int) -> bytes:
    """The chat completion that a whole message makes; raises `UpstreamFailed` where it is none."""
    try:
        message = _MESSAGES.decode(body)
    except msgspec.DecodeError as error:
        raise UpstreamFailed("the answer is no message") from error
    said: dict[str, Any] = {"role": "assistant", "content": _joined(message, "text")}
    if thought := _joined(message, "thinking"):
        said["reasoning_content"] = thought
    uses = [block for block in message.content if block.type == "tool_use"]
    if uses:
        said["tool_calls"] = [_call(block, encode(block.input or {}).decode()) for block in uses]
    choice = {"index": 0, "message": said, "finish_reason": finish_of(message.stop_reason)}
    head = _head(message, "chat.completion", created)
    told: dict[str, Any] = {**head, "choices": [choice]}
    if message.usage is not None:
        told["usage"] = usage_of(message.usage)
    return encode(told)


def _joined(message: _Message, kind: str) -> str | None:
    texts = [getattr(block, kind) for block in message.content if block.type == kind]
    return "".join(texts) if texts else None


def _call(block: _Block, arguments: str) -> dict[str, Any]:
    function = {"name": block.name, "arguments": arguments}
    return {"id": block.id, "type": "function", "function": function}


def _head(message: _Message, kind: str, created: int) -> dict[str, Any]:
    return {"id": message.id, "object": kind, "created": created, "model": message.model}


def finish_of(reason: str | None) -> str:
    """Why a chat ended, by why a message did."""
    return _FINISHES.get(reason or "", "stop")


def usage_of(used: Used) -> dict[str, Any]:
    """Usage as a chat has it: all of the input, and what of it a cache gave or took."""
    usage = used.usage()
    return {
        "prompt_tokens": usage.prompt_tokens,
        "completion_tokens": usage.completion_tokens,
        "total_tokens": usage.prompt_tokens + usage.completion_tokens,
        "prompt_tokens_details": {
            "cached_tokens": usage.cached_tokens,
            "cache_write_tokens": used.cache_creation_input_tokens or 0,
        },
        "completion_tokens_details": {"reasoning_tokens": usage.reasoning_tokens},
    }


class ChunksOfEvents:
    """Turns a stream of events into a chat's chunks.

    A stream that ends without its last event makes one without `[DONE]`.
    """

    def __init__(self, created: int) -> None:
        self._created = created
        self._events = Events()
        self._head: dict[str, Any] = {}
        self._calls: dict[int, int] = {}
        self._used = Used()
        self._reason: str | None = None

    def feed(self, data: bytes) -> bytes:
        """The chunks that these bytes make; raises `UpstreamFailed` where they make no sense."""
        try:
            events = self._events.feed(data)
            return b"".join([self._take(payload_of(event)) for event in events])
        except (msgspec.DecodeError, ValueError) as error:
            raise UpstreamFailed("the stream has an event that is none of a message's") from error

    def _take(self, payload: bytes) -> bytes:
        if not payload:
            return b""
        event = _EVENTS.decode(payload)
        used = event.message.usage if event.message is not None else event.usage
        if used is not None:
            self._used = used.over(self._used)
        match event.type:
            case "message_start" if event.message is not None:
                self._head = _head(event.message, "chat.completion.chunk", self._created)
                return self._chunk({"role": "assistant", "content": ""})
            case "message_delta" if event.delta is not None:
                self._reason = event.delta.stop_reason
            case "message_stop":
                return self._end()
            case "error":
                return b"data: %b\n\n" % encode({"error": event.error or {}})
        return self._content(event)

    def _content(self, event: _Event) -> bytes:
        if event.type == "content_block_start" and event.content_block is not None:
            return self._start(event.index, event.content_block)
        if event.type == "content_block_delta" and event.delta is not None:
            return self._add(event.index, event.delta)
        return b""

    def _start(self, index: int, block: _Block) -> bytes:
        if block.type == "tool_use":
            at = self._calls[index] = len(self._calls)
            return self._chunk({"tool_calls": [{"index": at, **_call(block, "")}]})
        return self._chunk({"content": block.text}) if block.text else b""

    def _add(self, index: int, delta: _Delta) -> bytes:
        match delta.type:
            case "text_delta":
                return self._chunk({"content": delta.text})
            case "thinking_delta":
                return self._chunk({"reasoning_content": delta.thinking})
            case "input_json_delta" if index in self._calls:
                part = {"arguments": delta.partial_json}
                call = {"index": self._calls[index], "function": part}
                return self._chunk({"tool_calls": [call]})
        return b""

    def _chunk(self, delta: dict[str, Any], finish: str | None = None) -> bytes:
        choice = {"index": 0, "delta": delta, "finish_reason": finish}
        return b"data: %b\n\n" % encode({**self._head, "choices": [choice]})

    def _end(self) -> bytes:
        last = self._chunk({}, finish_of(self._reason))
        told = {**self._head, "choices": [], "usage": usage_of(self._used)}
        return b"%bdata: %b\n\n%b" % (last, encode(told), DONE)
