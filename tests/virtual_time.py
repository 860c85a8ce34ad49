"""An event loop whose time passes only while everybody waits: minutes take milliseconds."""

import asyncio
import selectors
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

T = TypeVar("T")


class VirtualSelector(selectors.DefaultSelector):
    """Instead of sleeping until the next timer it lets that time pass at once."""

    passed = 0.0

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        ready = super().select(0 if timeout is None or timeout > 0 else timeout)
        if not ready and timeout is None:
            raise RuntimeError("everybody waits for something that can't come")
        if not ready and timeout is not None and timeout > 0:
            self.passed += timeout
        return ready


class VirtualLoop(asyncio.SelectorEventLoop):
    """For work without sockets and threads."""

    def __init__(self) -> None:
        self._virtual = VirtualSelector()
        super().__init__(self._virtual)

    def time(self) -> float:
        """Seconds since the loop was made."""
        return self._virtual.passed


class LoopClock:
    """Satisfies `ports.clock.Clock` by the running loop's time."""

    def now_ns(self) -> int:
        """UTC nanoseconds, beginning some day."""
        return 1_700_000_000_000_000_000 + int(self.monotonic() * 1e9)

    def monotonic(self) -> float:
        """Seconds."""
        return asyncio.get_running_loop().time()


def in_virtual_time(main: Callable[[], Coroutine[Any, Any, T]]) -> T:
    """Run to its end and give what it returns."""
    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        return runner.run(main())
