"""Engines that answer from memory, for tests of what talks to them."""

import re
from collections.abc import AsyncIterator, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any

import msgspec

from tiffin.errors import UpstreamUnavailable
from tiffin.ports.backend import Call, Reply

CONTROL = {"<|im_start|>": 1, "<|im_end|>": 2, "<|im|>": 3}


class Pieces:
    """A reply in the pieces that it was given; an error among them is raised in its turn."""

    def __init__(self, status: int, pieces: Sequence[bytes | Exception]) -> None:
        self.status = status
        self.content_type = b"application/json"
        self.streaming = True
        self.retry_after: float | None = None
        self.inference_header = b""
        self.usage = b""
        self._pieces = list(pieces)

    async def read(self) -> bytes:
        piece = self._pieces.pop(0) if self._pieces else b""
        if isinstance(piece, Exception):
            raise piece
        return piece

    async def read_all(self, limit: int) -> bytes:
        whole = b""
        while data := await self.read():
            whole += data
        return whole

    def rest(self, seconds: float) -> None:
        """Everything is here already."""


class FakeEngine:
    """Answers every call alike; `calls` are what was asked, `open` how many are still held.

    Status 0: nobody listens.
    """

    def __init__(self, status: int, *pieces: bytes | Exception) -> None:
        self.calls: list[Call] = []
        self.open = 0
        self._status = status
        self._pieces = pieces

    def start(self, call: Call) -> AbstractAsyncContextManager[Reply]:
        self.calls.append(call)
        return self._exchange(call)

    def close(self) -> None:
        """Nothing is kept open."""

    @asynccontextmanager
    async def _exchange(self, call: Call) -> AsyncIterator[Reply]:
        if self._status == 0:
            raise UpstreamUnavailable("nobody listens")
        self.open += 1
        try:
            yield Pieces(self._status, self.answer(call))
        finally:
            self.open -= 1

    def answer(self, call: Call) -> Sequence[bytes | Exception]:
        """The pieces of this call's reply."""
        return self._pieces


class ChatMl(FakeEngine):
    """One whose template is ChatML and whose tokens are characters and control tokens."""

    def __init__(self) -> None:
        super().__init__(200)
        self.asked: list[tuple[str, dict[str, Any]]] = []

    def answer(self, call: Call) -> Sequence[bytes | Exception]:
        path, question = call.path.decode(), msgspec.json.decode(call.body)
        self.asked.append((path, question))
        answer = _filled(question) if path == "/apply-template" else _tokens(question)
        return [msgspec.json.encode(answer)]


def _filled(question: dict[str, Any]) -> dict[str, Any]:
    offered = str(question.get("tools", ""))
    turns = [
        f"<|im_start|>{turn['role']}\n{turn['content']}{turn.get('tool_calls', '')}<|im_end|>"
        for turn in question["messages"]
    ]
    return {"prompt": offered + "".join(turns) + "<|im_start|>assistant\n"}


def _tokens(question: dict[str, Any]) -> dict[str, Any]:
    content = question["content"]
    tokens: list[int] = []
    for item in content if isinstance(content, list) else [content]:
        if isinstance(item, int):
            tokens.append(item)
        elif question["parse_special"]:
            for part in re.split(r"(<\|\w+\|>)", item):
                tokens += [CONTROL[part]] if part in CONTROL else map(ord, part)
        else:
            tokens += map(ord, item)
    return {"tokens": tokens}
