"""Time as a value that is handed in, so that policy is tested without sleeping."""

from typing import Protocol


class Clock(Protocol):
    """Two clocks: `now_ns` is UTC and may step, `monotonic` is seconds and only grows."""

    def now_ns(self) -> int:
        """UTC in nanoseconds since 1970."""
        ...

    def monotonic(self) -> float:
        """Seconds since an arbitrary moment of this process."""
        ...
