"""One HTTP/1.1 connection of the lean client: a reply is read as it comes, leaving closes it."""

import asyncio
import contextlib
from collections import deque
from typing import Protocol, cast

import httptools

from tiffin.adapters.upstreams.endpoint import Endpoint, Timeouts
from tiffin.errors import (
    DeadlineExceeded,
    ModelTimeout,
    TiffinError,
    UpstreamFailed,
    UpstreamUnavailable,
)
from tiffin.ports.outbox import Outbox

PAUSE_OVER_BYTES = 262_144
MAX_HEAD_BYTES = 65_536
PACE_S = 5.0
"""A stream that must bring so many bytes a second must so in each stretch of this length."""
FRAMING = (b"content-length", b"transfer-encoding")


class Owner(Protocol):
    """The pool that a connection belongs to, while it is used and while it is kept."""

    endpoint: Endpoint
    timeouts: Timeouts
    outbox: Outbox
    active: set["Connection"]
    idle: deque["Connection"]

    def begin(self, connection: "Connection") -> None:
        """An exchange begins on this connection."""
        ...

    def release(self, connection: "Connection") -> None:
        """Keep a connection whose exchange ended cleanly."""
        ...


class Connection(asyncio.Protocol):  # noqa: PLR0904 - its callers set the names
    """One connection and, while one runs, its reply; satisfies `ports.backend.Reply`."""

    __slots__ = (
        "_complete",
        "_deadline",
        "_error",
        "_head_bytes",
        "_head_done",
        "_is_own",
        "_keep",
        "_length_known",
        "_loop",
        "_parser",
        "_paused",
        "_pieces",
        "_pool",
        "_resting",
        "_size",
        "_waiter",
        "_weighed_at",
        "_weight",
        "content_type",
        "expires",
        "heard",
        "inference_header",
        "retry_after",
        "status",
        "streaming",
        "transport",
        "usage",
    )

    def __init__(self, pool: Owner, loop: asyncio.AbstractEventLoop) -> None:
        self._pool = pool
        self._loop = loop
        self._parser = httptools.HttpResponseParser(self)
        self._waiter: asyncio.Future[None] | None = None
        self._pieces: list[bytes] = []
        self._paused = False
        self._resting: asyncio.TimerHandle | None = None
        self._reset(0.0)

    def _reset(self, deadline: float) -> None:
        self.status = 0
        self.content_type = b""
        self.inference_header = b""
        self.usage = b""
        self.streaming = False
        self.retry_after: float | None = None
        self.heard = False
        self._deadline = deadline
        self._is_own = False
        self._head_done = False
        self._head_bytes = 0
        self._length_known = False
        self._complete = False
        self._keep = False
        self._error: TiffinError | None = None
        self._size = 0
        self._weight = 0
        self._weighed_at = 0.0
        self.expires = deadline

    # What the exchange uses.

    async def exchange(self, data: bytes, deadline: float) -> "Connection":
        """Send a request and wait for the reply's head."""
        now, limits = self._loop.time(), self._pool.timeouts
        self._reset(min(deadline, now + limits.total_s))
        self._is_own = self._deadline < deadline
        self.expires = min(self._deadline, now + limits.first_byte_s)
        self._pool.begin(self)
        self._pool.outbox.write(self.transport, data)
        while not self._head_done:
            if self._error is not None:
                raise self._error
            await self._next()
        return self

    async def read(self) -> bytes:
        """The next bytes of the body, `b""` at its true end."""
        while not self._pieces:
            if self._error is not None:
                raise self._error
            if self._complete:
                return b""
            await self._next()
        pieces = self._pieces
        data = pieces[0] if len(pieces) == 1 else b"".join(pieces)
        pieces.clear()
        self._size = 0
        if self._paused and self._resting is None:
            self._paused = False
            self._wait_on(self._loop.time())
            self.transport.resume_reading()
        return data

    def rest(self, seconds: float) -> None:
        """Read nothing from the socket for so long; a wait for more goes on beyond."""
        if self._complete or self._paused or seconds <= 0.0:
            return
        self._paused = True
        self.transport.pause_reading()
        self._resting = self._loop.call_later(seconds, self._rested)

    def _rested(self) -> None:
        self._resting = None
        self._paused = False
        self.transport.resume_reading()

    async def read_all(self, limit: int) -> bytes:
        """The whole body; `UpstreamFailed` over `limit` bytes."""
        pieces = self._pieces
        if self._complete and len(pieces) == 1 and len(pieces[0]) <= limit:
            return pieces[0]  # as nearly every answer comes; leaving clears them
        data = await self.read()
        if self._complete and not pieces and len(data) <= limit:
            return data
        parts, size = [data], len(data)
        while data:
            if size > limit:
                raise UpstreamFailed(f"the answer is larger than {limit} bytes")
            data = await self.read()
            parts.append(data)
            size += len(data)
        return b"".join(parts)

    def leave(self) -> None:
        """Keep the connection if its exchange ended cleanly, else close it."""
        self._pool.active.discard(self)
        if self._resting is not None:
            self._resting.cancel()
            self._rested()
        if self._complete and self._keep and self._error is None:
            self._pieces.clear()
            self._pool.release(self)
        else:
            self.transport.abort()

    def abort(self) -> None:
        """Close at once."""
        self.transport.abort()

    def expire(self, now: float) -> None:
        """A timer ran out: the deadline's, or this phase's."""
        limits = self._pool.timeouts
        if now > self._deadline and self._is_own:
            self._fail(ModelTimeout(f"no whole answer within {limits.total_s:g} s"))
        elif now > self._deadline:
            self._fail(DeadlineExceeded("the deadline passed while waiting for the model"))
        elif not self._head_done:
            self._fail(UpstreamUnavailable(f"no answer within {limits.first_byte_s:g} s"))
        elif self._paused:
            self._wait_on(now)  # what we don't read can't come
        elif self._is_weighed and now >= self._weighed_at + PACE_S:
            self._weigh(now)
        else:
            self._fail(UpstreamFailed(f"nothing came for {limits.between_bytes_s:g} s"))

    @property
    def _is_weighed(self) -> bool:
        return self.streaming and bool(self._pool.timeouts.least_bytes_per_s)

    def _weigh(self, now: float) -> None:
        """Whether what came since the last time is enough."""
        least = self._pool.timeouts.least_bytes_per_s
        if self._weight < least * PACE_S:
            self._fail(
                UpstreamFailed(f"{self._weight} bytes in {PACE_S:g} s, under {least} a second")
            )
        self._wait_on(now)

    def _wait_on(self, now: float) -> None:
        """Its time to bring something begins anew."""
        self._weight, self._weighed_at = 0, now
        limit = self._pool.timeouts.between_bytes_s
        self.expires = min(self._deadline, now + (PACE_S if self._is_weighed else limit))

    def _next(self) -> asyncio.Future[None]:
        """What is awaited until something has come or broken."""
        waiter = self._waiter = self._loop.create_future()
        return waiter

    def _wake(self) -> None:
        waiter = self._waiter
        if waiter is not None and not waiter.done():
            waiter.set_result(None)

    def _fail(self, error: TiffinError) -> None:
        if self._error is None and not self._complete:
            self._error = error
            self._wake()
        self.transport.abort()

    # What the transport calls.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)

    def data_received(self, data: bytes) -> None:
        if self not in self._pool.active or self._complete:
            self.transport.abort()  # bytes that nobody asked for
            return
        self.heard = True
        if not self._head_done:
            self._head_bytes += len(data)
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserError:
            self._fail(UpstreamFailed("the answer isn't HTTP"))
            return
        if not self._head_done and self._head_bytes > MAX_HEAD_BYTES:
            self._fail(UpstreamFailed("the answer's head is too large"))
            return
        if not self._complete:
            limits, now = self._pool.timeouts, self._loop.time()
            self.expires = min(self._deadline, now + limits.between_bytes_s)
            if self._is_weighed:
                self._weight += len(data)
                self._weighed_at = self._weighed_at or now
                self.expires = min(self.expires, self._weighed_at + PACE_S)
            if self._size > PAUSE_OVER_BYTES and not self._paused:
                self._paused = True
                self.transport.pause_reading()
        if self._head_done:
            self._wake()

    def connection_lost(self, error: Exception | None) -> None:
        if self in self._pool.active:
            if self._head_done and not self._length_known and error is None:
                self._complete = True  # a body that ends with its connection
            elif not self._complete and self._error is None:
                if self._head_done:
                    self._error = UpstreamFailed("the answer broke off")
                else:
                    self._error = self._pool.endpoint.broke()
            self._wake()
        else:
            with contextlib.suppress(ValueError):
                self._pool.idle.remove(self)

    # What the parser calls.

    def on_message_begin(self) -> None:
        if self._complete:
            raise UpstreamFailed("more came than one answer")

    def on_header(self, name: bytes, value: bytes) -> None:
        if self._head_done:
            return  # trailers
        size = len(name)
        if size == 12 and name.lower() == b"content-type":
            self.content_type = value
        elif size in (14, 17) and name.lower() in FRAMING:
            self._length_known = True
        elif size == 14 and name.lower() == b"x-tiffin-usage":
            self.usage = value
        elif size == 31 and name.lower() == b"inference-header-content-length":
            self.inference_header = value
        elif size == 11 and name.lower() == b"retry-after":
            with contextlib.suppress(ValueError):
                self.retry_after = max(0.0, float(value))

    def on_headers_complete(self) -> None:
        status = self._parser.get_status_code()
        if status >= 200:
            self.status = status
            self.streaming = self.content_type[:17].lower() == b"text/event-stream"
            self._head_done = True

    def on_body(self, data: bytes) -> None:
        self._pieces.append(data)
        self._size += len(data)

    def on_message_complete(self) -> None:
        if self._head_done:
            self._complete = True
            self._keep = bool(self._parser.should_keep_alive())
