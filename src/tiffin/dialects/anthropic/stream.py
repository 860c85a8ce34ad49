"""A chat's stream of chunks as the typed events of a streamed message.

The order is that of Anthropic's documents: `message_start`; for each block `content_block_start`,
its deltas and `content_block_stop`, one block after the other; `message_delta` with what the
message came to, `message_stop`.
"""

from collections.abc import Collection
from typing import Any

from tiffin.dialects.anthropic.replies import (
    encode,
    message_head,
    stop_of,
    tool_use,
    usage_object,
)
from tiffin.dialects.openai.answers import Call, ChunkChoice, Function
from tiffin.errors import UpstreamFailed
from tiffin.types.ids import new_id
from tiffin.types.usage import Usage

TEXT = -1
"""The open block is a text; else it is the call of that index, None where none is open."""


class MessageTelling:
    """Tells a chat's stream as a message's; satisfies `chat_reading.Telling`."""

    def __init__(self, model: str, stops: Collection[str]) -> None:
        self._model = model
        self._stops = stops
        self._out: list[bytes] = []
        self._block = -1
        self._open: int | None = None
        self._calls: set[int] = set()
        self._matched: Any = None

    def _say(self, kind: str, **fields: Any) -> None:
        told = encode({"type": kind, **fields})
        self._out.append(b"event: %b\ndata: %b\n\n" % (kind.encode(), told))

    def said(self) -> bytes:
        """What was said since the last time."""
        out = b"".join(self._out)
        self._out.clear()
        return out

    def begin(self) -> None:
        """The message's head. The use of the input is told at the end, when it is known."""
        head = {**message_head(self._model), "usage": usage_object(Usage())}
        self._say("message_start", message=head)
        self._say("ping")

    def add(self, choice: ChunkChoice) -> None:
        """Texts and calls, each in a block; raises `UpstreamFailed` where calls are mixed."""
        self._matched = choice.stop_reason or self._matched
        delta = choice.delta
        if delta is None:
            return
        if text := (delta.content or delta.refusal):
            self._text(text)
        for call in delta.tool_calls or ():
            self._call(call)

    def _text(self, text: str) -> None:
        if self._open != TEXT:
            self._start(TEXT, {"type": "text", "text": ""})
        self._more({"type": "text_delta", "text": text})

    def _call(self, call: Call) -> None:
        function = call.function or Function()
        if call.index not in self._calls:
            self._calls.add(call.index)
            self._start(call.index, tool_use(function.name or "", call.id or new_id("toolu"), {}))
        elif self._open != call.index:
            raise UpstreamFailed("the stream has several calls at once, mixed")
        if function.arguments:
            self._more({"type": "input_json_delta", "partial_json": function.arguments})

    def _start(self, which: int, block: dict[str, Any]) -> None:
        self._stop()
        self._open = which
        self._block += 1
        self._say("content_block_start", index=self._block, content_block=block)

    def _more(self, delta: dict[str, Any]) -> None:
        self._say("content_block_delta", index=self._block, delta=delta)

    def _stop(self) -> None:
        if self._open is not None:
            self._open = None
            self._say("content_block_stop", index=self._block)

    def end(self, reason: str, usage: Usage, cost: str) -> None:
        """Why it ended, and what it came to."""
        self._stop()
        self._say(
            "message_delta",
            delta=stop_of(reason, self._matched, self._stops),
            usage=usage_object(usage, cost),
        )
        self._say("message_stop")
