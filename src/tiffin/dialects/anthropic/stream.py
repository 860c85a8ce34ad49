"""A chat's stream of chunks as the typed events of a streamed message.

The order is that of Anthropic's documents: `message_start`; for each block `content_block_start`,
its deltas and `content_block_stop`, one block after the other; `message_delta` with what the
message came to, `message_stop`.
"""

from collections.abc import Callable, Collection
from typing import Any

import msgspec

from tiffin.dialects.anthropic.replies import (
    encode,
    message_head,
    stop_of,
    tool_use,
    usage_object,
)
from tiffin.dialects.events import payload_of
from tiffin.dialects.openai.answers import CHUNKS, Call, Chunk, Function
from tiffin.dialects.openai.usage import StreamScanner
from tiffin.errors import TiffinError, UpstreamFailed
from tiffin.types.ids import new_id
from tiffin.types.usage import Usage

TEXT = -1
"""The open block is a text; else it is the call of that index, None where none is open."""


class MessagesReading:
    """Turns a chat's stream into a message's; satisfies `dialects.dialect.Reading`.

    Nothing is said before there is content, so that until then another target may answer.
    """

    def __init__(self, scanner: StreamScanner, model: str, stops: Collection[str]) -> None:
        self._scanner = scanner
        self._model = model
        self._stops = stops
        self._out: list[bytes] = []
        self._begun = False
        self._block = -1
        self._open: int | None = None
        self._calls: set[int] = set()
        self._finish: str | None = None
        self._matched: Any = None
        self.content = False
        self.done = False
        self.error: TiffinError | None = None
        self.priced: Callable[[Usage], str] | None = None

    @property
    def usage(self) -> Usage:
        """What the stream reported, or what was counted."""
        return self._scanner.usage

    def feed(self, data: bytes) -> bytes:
        """Read the next bytes of the chat's stream and return the message's events."""
        if self.error is not None or self.done:
            return b""
        scanner = self._scanner
        block = scanner.feed(data)
        self.content = scanner.content
        if not self._begun and (scanner.content or scanner.done):
            self._begin()
        try:
            for event in block.split(b"\n\n"):
                payload = payload_of(event)
                if payload and payload != b"[DONE]":
                    self._take(CHUNKS.decode(payload))
        except msgspec.DecodeError:
            self.error = UpstreamFailed("the stream has a chunk that is none of a chat's")
        self.error = self.error or scanner.error
        if scanner.done and self.error is None:
            self._end()
        out = b"".join(self._out)
        self._out.clear()
        return out

    def _say(self, kind: str, **fields: Any) -> None:
        told = encode({"type": kind, **fields})
        self._out.append(b"event: %b\ndata: %b\n\n" % (kind.encode(), told))

    def _begin(self) -> None:
        """The use of the input is told at the end, when it is known."""
        self._begun = True
        head = {**message_head(self._model), "usage": usage_object(Usage())}
        self._say("message_start", message=head)
        self._say("ping")

    def _take(self, chunk: Chunk) -> None:
        for choice in chunk.choices or ():
            if choice.index != 0:
                self.error = UpstreamFailed("the stream has more than one choice")
                return
            delta = choice.delta
            if delta is not None:
                if text := (delta.content or delta.refusal):
                    self._text(text)
                for call in delta.tool_calls or ():
                    self._call(call)
            self._finish = choice.finish_reason or self._finish
            self._matched = choice.stop_reason or self._matched

    def _text(self, text: str) -> None:
        if self._open != TEXT:
            self._start(TEXT, {"type": "text", "text": ""})
        self._add({"type": "text_delta", "text": text})

    def _call(self, call: Call) -> None:
        function = call.function or Function()
        if call.index not in self._calls:
            self._calls.add(call.index)
            self._start(call.index, tool_use(function.name or "", call.id or new_id("toolu"), {}))
        elif self._open != call.index:
            self.error = UpstreamFailed("the stream has several calls at once, mixed")
            return
        if function.arguments:
            self._add({"type": "input_json_delta", "partial_json": function.arguments})

    def _start(self, which: int, block: dict[str, Any]) -> None:
        self._stop()
        self._open = which
        self._block += 1
        self._say("content_block_start", index=self._block, content_block=block)

    def _add(self, delta: dict[str, Any]) -> None:
        self._say("content_block_delta", index=self._block, delta=delta)

    def _stop(self) -> None:
        if self._open is not None:
            self._open = None
            self._say("content_block_stop", index=self._block)

    def _end(self) -> None:
        self._stop()
        cost = self.priced(self.usage) if self.priced is not None else ""
        self._say(
            "message_delta",
            delta=stop_of(self._finish, self._matched, self._stops),
            usage=usage_object(self.usage, cost),
        )
        self._say("message_stop")
        self.done = True
