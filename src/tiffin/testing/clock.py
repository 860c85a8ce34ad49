"""A clock that a test moves."""


class FakeClock:
    """Satisfies `ports.clock.Clock`: time passes only by `advance`."""

    def __init__(self, *, at_ns: int = 1_700_000_000_000_000_000, at_s: float = 1000.0) -> None:
        self._ns = at_ns
        self._s = at_s

    def now_ns(self) -> int:
        """UTC nanoseconds."""
        return self._ns

    def monotonic(self) -> float:
        """Seconds."""
        return self._s

    def advance(self, seconds: float) -> None:
        """Let time pass."""
        self._ns += int(seconds * 1e9)
        self._s += seconds
