"""One request on a connection and its answer; satisfies `ports.exchange.Exchange`."""

import asyncio
from collections.abc import Awaitable, Callable
from http import HTTPStatus
from typing import TYPE_CHECKING

from tiffin.errors import Overloaded, PayloadTooLarge, TiffinError
from tiffin.ports.exchange import Exchange, Headers

if TYPE_CHECKING:
    from tiffin.api.http import HttpProtocol

STATUS_LINES = {
    status.value: b"HTTP/1.1 %d %b\r\n" % (status.value, status.phrase.encode())
    for status in HTTPStatus
}


# From this size on a body takes room; how many smaller ones there are is bounded by connections.
LARGE_BYTES = 65_536
MAX_LARGE_BYTES = 268_435_456


class Room:
    """What all large bodies of a server may take together, in bytes."""

    __slots__ = ("most", "taken")

    def __init__(self, most: int = MAX_LARGE_BYTES) -> None:
        self.most = most
        self.taken = 0


class IncomingBody:
    """A request's body while it comes; never keeps more than the server's limit."""

    __slots__ = ("_connection", "_error", "_parts", "_room", "_waiter", "ended", "size")

    def __init__(self, connection: "HttpProtocol") -> None:
        self._connection = connection
        self._parts: list[bytes] = []
        self._error: TiffinError | None = None
        self._waiter: asyncio.Future[None] | None = None
        self._room = 0
        self.size = 0
        self.ended = False

    async def over(self, limit: int) -> None:
        """Wait until it is whole, can't be had, or is over `limit` bytes."""
        while not self.ended and self._error is None and self.size <= limit:
            self._waiter = self._connection.loop.create_future()
            await self._waiter

    def whole(self, limit: int) -> bytes:
        """All of it, once it is there; raises what kept it from being."""
        if self._error is not None:
            raise self._error
        if self.size > limit:
            raise too_large(limit)
        parts = self._parts
        return parts[0] if len(parts) == 1 else b"".join(parts)

    def came(self, data: bytes) -> None:
        """A part came."""
        if self._error is not None:
            return
        self.size += len(data)
        edge = self._connection.edge
        if self.size > edge.max_body_bytes:
            self._drop(too_large(edge.max_body_bytes))
        elif self.size > LARGE_BYTES and not self._fits(edge.room):
            self._drop(Overloaded("the server has no room for large bodies now", retry_after=1.0))
        else:
            self._parts.append(data)

    def release(self) -> None:
        """Its bytes are needed no longer; idempotent."""
        self._connection.edge.room.taken -= self._room
        self._room = 0

    def end(self) -> None:
        """It is whole."""
        self.ended = True
        self._wake()

    def fail(self, error: TiffinError) -> None:
        """It can't be had."""
        if self._error is None:
            self._error = error
            self._wake()

    def _fits(self, room: Room) -> bool:
        """Take room for what has come, where there is some."""
        more = self.size - self._room
        if room.taken + more > max(room.most, self._connection.edge.max_body_bytes):
            return False
        room.taken += more
        self._room = self.size
        return True

    def _drop(self, error: TiffinError) -> None:
        self._parts.clear()
        self.release()
        self._connection.flow.pause_reading()
        self.fail(error)

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)


