"""The generic cell rate algorithm: a rate and a burst kept in one number a key.

Source: ITU-T I.371. The number is the theoretical arrival time of the next conforming request; a
request conforms when that time is at most `burst - 1` intervals ahead of now.
"""

from dataclasses import dataclass, field


@dataclass(slots=True, frozen=True)
class Rate:
    """One request every `interval_s` seconds, and up to `burst` at once."""

    interval_s: float
    burst: int

    @staticmethod
    def per_minute(requests: int, burst: int) -> "Rate":
        """`requests` a minute; `burst` 0 means one second's worth, at least 1."""
        return Rate(60.0 / requests, burst or max(1, requests // 60))


@dataclass(slots=True)
class RateTable:
    """The state of many rates, bounded by the keys that were active lately."""

    _next: dict[str, float] = field(default_factory=dict)

    def wait(self, key: str, rate: Rate, now: float) -> float:
        """Seconds until one more request would conform; 0 now. Spends nothing."""
        ahead = self._next.get(key, now) - now
        return max(0.0, ahead - (rate.burst - 1) * rate.interval_s)

    def spend(self, key: str, rate: Rate, now: float) -> None:
        """Take one request; call only when `wait` said 0."""
        self._next[key] = max(self._next.get(key, now), now) + rate.interval_s

    def remaining(self, key: str, rate: Rate, now: float) -> int:
        """How many requests would conform right now."""
        ahead = max(0.0, self._next.get(key, now) - now)
        return max(0, int((rate.burst * rate.interval_s - ahead) / rate.interval_s + 1e-9))

    def forget_idle(self, now: float) -> None:
        """Drop every key that is back at its start, so that the table doesn't grow."""
        self._next = {key: at for key, at in self._next.items() if at > now}

    def __len__(self) -> int:
        return len(self._next)
