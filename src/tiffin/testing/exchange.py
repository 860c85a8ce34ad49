"""An exchange without a server: the request is given, the answer is collected."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import msgspec

from tiffin.errors import PayloadTooLarge
from tiffin.ports.exchange import Exchange, Headers

Handler = Callable[[Exchange], Awaitable[None]]


class FakeExchange:
    """Satisfies `ports.exchange.Exchange`; `sent` and `status` are what the client sees.

    While `room` isn't set, `drain` waits, as for a client that doesn't read.
    """

    def __init__(
        self, method: bytes, path: bytes, *, headers: Headers | None = None, body: bytes = b""
    ) -> None:
        self.method = method
        self.path = path
        self.query = b""
        self.keep_alive = True
        self.headers = headers or []
        self.gone = False
        self.begun = False
        self.finished = False
        self.aborted = False
        self.status = 0
        self.answer_headers: dict[bytes, bytes] = {}
        self.sent = bytearray()
        self.writes = 0
        self.wrote = asyncio.Event()
        self.room = asyncio.Event()
        self.room.set()
        self._body = body
        self._task: asyncio.Future[None] | None = None

    # The port.

    def header(self, name: bytes) -> bytes | None:
        """The first header of this lower-case name."""
        return next((value for key, value in self.headers if key == name), None)

    async def body(self, limit: int) -> bytes:
        """The whole body; raises `PayloadTooLarge` over `limit` bytes."""
        if len(self._body) > limit:
            raise PayloadTooLarge(f"the body is over the limit of {limit} bytes")
        return self._body

    def respond(self, status: int, headers: Headers, body: bytes) -> None:
        """Answer whole."""
        self.begin(status, headers)
        self.write(body)
        self.finish()

    def begin(self, status: int, headers: Headers) -> None:
        """Begin an answer."""
        if self.begun:
            raise AssertionError("an answer was begun twice")
        self.begun = True
        self.status = status
        self.answer_headers = dict(headers)

    def write(self, data: bytes) -> None:
        """Send a part."""
        if not self.begun or self.finished or self.aborted:
            raise AssertionError("bytes were sent before or after the answer")
        self.sent += data
        self.writes += 1
        self.wrote.set()

    async def drain(self) -> None:
        """Wait until there is room."""
        await self.room.wait()

    def finish(self) -> None:
        """End the answer."""
        if self.finished or self.aborted:
            raise AssertionError("an answer was ended twice")
        self.finished = True

    def abort(self) -> None:
        """Cut the connection."""
        self.aborted = True

    # What a test does.

    def start(self, handler: Handler) -> None:
        """Let a handler begin to answer, in a task as a server would."""
        self._task = asyncio.ensure_future(handler(self))

    async def over(self) -> None:
        """Wait until the handler has ended; raises what it raised."""
        if self._task is not None:
            await asyncio.wait([self._task])
            if not self._task.cancelled() and (failure := self._task.exception()) is not None:
                raise failure

    async def leave(self) -> None:
        """The client goes away; returns when the handler has ended."""
        self.gone = True
        task, self._task = self._task, None
        if task is not None:
            task.cancel()
            await asyncio.wait([task])


async def answered(handler: Handler, exchange: FakeExchange) -> FakeExchange:
    """The exchange, when a handler has answered it to the end."""
    exchange.start(handler)
    await exchange.over()
    return exchange


def json_of(exchange: FakeExchange) -> Any:
    """A whole answer, decoded."""
    return msgspec.json.decode(exchange.sent)


def events_of(exchange: FakeExchange) -> list[Any]:
    """An answer's server-sent events, decoded; `[DONE]` stays text."""
    texts = [event.removeprefix("data: ") for event in exchange.sent.decode().split("\n\n")]
    return [text if text == "[DONE]" else msgspec.json.decode(text) for text in texts if text]
