"""The outbox of one event loop: what a turn wrote goes out in the next, all of it together."""

import asyncio
from collections.abc import Callable
from functools import partial

from tiffin.gateway.account import EventSink
from tiffin.telemetry.events import Closed, Opened


class LoopOutbox:
    """Satisfies `ports.outbox.Outbox`."""

    __slots__ = ("_actions", "_call_soon", "_writes")

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._call_soon = loop.call_soon
        self._writes: list[tuple[asyncio.WriteTransport, bytes]] = []
        self._actions: list[Callable[[], None]] = []

    def write(self, transport: asyncio.WriteTransport, data: bytes) -> None:
        """Send these bytes, soon."""
        if not self._writes and not self._actions:
            self._call_soon(self.flush)
        self._writes.append((transport, data))

    def after(self, action: Callable[[], None]) -> None:
        """Call this when everything that was given before has gone out."""
        if not self._writes and not self._actions:
            self._call_soon(self.flush)
        self._actions.append(action)

    def flush(self) -> None:
        """Send everything now."""
        if not self._writes and not self._actions:
            return
        writes, self._writes = self._writes, []
        actions, self._actions = self._actions, []
        for transport, data in writes:
            if not transport.is_closing():
                transport.write(data)
        for action in actions:
            action()


class ClosingsAfterAnswers:
    """Writes the closing of an account once its answer's last byte was handed to the socket."""

    __slots__ = ("_outbox", "_sink", "open")

    def __init__(self, sink: EventSink, outbox: LoopOutbox) -> None:
        self._sink = sink
        self._outbox = outbox
        self.open: Callable[[Opened], None] = sink.open

    def close(self, event: Closed) -> None:
        """Write it at the end of the loop's turn."""
        self._outbox.after(partial(self._sink.close, event))