class WireExchange:
    """A request whose head has come. The body may still be coming when its handler starts.

    HEAD is GET to a handler, and what it says beside the head isn't sent. `old` says that the
    client speaks HTTP/1.0: its answer ends with the connection.
    """

    __slots__ = (
        "_chunked",
        "_connection",
        "_head_only",
        "begun",
        "complete",
        "gone",
        "headers",
        "incoming",
        "keep_alive",
        "method",
        "path",
        "query",
        "task",
    )

    def __init__(
        self,
        connection: "HttpProtocol",
        method: bytes,
        url: bytes,
        headers: dict[bytes, bytes],
        keep_alive: bool,
        old: bool,
    ) -> None:
        self._connection = connection
        self._head_only = method == b"HEAD"
        self._chunked = not (old or self._head_only)
        self.method = b"GET" if self._head_only else method
        self.path, _, self.query = (url if url[:1] == b"/" else local(url)).partition(b"?")
        self.headers = headers
        self.keep_alive = keep_alive and not old
        self.gone = False
        self.begun = False
        self.complete = False
        self.task: asyncio.Task[None] | None = None
        self.incoming = IncomingBody(connection)

    async def run(self, handler: Callable[[Exchange], Awaitable[None]]) -> None:
        """Run the handler; an exchange that it leaves unanswered is cut, never left hanging."""
        try:
            await handler(self)
        finally:
            if not self.complete:
                self.abort()
            self.incoming.release()
            self.task = None  # of one that was cancelled, the error would lead back here

    # What the handler uses.

    def header(self, name: bytes) -> bytes | None:
        """The first header of this lower-case name."""
        return self.headers.get(name)

    async def body(self, limit: int) -> bytes:
        """The whole body; raises `PayloadTooLarge` before reading what is over `limit` bytes."""
        incoming = self.incoming
        if not incoming.ended:
            length = self.header(b"content-length")
            if length is not None and length.isdigit() and int(length) > limit:
                raise too_large(limit)
            expected = self.header(b"expect")
            if expected is not None and expected.lower() == b"100-continue" and not incoming.size:
                self._connection.send(b"HTTP/1.1 100 Continue\r\n\r\n")
            await incoming.over(limit)
        return incoming.whole(limit)

    def respond(self, status: int, headers: Headers, body: bytes) -> None:
        """Answer whole."""
        head = self._head(status, headers)
        shown = b"" if self._head_only else body
        data = b"%bcontent-length: %d\r\n\r\n%b" % (head, len(body), shown)
        if self.keep_alive:
            self._connection.edge.outbox.write(self._connection.transport, data)
        else:
            self._connection.send(data)
        self._end()

    def begin(self, status: int, headers: Headers) -> None:
        """Begin an answer whose length isn't known."""
        if not self._chunked:
            self.keep_alive = False
        head = self._head(status, headers)
        framing = b"transfer-encoding: chunked\r\n" if self._chunked else b""
        self._connection.send(b"%b%b\r\n" % (head, framing))

    def write(self, data: bytes) -> None:
        """Send a part of a begun answer."""
        if data and self._chunked:
            self._connection.send(b"%x\r\n%b\r\n" % (len(data), data))
        elif not self._head_only:
            self._connection.send(data)

    async def drain(self) -> None:
        """Wait until the client has room for more."""
        if self._connection.flow.write_paused:
            await self._connection.flow.drain()

    def finish(self) -> None:
        """End a begun answer."""
        if self._chunked:
            self._connection.send(b"0\r\n\r\n")
        self._end()

    def abort(self) -> None:
        """Cut the connection, after what was written is sent."""
        self.complete = True
        self.keep_alive = False
        self._connection.edge.outbox.flush()
        self._connection.transport.close()

    # What the connection calls.

    def client_left(self) -> None:
        """The connection is gone: the handler is cancelled, which stops the work behind it."""
        self.gone = True
        if self.task is None:
            self.incoming.release()
        elif not self.complete:
            self.task.cancel()

    def _head(self, status: int, headers: Headers) -> bytes:
        self.begun = True
        line = STATUS_LINES.get(status) or b"HTTP/1.1 %d \r\n" % status
        lines = b"".join([b"%b: %b\r\n" % pair for pair in headers])
        connection = self._connection
        # What was pipelined behind this request is answered too.
        stays = self.keep_alive and not (connection.leaving and not connection.waiting)
        if stays and (self.incoming.ended or connection.receiving is not self):
            return line + lines
        self.keep_alive = False
        return b"%b%bconnection: close\r\n" % (line, lines)

    def _end(self) -> None:
        self.complete = True
        self._connection.answered(self)


def too_large(limit: int) -> PayloadTooLarge:
    """The refusal of a body over `limit` bytes."""
    return PayloadTooLarge(f"the body is over the limit of {limit} bytes; send less at once")


def local(url: bytes) -> bytes:
    """A request's target from its path on: clients that think of us as a proxy write all of it."""
    if url[:1] == b"/":
        return url
    path = url.partition(b"://")[2].partition(b"/")
    return b"".join(path[1:]) or url
