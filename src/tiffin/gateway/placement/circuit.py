"""Whether an upstream is called at all: it opens when calls fail, and one request tries it; pure.

An upstream may be the only one, so being set aside refuses requests, unlike a replica's `Health`.
Therefore failures that are all one tenant's close it to that tenant alone: whoever sends what makes
a server fail can't take it from others. Moments are seconds of one monotonic clock.
"""

from enum import IntEnum
from typing import Final, NamedTuple

PATIENCE: Final = 5
"""How many calls in a row must fail before it opens."""
FIRST_OPEN_S: Final = 0.5
MAX_OPEN_S: Final = 30.0
FORGIVEN_AFTER_S: Final = 60.0
TRIAL_S: Final = 5.0
"""How long a request that tries it may take before another one may too."""
MAX_REST_S: Final = 60.0
"""How long it is left alone at most because it said when to come again."""


class State(IntEnum):
    """As it is shown in metrics."""

    CLOSED = 0
    HALF_OPEN = 1
    OPEN = 2


class Held(NamedTuple):
    """What of a circuit outlives its process: how often in a row it was set aside, for how long it
    still is, and for how long it rests."""

    openings: int = 0
    left_s: float = 0.0
    rests_s: float = 0.0


class Circuit:
    """One server's, or one key's there."""

    __slots__ = ("_failures", "_opened_at", "_patience", "_resting", "_until", "_whose", "openings")

    def __init__(self, patience: int = PATIENCE) -> None:
        self._patience = patience
        self._failures = 0
        self._opened_at = 0.0
        self._until = 0.0
        self._resting = 0.0
        self._whose = ""
        """Whose all failures in a row were, empty where they were several tenants'."""
        self.openings = 0
        """How often in a row it was set aside; 0 while it is closed."""

    def left_s(self, tenant: str, now: float) -> float:
        """For how long this tenant's requests aren't to go there; 0 where they may."""
        resting = max(0.0, self._resting - now)
        if not self.openings or (self._whose and self._whose != tenant):
            return resting
        return max(resting, self._until - now)

    def state(self, now: float) -> State:
        """Whether requests go there, one may try it, or none do."""
        if now < self._resting or (self.openings and now < self._until):
            return State.OPEN
        return State.HALF_OPEN if self.openings else State.CLOSED

    def enter(self, now: float) -> None:
        """A request that may goes there; where it is open, to see how it does."""
        if self.openings and now >= self._until:
            self._until = now + TRIAL_S

    def went_well(self, began: float) -> bool:
        """A call that began then went well; true where that closes it."""
        if self.openings and began < self._opened_at:
            return False
        was_open = self.openings > 0
        self.openings = self._failures = 0
        self._until = 0.0
        return was_open

    def failed(self, tenant: str, began: float, now: float) -> bool:
        """A tenant's call that began then failed; true where that opens it, or keeps it open.

        What began before it opened says nothing about it since.
        """
        if self.openings and began < self._opened_at:
            return False
        self._whose = tenant if not self._failures or self._whose == tenant else ""
        self._failures += 1
        if not self.openings and self._failures < self._patience:
            return False
        self.openings = 1 if now >= self._until + FORGIVEN_AFTER_S else self.openings + 1
        self._opened_at = now
        self._until = now + min(MAX_OPEN_S, FIRST_OPEN_S * 2.0 ** (self.openings - 1))
        return True

    def rest(self, seconds: float, now: float) -> None:
        """It said when to come again: nobody goes there before, all may after."""
        self._resting = max(self._resting, now + min(seconds, MAX_REST_S))

    def held(self, now: float) -> Held | None:
        """What is to be known of it after a restart; None where nothing is."""
        rests_s = max(0.0, self._resting - now)
        if not self.openings and not rests_s:
            return None
        return Held(self.openings, max(0.0, self._until - now), rests_s)

    def resume(self, held: Held, now: float) -> None:
        """Go on as it was held, whatever the clock did meanwhile: no longer than it could be."""
        self.rest(held.rests_s, now)
        if held.openings > 0:
            self.openings = held.openings
            self._failures = self._patience
            self._opened_at = now
            self._until = now + min(max(held.left_s, 0.0), MAX_OPEN_S)
