"""Which of a target's places a request goes to, and why; pure.

The rules, in their order:
- One that was set aside and whose time is over gets one request, which tries it.
- Where every place is set aside, the one that may be tried soonest is used: none is refused for it.
- A text goes where most of its beginning is warm, unless that place has many more requests
  outstanding than another, or got many more of late.
- One that is warm nowhere goes, among those that aren't busier, where it replaces none or the one
  that was used least recently of all, and where fewest live.
- All others go where fewest requests are outstanding, of several to the one idle for longest.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Final, Generic, NamedTuple, TypeVar

from tiffin.gateway.placement.health import Health
from tiffin.gateway.placement.prefixes import Chain, Line, Memory

MAX_SKEW: Final = 1.4
"""How many times as many requests a place may get for its warmth as the one that gets fewest."""
GRACE: Final = 4.0
"""Requests by which it may be ahead before that is looked at."""
WINDOW: Final = 64.0
"""Requests a place over which that is reckoned; then half of them are forgotten."""


class Reason(Enum):
    """Why a place was chosen."""

    LEAST = "least"
    PREFIX = "prefix"
    SPREAD = "spread"
    PROBE = "probe"
    PANIC = "panic"


@dataclass(slots=True, eq=False)
class Standing:
    """What is known of one place, by which it is chosen."""

    slots: int = 1
    outstanding: int = 0
    placed: float = 0.0
    turn: int = 0
    health: Health = field(default_factory=Health)
    memory: Memory = field(init=False)

    def __post_init__(self) -> None:
        self.memory = Memory(self.slots)


S = TypeVar("S", bound=Standing)


@dataclass(frozen=True, slots=True)
class Wish:
    """Who asks: `chain` is empty where nothing of it could be warm."""

    tenant: str = ""
    chain: Chain = ()
    may_try: bool = True


class Choice(NamedTuple, Generic[S]):
    """A place, why it is the one, and what of its memory the request takes."""

    place: S
    reason: Reason
    line: Line | None


class Chooser(Generic[S]):
    """Chooses among places and keeps count of what went where."""

    __slots__ = ("_turn",)

    def __init__(self) -> None:
        self._turn = 0

    def choose(self, places: Sequence[S], wish: Wish, now: float) -> "Choice[S]":
        """One of these (at least one) for a request; it counts as placed there.

        Whoever gets it settles the place's health and gives the line back when it has ended.
        """
        place, reason = _choice(places, wish, now)
        if reason is Reason.PROBE:
            place.health.try_it()
        self._turn += 1
        place.turn = self._turn
        place.placed += 1
        if sum(one.placed for one in places) > WINDOW * len(places):
            for one in places:
                one.placed /= 2
        return Choice(place, reason, place.memory.take(wish.tenant, wish.chain, self._turn))


def _choice(places: Sequence[S], wish: Wish, now: float) -> tuple[S, Reason]:
    if wish.may_try:
        for place in places:
            if place.health.may_be_tried(now):
                return place, Reason.PROBE
    trusted = [place for place in places if not place.health.out]
    if not trusted:
        return min(places, key=lambda one: (one.health.until, one.outstanding)), Reason.PANIC
    least = min(place.outstanding for place in trusted)
    if wish.chain:
        return _by_prefix(trusted, wish, least)
    return min(trusted, key=_busy), Reason.LEAST


def _by_prefix(places: Sequence[S], wish: Wish, least: int) -> tuple[S, Reason]:
    free = [place for place in places if place.outstanding <= least + max(1, place.slots // 2)]
    warmth = {id(place): place.memory.warm(wish.tenant, wish.chain) for place in places}
    most = max(warmth.values())
    if not most:
        return min(free, key=_loss), Reason.SPREAD
    fewest = min(place.placed for place in places)
    warm = [
        place
        for place in free
        if warmth[id(place)] == most and place.placed <= MAX_SKEW * fewest + GRACE
    ]
    if warm:
        return min(warm, key=_busy), Reason.PREFIX
    return min(places, key=_busy), Reason.LEAST


def _loss(place: Standing) -> tuple[float, ...]:
    return place.memory.loses, len(place.memory), *_busy(place)


def _busy(place: Standing) -> tuple[int, int]:
    return place.outstanding, place.turn
