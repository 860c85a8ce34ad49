"""Where bytes wait for the end of the event loop's turn, so that all of a turn go out together.

A write to a process that sleeps wakes it, which costs more than the write; what is written at once
wakes it once. Contract: what is given to `write` goes out, in order, by the end of the turn or at
the next `flush`; a transport that was closed meanwhile gets nothing; what is given to `after` is
called once all those bytes were handed to their sockets.
"""

import asyncio
from collections.abc import Callable
from typing import Protocol


class Outbox(Protocol):
    """Gathers writes."""

    def write(self, transport: asyncio.WriteTransport, data: bytes) -> None:
        """Send these bytes, soon."""
        ...

    def after(self, action: Callable[[], None]) -> None:
        """Call this when everything that was given before has gone out."""
        ...

    def flush(self) -> None:
        """Send everything now."""
        ...


class DirectOutbox:
    """Nothing waits."""

    __slots__ = ()

    def write(self, transport: asyncio.WriteTransport, data: bytes) -> None:
        """Send at once."""
        transport.write(data)

    def after(self, action: Callable[[], None]) -> None:
        """Call at once."""
        action()

    def flush(self) -> None:
        """Nothing is left to send."""
