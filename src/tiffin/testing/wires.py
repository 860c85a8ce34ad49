"""Two ends of a connection inside one event loop: what `asyncio` protocols need of a transport.

Nothing of it is a socket, so a loop whose time is virtual can run it.
"""

import asyncio
from typing import Any


class Wire(asyncio.Transport):
    """One end; what is written comes out at the `other`, in a later turn of the loop."""

    def __init__(self, loop: asyncio.AbstractEventLoop, protocol: asyncio.Protocol) -> None:
        super().__init__()
        self._loop = loop
        self._protocol = protocol
        self._other: Wire | None = None
        self._held: list[bytes] = []
        self._paused = False
        self._over = False

    # What a transport is.

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        """Nothing is known."""
        return default

    def is_closing(self) -> bool:
        """Whether this end is closed."""
        return self._over

    def write(self, data: bytes | bytearray | memoryview) -> None:
        """Send to the other end."""
        if not self._over and self._other is not None:
            self._loop.call_soon(self._other._take, bytes(data))

    def pause_reading(self) -> None:
        """Hold what comes."""
        self._paused = True

    def resume_reading(self) -> None:
        """Let it through, with all that was held."""
        self._paused = False
        self._let_through()

    def close(self) -> None:
        """End it; what was written before arrives first."""
        self._end(None)

    def abort(self) -> None:
        """Break it."""
        self._end(ConnectionResetError("reset by its peer"))

    # The other end.

    def _take(self, data: bytes) -> None:
        if self._over:
            return
        if self._paused:
            self._held.append(data)
        else:
            self._protocol.data_received(data)

    def _end(self, error: Exception | None) -> None:
        if self._over:
            return
        self._over = True
        self._held.clear()  # nothing comes any more at an end that was closed
        self._loop.call_soon(self._protocol.connection_lost, None)
        if self._other is not None:
            self._loop.call_soon(self._other._lose, error)

    def _lose(self, error: Exception | None) -> None:
        if not self._over:
            if error is None:  # what was held was sent before that
                self._let_through()
            self._over = True
            self._protocol.connection_lost(error)

    def _let_through(self) -> None:
        held, self._held = self._held, []
        for data in held:
            self._protocol.data_received(data)


def join(
    loop: asyncio.AbstractEventLoop, one: asyncio.Protocol, other: asyncio.Protocol
) -> tuple[Wire, Wire]:
    """A connection between two protocols, made at once."""
    here, there = Wire(loop, one), Wire(loop, other)
    here._other, there._other = there, here
    other.connection_made(there)
    one.connection_made(here)
    return here, there
