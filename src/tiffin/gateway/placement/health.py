"""Whether a place can be trusted with requests: outliers are set aside, then tried again; pure.

Being set aside never refuses a request, it only sends it elsewhere: so whoever sends what breaks
every place can't close a model for others. Moments are seconds of one monotonic clock.
"""

from enum import Enum
from typing import Final

EJECT_AFTER: Final = 5
"""How many requests must fail one after another, all of them at one place, before it is out."""
FIRST_OUT_S: Final = 0.5
MAX_OUT_S: Final = 30.0
FORGIVEN_AFTER_S: Final = 60.0


class Verdict(Enum):
    """What a request's end says of its place: `gone` is that nothing answers there."""

    GOOD = "good"
    FAILED = "failed"
    GONE = "gone"
    NEITHER = "neither"


class Health:
    """One place's: trusted, out for a while that doubles, or on trial with one request."""

    __slots__ = ("_failures", "_gone", "_on_trial", "_out_at", "ejections", "out", "until")

    def __init__(self) -> None:
        self.out = False
        self.until = 0.0
        """When it may be tried again, where it is out."""
        self.ejections = 0
        """How often in a row it was set aside."""
        self._failures = 0
        self._gone = False
        self._on_trial = False
        self._out_at = 0.0

    def may_be_tried(self, now: float) -> bool:
        """Whether it is out, its time is over, and no request tries it already."""
        return self.out and now >= self.until and not self._on_trial

    def try_it(self) -> None:
        """A request goes there to see; `settle` ends the trial."""
        self._on_trial = True

    def settle(self, verdict: Verdict, begun: float, now: float, *, trial: bool = False) -> bool:
        """A request that began at `begun` has ended; true where that sets the place aside.

        What began before it was set aside says nothing about it since.
        """
        if trial:
            self._on_trial = False
        if verdict is Verdict.NEITHER or (self.out and begun < self._out_at):
            return False
        if verdict is Verdict.GOOD:
            self.out = False
            self._failures = 0
            return False
        self._failures += 1
        self._gone = verdict is Verdict.GONE
        if self.out or self._gone or self._failures >= EJECT_AFTER:
            self._eject(now)
            return True
        return False

    def answered(self, now: float) -> None:
        """It answers questions about its health: where it seemed gone, it may be tried at once."""
        if self.out and self._gone:
            self.until = min(self.until, now)

    def _eject(self, now: float) -> None:
        if now >= self.until + FORGIVEN_AFTER_S:
            self.ejections = 0
        self.ejections += 1
        self.out = True
        self._out_at = now
        self.until = now + min(MAX_OUT_S, FIRST_OUT_S * 2 ** (self.ejections - 1))
