"""A chat's stream, chunk by chunk, for dialects that tell it in events of their own."""

from collections.abc import Callable
from typing import Protocol

import msgspec

from tiffin.dialects.events import payload_of
from tiffin.dialects.openai.answers import CHUNKS, Chunk, ChunkChoice
from tiffin.dialects.openai.usage import StreamScanner
from tiffin.errors import TiffinError, UpstreamFailed
from tiffin.types.usage import Usage


class Telling(Protocol):
    """Tells one answer in a dialect's events."""

    def begin(self) -> None:
        """Say that an answer begins."""
        ...

    def add(self, choice: ChunkChoice) -> None:
        """Say what a chunk adds to it; raises `UpstreamFailed` for what can't be told."""
        ...

    def end(self, reason: str, usage: Usage, cost: str) -> None:
        """Say what it came to, why it ended, and what that costs (empty: nobody knows)."""
        ...

    def said(self) -> bytes:
        """What was said since the last time."""
        ...


class ChatReading:
    """Reads a chat's stream and has it told otherwise; satisfies `dialects.dialect.Reading`.

    Nothing is said before there is content, so that until then another target may answer.
    """

    def __init__(self, scanner: StreamScanner, telling: Telling) -> None:
        self._scanner = scanner
        self._telling = telling
        self._begun = False
        self._reason = ""
        self.content = False
        self.done = False
        self.error: TiffinError | None = None
        self.priced: Callable[[Usage], str] | None = None

    @property
    def usage(self) -> Usage:
        """What the stream reported, or what was counted."""
        return self._scanner.usage

    def feed(self, data: bytes) -> bytes:
        """Read the next bytes of the chat's stream and return the dialect's events."""
        if self.error is not None or self.done:
            return b""
        scanner = self._scanner
        block = scanner.feed(data)
        self.content = scanner.content
        if not self._begun and (scanner.content or scanner.done):
            self._begun = True
            self._telling.begin()
        try:
            for event in block.split(b"\n\n"):
                payload = payload_of(event)
                if payload and payload != b"[DONE]":
                    self._take(CHUNKS.decode(payload))
        except msgspec.DecodeError:
            self.error = UpstreamFailed("the stream has a chunk that is none of a chat's")
        except UpstreamFailed as error:
            self.error = error
        self.error = self.error or scanner.error
        if scanner.done and self.error is None:
            cost = self.priced(self.usage) if self.priced is not None else ""
            self._telling.end(self._reason, self.usage, cost)
            self.done = True
        return self._telling.said()

    def _take(self, chunk: Chunk) -> None:
        for choice in chunk.choices or ():
            if choice.index != 0:
                raise UpstreamFailed("the stream has more than one choice")
            self._telling.add(choice)
            self._reason = choice.finish_reason or self._reason
