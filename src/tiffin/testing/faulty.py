"""An upstream that fails as it is told, to try what happens then: for tests of yours as of ours.

It speaks OpenAI's chat and completions, whole and streamed. What it does with each request is a
`Play`, by a list (the last one again and again) or by a function of the request; it counts `hits`.

On real sockets, for whatever client or gateway you want to try:

    with FaultyUpstream([Play(status=503), Play()]).in_thread() as url:
        ...                                     # url is http://127.0.0.1:PORT/v1

In one event loop without sockets, so that its time may be virtual: `backend` is one of Tiffin's own
clients that is connected to it, with all of its timeouts.
"""

import asyncio
import socket
import struct
import threading
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from concurrent.futures import Future
from contextlib import asynccontextmanager, contextmanager, suppress
from typing import Final, cast

from tiffin.adapters.upstreams.connection import Connection
from tiffin.adapters.upstreams.endpoint import Endpoint, Timeouts
from tiffin.adapters.upstreams.http1 import Http1Backend
from tiffin.testing.plays import End, Play, Seen, Wait, steps
from tiffin.testing.wires import join

Script = Sequence[Play] | Callable[[Seen], Play]

GOOD: Final = (Play(),)
MAX_SEEN: Final = 1000
PREFIX: Final = "/v1"
_RESET: Final = struct.pack("ii", 1, 0)
"""A socket that is closed with this (SO_LINGER) sends a reset."""


class FaultyUpstream:
    """`hits` is how many whole requests came, `seen` the last of them, `connections` how many were
    made. While it is `down`, whoever connects is refused, or cut off at once on a real socket."""

    def __init__(self, script: Script = GOOD) -> None:
        self.script = script
        self.down = False
        self.hits = 0
        self.connections = 0
        self.seen: deque[Seen] = deque(maxlen=MAX_SEEN)
        self._ends: set[_End] = set()

    def backend(
        self, timeouts: Timeouts | None = None, *, key: str = "", host: str = "upstream.test"
    ) -> Http1Backend:
        """A client that reaches it without a socket; satisfies `ports.backend.Backend`."""
        headers = f"authorization: Bearer {key}\r\n".encode() if key else b""
        end = Endpoint(authority=host.encode(), host=host, headers=headers, place=_below)
        return _Joined(self, end, timeouts)

    @asynccontextmanager
    async def listening(self) -> AsyncIterator[str]:
        """Its address on the loopback, up to `/v1`, while the context lasts."""
        loop = asyncio.get_running_loop()
        server = await loop.create_server(lambda: _End(self), "127.0.0.1", 0)
        try:
            yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}{PREFIX}"
        finally:
            server.close()
            self.hang_up()

    @contextmanager
    def in_thread(self) -> Iterator[str]:
        """The same in a thread of its own, for what isn't asynchronous."""
        began: Future[tuple[asyncio.AbstractEventLoop, str]] = Future()
        leave = asyncio.Event()

        async def serve() -> None:
            async with self.listening() as url:
                began.set_result((asyncio.get_running_loop(), url))
                await leave.wait()

        thread = threading.Thread(target=asyncio.run, args=(serve(),), daemon=True)
        thread.start()
        loop, url = began.result(10)
        try:
            yield url
        finally:
            loop.call_soon_threadsafe(leave.set)
            thread.join(10)

    def hang_up(self) -> None:
        """Break every connection that there is."""
        for end in list(self._ends):
            end.reset()

    def play_for(self, seen: Seen) -> Play:
        """What to do with a request that has come: it counts."""
        number = self.hits
        self.hits += 1
        self.seen.append(seen)
        if callable(self.script):
            return self.script(seen)
        return self.script[min(number, len(self.script) - 1)]

    def met(self, end: "_End") -> None:
        """Somebody connected."""
        self.connections += 1
        self._ends.add(end)

    def lost(self, end: "_End") -> None:
        """A connection is over."""
        self._ends.discard(end)


class _Joined(Http1Backend):
    """Reaches an upstream of the same event loop, by no socket."""

    def __init__(
        self, upstream: FaultyUpstream, endpoint: Endpoint, timeouts: Timeouts | None
    ) -> None:
        super().__init__(endpoint, timeouts, resends=False)
        self._upstream = upstream

    async def connect(self, deadline: float) -> Connection:
        """A new connection; where the upstream is down, what a refused one would raise."""
        await asyncio.sleep(0)
        if self._upstream.down:
            raise self.endpoint.unreachable(ConnectionRefusedError(111, "Connection refused"))
        loop = asyncio.get_running_loop()
        connection = Connection(self, loop)
        join(loop, connection, _End(self._upstream))
        return connection


class _End(asyncio.Protocol):
    """The upstream's end of one connection: reads requests, plays an answer to each in turn."""

    def __init__(self, upstream: FaultyUpstream) -> None:
        self._upstream = upstream
        self._data = b""
        self._playing: asyncio.Task[None] | None = None
        self._deaf = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._upstream.met(self)
        if self._upstream.down:
            self.reset()

    def connection_lost(self, error: Exception | None) -> None:
        self._upstream.lost(self)
        if self._playing is not None:
            self._playing.cancel()

    def data_received(self, data: bytes) -> None:
        self._data += data
        self._next()

    def reset(self) -> None:
        """Break it as a machine that fell over does."""
        own: socket.socket | None = self._transport.get_extra_info("socket")
        if own is not None:
            with suppress(OSError):
                own.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
        self._transport.abort()

    def _next(self) -> None:
        if self._deaf or (self._playing is not None and not self._playing.done()):
            return
        read = _request(self._data)
        if read is not None:
            seen, self._data = read
            play = self._upstream.play_for(seen)
            self._playing = asyncio.get_running_loop().create_task(self._play(play, seen))

    async def _play(self, play: Play, seen: Seen) -> None:
        for step in steps(play, seen):
            match step:
                case bytes():
                    self._transport.write(step)
                case Wait():
                    if step.seconds:
                        await asyncio.sleep(step.seconds)
                case End():
                    self._end(step.how)
                    return

    def _end(self, how: str) -> None:
        if how == "cut":
            self._transport.close()
        elif how == "reset":
            self.reset()
        elif how == "stall":
            self._deaf = True
        else:
            self._playing = None
            self._next()


def _below(path: bytes) -> bytes:
    return PREFIX.encode() + path


def _request(data: bytes) -> tuple[Seen, bytes] | None:
    """The first whole request in what came, and the rest; None while it isn't whole."""
    head, end, rest = data.partition(b"\r\n\r\n")
    if not end:
        return None
    first, *lines = head.decode("latin-1").split("\r\n")
    method, path, _ = first.split(" ")
    pairs = (line.partition(":") for line in lines)
    headers = {name.lower(): value.strip() for name, _, value in pairs}
    length = int(headers.get("content-length", 0))
    if len(rest) < length:
        return None
    return Seen(method, path, headers, rest[:length]), rest[length:]
