"""The generic cell rate algorithm: a rate and a burst kept in one moment.

Source: ITU-T I.371. The moment is the theoretical arrival time of the next conforming request; a
request conforms when it is at most `burst - 1` intervals ahead of now.
"""


class Gcra:
    """One rate: a request every `interval_s` seconds, up to `burst` at once."""

    __slots__ = ("_next_at", "_slack_s", "burst", "interval_s")

    def __init__(self) -> None:
        self._next_at = 0.0
        self.set(1.0, 1)

    def set(self, interval_s: float, burst: int) -> None:
        """Change the rate; what was spent stays spent."""
        self.interval_s = interval_s
        self.burst = burst
        self._slack_s = (burst - 1) * interval_s

    def wait(self, now: float) -> float:
        """Seconds until one more request conforms, 0 or less where it does now. Spends nothing."""
        return self._next_at - now - self._slack_s

    def spend(self, now: float) -> None:
        """Take one request; call only when `wait` allowed it."""
        self._next_at = max(self._next_at, now) + self.interval_s

    def remaining(self, now: float) -> int:
        """How many requests conform right now."""
        ahead = self._next_at - now
        if ahead <= 0:
            return self.burst
        return max(0, int(self.burst - ahead / self.interval_s + 1e-9))
