"""A connection to Valkey or Redis: calls in order, all of one loop turn in one write, RESP 2.

The whole of a client library that limits need is this; it takes a third of the time of one, which
is on the path of every request. Source: the Redis serialization protocol specification.
"""

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Final, cast

from tiffin.errors import LimitStoreUnavailable

Reply = bytes | int | None
MAX_REPLY_BYTES: Final = 16 << 20


class Refused(Exception):
    """The server answered a call with an error."""


class Connection(asyncio.Protocol):
    """One connection; where a reply takes longer than `timeout_s`, it is given up whole, so that
    whoever calls next doesn't wait as well. `lost` is told why, once."""

    def __init__(self, timeout_s: float, lost: Callable[[str], None]) -> None:
        self._loop = asyncio.get_running_loop()
        self._timeout_s = timeout_s
        self._lost = lost
        self._transport: asyncio.Transport | None = None
        self._waiting: deque[tuple[asyncio.Future[Reply], float]] = deque()
        self._out: list[bytes] = []
        self._buffer = b""
        self._watch: asyncio.TimerHandle | None = None
        self.over = False

    def call(self, *parts: bytes) -> asyncio.Future[Reply]:
        """Send a command; its reply, `Refused`, or `LimitStoreUnavailable`."""
        future: asyncio.Future[Reply] = self._loop.create_future()
        if self.over:
            future.set_exception(LimitStoreUnavailable("the connection to the store has ended"))
            return future
        if not self._out:
            self._loop.call_soon(self._flush)
        self._out.append(b"*%d\r\n" % len(parts))
        self._out += [b"$%d\r\n%b\r\n" % (len(part), part) for part in parts]
        self._waiting.append((future, self._loop.time() + self._timeout_s))
        if self._watch is None:
            self._watch = self._loop.call_later(self._timeout_s, self._look)
        return future

    def close(self, reason: str = "closed") -> None:
        """Give it up: what waits for a reply is told so."""
        if self.over:
            return
        self.over = True
        if self._watch is not None:
            self._watch.cancel()
        if self._transport is not None:
            self._transport.abort()
        waiting, self._waiting = self._waiting, deque()
        for future, _ in waiting:
            if not future.done():
                future.set_exception(LimitStoreUnavailable(f"the store of limits: {reason}"))
        self._lost(reason)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Called by the loop."""
        self._transport = cast(asyncio.Transport, transport)  # uvloop's isn't one by type

    def connection_lost(self, exc: Exception | None) -> None:
        """Called by the loop."""
        self.close(str(exc or "it closed the connection"))

    def data_received(self, data: bytes) -> None:
        """Called by the loop: every whole reply goes to who waits for it."""
        buffer = self._buffer + data if self._buffer else data
        at = 0
        try:
            while at < len(buffer):
                reply, ends = _read(buffer, at)
                if ends < 0:
                    break
                at = ends
                future, _ = self._waiting.popleft()
                if future.done():
                    continue
                if isinstance(reply, Refused):
                    future.set_exception(reply)
                else:
                    future.set_result(reply)
        except (ValueError, IndexError) as cause:
            self.close(f"it says what makes no sense ({cause})")
            return
        self._buffer = buffer[at:]
        if len(self._buffer) > MAX_REPLY_BYTES:
            self.close("its reply is too long")

    def _flush(self) -> None:
        out, self._out = self._out, []
        if self._transport is not None and not self.over:
            self._transport.write(b"".join(out))

    def _look(self) -> None:
        """See whether the oldest call has waited too long."""
        self._watch = None
        if not self._waiting:
            return
        left = self._waiting[0][1] - self._loop.time()
        if left <= 0:
            self.close(f"it didn't answer within {self._timeout_s:g} s")
        else:
            self._watch = self._loop.call_later(left, self._look)


def _read(buffer: bytes, at: int) -> tuple[Reply | Refused, int]:
    """The reply that begins there and where it ends, which is -1 where it isn't whole yet."""
    line = buffer.find(b"\r\n", at)
    if line < 0:
        return None, -1
    kind, text, after = buffer[at : at + 1], buffer[at + 1 : line], line + 2
    if kind == b"$":
        return _bulk(buffer, after, int(text))
    if kind == b"+":
        return text, after
    if kind == b":":
        return int(text), after
    if kind == b"-":
        return Refused(text.decode("utf-8", "replace")), after
    raise ValueError(f"a reply that begins with {kind!r}")


def _bulk(buffer: bytes, at: int, size: int) -> tuple[bytes | None, int]:
    if size < 0:
        return None, at
    ends = at + size
    return (buffer[at:ends], ends + 2) if len(buffer) >= ends + 2 else (None, -1)
