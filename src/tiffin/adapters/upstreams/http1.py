"""A lean HTTP/1.1 client: pooled connections, bytes relayed as they come, leaving cancels.

It serves every hop that the gateway makes, to a replica's unix socket as to an upstream, and a
replica's hop to its engine. Timers are one sweep a pool, not one timer a request.
"""

import asyncio
from collections import deque
from types import TracebackType

from tiffin.adapters.upstreams.connection import Connection
from tiffin.adapters.upstreams.endpoint import Endpoint, Timeouts
from tiffin.errors import DeadlineExceeded, UpstreamUnavailable
from tiffin.ports.backend import Call
from tiffin.ports.outbox import DirectOutbox, Outbox

SWEEP_S = 0.1
# A kept-alive connection that the other side had already closed fails this soon after sending.
STALE_WITHIN_S = 0.25


class Http1Backend:
    """A pool of connections to one endpoint; satisfies `ports.backend.Backend`.

    Where a connection that was kept turns out to be closed, it `resends` what it was for (a GET in
    any case); else that is an `UpstreamUnavailable` that is `stale`: the call may have arrived.
    """

    def __init__(
        self,
        endpoint: Endpoint,
        timeouts: Timeouts | None = None,
        *,
        max_idle: int = 256,
        resends: bool = True,
        outbox: Outbox | None = None,
    ) -> None:
        self.endpoint = endpoint
        self.outbox: Outbox = outbox or DirectOutbox()
        self.timeouts = timeouts or Timeouts()
        self.max_idle = max_idle
        self.resends = resends
        self.idle: deque[Connection] = deque()
        self.active: set[Connection] = set()
        self._loop = asyncio.get_running_loop()
        self._heads: dict[tuple[bytes, bytes], bytes] = {}
        self._closed = False
        self._timer: asyncio.TimerHandle | None = None

    def start(self, call: Call) -> "_Exchange":
        """Send `call` on entering the returned context; stop it on leaving."""
        return _Exchange(self, call)

    def close(self) -> None:
        """Close every connection; running exchanges fail."""
        self._closed = True
        if self._timer is not None:
            self._timer.cancel()
        for connection in [*self.idle, *self.active]:
            connection.abort()
        self.idle.clear()

    def request_bytes(self, call: Call) -> bytes:
        """The whole request as it goes on the wire."""
        head = self._heads.get((call.method, call.path))
        if head is None:
            end = self.endpoint
            line = b"%b %b%b HTTP/1.1\r\n" % (call.method, end.prefix, end.place(call.path))
            head = b"%bhost: %b\r\n%b" % (line, end.authority, end.headers)
            if len(self._heads) < 64:
                self._heads[call.method, call.path] = head
        if call.method == b"GET":
            return b"%b%b\r\n" % (head, call.headers)
        return b"%b%b%bcontent-length: %d\r\n\r\n%b" % (
            head,
            call.headers,
            call.content,
            len(call.body),
            call.body,
        )

    async def connect(self, deadline: float) -> Connection:
        """A new connection, or `UpstreamUnavailable` or `DeadlineExceeded`."""
        end = self.endpoint
        limit = min(self._loop.time() + self.timeouts.connect_s, deadline)
        try:
            async with asyncio.timeout_at(limit):
                if end.path:
                    _, made = await self._loop.create_unix_connection(
                        lambda: Connection(self, self._loop), end.path
                    )
                else:
                    _, made = await self._loop.create_connection(
                        lambda: Connection(self, self._loop), end.host, end.port, ssl=end.tls
                    )
        except TimeoutError as error:
            if limit == deadline:
                raise DeadlineExceeded("the deadline passed while connecting") from error
            message = f"no connection within {self.timeouts.connect_s:g} s"
            raise UpstreamUnavailable(message) from error
        except (OSError, UnicodeError) as error:  # the latter where a name can't be looked up
            raise end.unreachable(error) from error
        return made

    def release(self, connection: Connection) -> None:
        """Keep a connection whose exchange ended cleanly."""
        if self._closed or len(self.idle) >= self.max_idle:
            connection.abort()
        else:
            self.idle.append(connection)

    def begin(self, connection: Connection) -> None:
        """An exchange begins on this connection: its timers are looked at from now on."""
        self.active.add(connection)
        if self._timer is None:
            self._timer = self._loop.call_later(SWEEP_S, self._sweep)

    def _sweep(self) -> None:
        now = self._loop.time()
        for connection in [c for c in self.active if now > c.expires]:
            connection.expire(now)
        # Nothing to look at, no timer: an idle process sleeps.
        self._timer = self._loop.call_later(SWEEP_S, self._sweep) if self.active else None


class _Exchange:
    """One call and its reply, as a context."""

    __slots__ = ("_call", "_connection", "_pool")

    def __init__(self, pool: Http1Backend, call: Call) -> None:
        self._pool = pool
        self._call = call
        self._connection: Connection | None = None

    async def __aenter__(self) -> Connection:
        pool, call = self._pool, self._call
        data = pool.request_bytes(call)
        while pool.idle:
            connection = pool.idle.pop()
            if connection.transport.is_closing():
                continue
            self._connection = connection
            sent = pool._loop.time()
            try:
                return await connection.exchange(data, call.deadline)
            except UpstreamUnavailable as error:
                self._leave()
                if connection.heard or pool._loop.time() - sent > STALE_WITHIN_S:
                    raise
                if not (pool.resends or call.method == b"GET"):
                    error.stale = True
                    raise
            except BaseException:
                self._leave()
                raise
        connection = self._connection = await pool.connect(call.deadline)
        try:
            return await connection.exchange(data, call.deadline)
        except BaseException:
            self._leave()
            raise

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._leave()

    def _leave(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.leave()
