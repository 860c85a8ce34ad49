"""Work that goes on when its client has left, because it asked for that: `x-tiffin-finish: true`.

The walk of such a request has a task and an exchange of its own. When the client leaves, what is
sent is dropped, and the walk goes on to its end: permit, account and key are held until then.
"""

import asyncio
from collections.abc import Awaitable, Callable

from tiffin.errors import Overloaded, SchemaViolation
from tiffin.gateway.operations import Operation
from tiffin.ports.exchange import Exchange, Headers
from tiffin.telemetry import log

FINISH = b"x-tiffin-finish"
MOST = 256
MOST_BYTES = 67_108_864

Walking = Callable[[Exchange, Operation], Awaitable[None]]


class Finishing:
    """Answers requests by `walk`. No more than `most` of those that are to be finished are begun,
    and their bodies have no more than `most_bytes`."""

    def __init__(self, walk: Walking, most: int = MOST, most_bytes: int = MOST_BYTES) -> None:
        self._walk = walk
        self._most = most
        self._most_bytes = most_bytes
        self._begun: dict[asyncio.Task[None], Lasting] = {}

    async def __call__(self, exchange: Exchange, operation: Operation) -> None:
        """Answer one request; raises what the walk raises."""
        said = exchange.header(FINISH)
        if said is None or said == b"false":
            await self._walk(exchange, operation)
            return
        if said != b"true":
            raise SchemaViolation(
                "the header x-tiffin-finish must be 'true' or 'false'", param="x-tiffin-finish"
            )
        if len(self._begun) >= self._most:
            raise Overloaded(
                f"{self._most} requests with x-tiffin-finish are running, which is the most",
                retry_after=1.0,
            )
        lasting = Lasting(exchange, self._check_bytes)
        task = asyncio.ensure_future(self._walk(lasting, operation))
        self._begun[task] = lasting
        task.add_done_callback(self._ended)
        try:
            await asyncio.wait([task])
        except asyncio.CancelledError:
            if exchange.gone and lasting.lasts:
                lasting.left = True
            else:
                lasting.gone = exchange.gone
                task.cancel()
                await asyncio.wait([task])
            raise
        task.result()

    def running(self) -> list[asyncio.Task[None]]:
        """The tasks whose client has left."""
        return [task for task, lasting in self._begun.items() if lasting.left]

    async def end(self, *, cut: bool) -> None:
        """Return when none of them is left; `cut` those that still run."""
        while tasks := self.running():
            for task in tasks:
                if cut:
                    task.cancel()
            await asyncio.wait(tasks)

    def _check_bytes(self) -> None:
        if sum(lasting.body_bytes for lasting in self._begun.values()) > self._most_bytes:
            raise Overloaded(
                "the server has no room for more bodies of requests with x-tiffin-finish",
                retry_after=1.0,
            )

    def _ended(self, task: "asyncio.Task[None]") -> None:
        lasting = self._begun.pop(task)
        if not task.cancelled() and (error := task.exception()) is not None and lasting.left:
            log.error("finishing_broke", exc_info=error)


class Lasting:
    """An exchange whose client may leave: then what is sent is dropped. Satisfies
    `ports.exchange.Exchange`; `lasts` says that its work is to go on."""

    __slots__ = (
        "_check",
        "_exchange",
        "begun",
        "body_bytes",
        "gone",
        "keep_alive",
        "lasts",
        "left",
        "method",
        "path",
        "query",
    )

    def __init__(self, exchange: Exchange, check: Callable[[], None]) -> None:
        self._exchange = exchange
        self._check = check
        self.method = exchange.method
        self.path = exchange.path
        self.query = exchange.query
        self.gone = False
        self.begun = False
        self.keep_alive = True
        self.lasts = False
        self.left = False
        self.body_bytes = 0

    def header(self, name: bytes) -> bytes | None:
        """The first header of this lower-case name."""
        return self._exchange.header(name)

    async def body(self, limit: int) -> bytes:
        """The whole body; raises `PayloadTooLarge`, and `Overloaded` where there is no room."""
        body = await self._exchange.body(limit)
        self.body_bytes = len(body)
        self._check()
        return body

    def respond(self, status: int, headers: Headers, body: bytes) -> None:
        """Answer whole."""
        self.begun = True
        if not self.left:
            self._tell_keep_alive()
            self._exchange.respond(status, headers, body)

    def begin(self, status: int, headers: Headers) -> None:
        """Begin an answer."""
        self.begun = True
        if not self.left:
            self._exchange.begin(status, headers)

    def write(self, data: bytes) -> None:
        """Send a part."""
        if not self.left:
            self._exchange.write(data)

    async def drain(self) -> None:
        """Wait until there is room; where nobody reads there is."""
        if not self.left:
            await self._exchange.drain()

    def finish(self) -> None:
        """End the answer."""
        if not self.left:
            self._tell_keep_alive()
            self._exchange.finish()

    def abort(self) -> None:
        """Cut the connection."""
        if not self.left:
            self._exchange.abort()

    def _tell_keep_alive(self) -> None:
        self._exchange.keep_alive = self._exchange.keep_alive and self.keep_alive
