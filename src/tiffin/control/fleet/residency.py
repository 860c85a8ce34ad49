"""Which replicas are in a machine's memory, decided from values alone: what to start, what to stop.

The rules, in their order:
- What is bigger than the memory, or than what the always-loaded ones leave, is refused.
- An on-demand replica that nobody used for `idle_s` ends.
- Replicas that are always loaded come first, then on-demand ones in the order in which requests
  began to wait, then further replicas of models that run already, where room is left over.
- Where room is short, idle on-demand replicas end, least recently used first; then, for who has
  waited a victim's `hold_s` already, busy ones, longest loaded first. None ends within `hold_s`
  of being ready, so rivals with steady traffic take turns of at least that long.
- Nothing ends unless enough of it may end to make the room. Who waits for room keeps it free of
  those that came later.
- A new generation comes beside the old one where both fit; otherwise the old one ends first.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import Enum

from tiffin.control.fleet.shortage import Shortage


class Presence(Enum):
    """Where a replica is: `failed` has no process until its next try."""

    ABSENT = "absent"
    STARTING = "starting"
    READY = "ready"
    STOPPING = "stopping"
    FAILED = "failed"


@dataclass(frozen=True, slots=True, kw_only=True)
class Lodger:
    """One replica that should be there, or may be; times are seconds of one clock.

    `age` orders the generations of a model: the highest is the newest. `since_s` is when
    `presence` began, `waiting` are requests held for its model, `waiting_since_s` is since when,
    `used_s` when its model was last used. `failed` says that it didn't start when it last tried, so
    that nobody else ends for it.
    """

    name: str
    model: str
    need_bytes: int
    on_demand: bool = False
    age: int = 0
    presence: Presence = Presence.ABSENT
    since_s: float = 0.0
    outstanding: int = 0
    waiting: int = 0
    waiting_since_s: float = 0.0
    used_s: float = 0.0
    idle_s: float = 300.0
    hold_s: float = 10.0
    failed: bool = False

    @property
    def resident(self) -> bool:
        """Whether it takes memory now, or may at any moment."""
        return self.presence is not Presence.ABSENT

    @property
    def busy(self) -> bool:
        """Whether somebody waits for an answer of it."""
        return self.outstanding > 0 or self.waiting > 0


@dataclass(frozen=True, slots=True)
class Wake:
    """Start this replica: its memory is free."""

    name: str
    reason: str


@dataclass(frozen=True, slots=True)
class Retire:
    """Let this replica finish what it does, then end it."""

    name: str
    reason: str


@dataclass(frozen=True, slots=True)
class Decision:
    """What to do now; and, by name, why some aren't there: `refused` can't be, `queued` wait for
    room."""

    wake: tuple[Wake, ...] = ()
    retire: tuple[Retire, ...] = ()
    refused: tuple[tuple[str, str], ...] = ()
    queued: tuple[tuple[str, str], ...] = ()


def decide(budget_bytes: int, lodgers: Sequence[Lodger], now_s: float) -> Decision:
    """What should change now. `lodgers` come in the order in which always-loaded ones are taken."""
    return _Deciding(budget_bytes, lodgers, now_s).decision()


class _Deciding:
    """One decision on its way.

    `free` is memory that nobody has; `room` adds what is being given back, less what that is
    promised to; `reach` adds what could be given back some time, less all that wait for it.
    """

    def __init__(self, budget_bytes: int, lodgers: Sequence[Lodger], now_s: float) -> None:
        self._lodgers = tuple(lodgers)
        self._now = now_s
        self._newest = _newest(lodgers)
        self._shortage = Shortage(budget_bytes)
        self._wake: list[Wake] = []
        self._retire: dict[str, Retire] = {}
        self._refused = self._refusals(budget_bytes)
        self._queued: dict[str, str] = {}
        here = [one for one in lodgers if one.resident]
        self._free = budget_bytes - sum(one.need_bytes for one in here)
        leaving = [one for one in here if one.presence is Presence.STOPPING]
        self._room = self._free + sum(one.need_bytes for one in leaving)
        mortal = [one for one in here if one not in leaving and self._may_ever_end(one)]
        self._reach = self._room + sum(one.need_bytes for one in mortal)

    def decision(self) -> Decision:
        self._end_idle()
        self._relieve()
        for lodger, since_s, may_evict in self._wanted():
            self._seat(lodger, since_s, may_evict=may_evict)
        return Decision(
            tuple(self._wake),
            tuple(self._retire.values()),
            tuple(self._refused.items()),
            tuple(self._queued.items()),
        )

    def _refusals(self, budget: int) -> dict[str, str]:
        """Who can't be there whatever else ends."""
        refused: dict[str, str] = {}
        loaded: dict[str, int] = {}
        always = [one for one in self._lodgers if not one.on_demand and self._current(one)]
        asleep = [one for one in self._lodgers if one.on_demand and not one.resident]
        for lodger in [*sorted(always, key=lambda one: not one.resident), *asleep]:
            if not lodger.resident and sum(loaded.values()) + lodger.need_bytes > budget:
                beside = loaded if lodger.need_bytes <= budget else {}
                refused[lodger.name] = self._shortage.refused(lodger.need_bytes, beside)
            elif not lodger.on_demand:
                loaded[lodger.model] = loaded.get(lodger.model, 0) + lodger.need_bytes
        return refused

    def _current(self, lodger: Lodger) -> bool:
        return lodger.age == self._newest[lodger.model]

    def _may_ever_end(self, lodger: Lodger) -> bool:
        return lodger.on_demand or not self._current(lodger)

    def _end(self, lodger: Lodger, reason: str) -> None:
        self._retire[lodger.name] = Retire(lodger.name, reason)
        self._room += lodger.need_bytes

    def _end_idle(self) -> None:
        for lodger in self._lodgers:
            if not lodger.on_demand or lodger.busy:
                continue
            still_s = self._now - max(lodger.since_s, lodger.used_s)
            enough = still_s >= max(lodger.idle_s, lodger.hold_s)
            if enough and lodger.presence is Presence.READY:
                self._end(lodger, f"nobody used it for {still_s:.0f} s")
            elif enough and lodger.presence is Presence.FAILED:
                self._end(lodger, "it doesn't start, and nobody waits for it")

    def _relieve(self) -> None:
        """Where replicas grew beyond what they were thought to need, idle ones end."""
        for lodger in self._victims(None, self._now):
            if self._room >= 0:
                return
            self._end(lodger, "memory is short: replicas need more than was thought")

    def _wanted(self) -> Iterator[tuple[Lodger, float, bool]]:
        """Who should start, first ones first, since when, and whether others may end for it."""
        absent = [o for o in self._lodgers if not o.resident and o.name not in self._refused]
        always = [one for one in absent if not one.on_demand]
        yield from ((one, float("-inf"), not one.failed) for one in always if self._current(one))
        here = {
            (one.model, one.age)
            for one in self._lodgers
            if one.presence in (Presence.STARTING, Presence.READY) and one.name not in self._retire
        }
        first: dict[str, Lodger] = {}
        more: list[Lodger] = []
        for lodger in absent:
            if not lodger.on_demand or not self._current(lodger):
                continue
            if lodger.model in first or (lodger.model, lodger.age) in here:
                more.append(lodger)
            elif lodger.waiting or self._succeeds(lodger):
                first[lodger.model] = lodger
        in_turn = sorted(first.values(), key=lambda one: (one.failed, self._since(one), one.name))
        for lodger in in_turn:
            yield lodger, self._since(lodger), not lodger.failed
        rest = [*more, *(one for one in always if not self._current(one))]
        yield from ((one, self._now, False) for one in rest)

    def _since(self, lodger: Lodger) -> float:
        return lodger.waiting_since_s if lodger.waiting else self._now

    def _succeeds(self, lodger: Lodger) -> bool:
        """Whether an older generation of it runs."""
        return any(
            one.presence in (Presence.STARTING, Presence.READY)
            for one in self._lodgers
            if one.model == lodger.model and one.age < lodger.age
        )

    def _seat(self, lodger: Lodger, since_s: float, *, may_evict: bool) -> None:
        need = lodger.need_bytes
        if need <= min(self._free, self._room, self._reach):
            self._wake.append(Wake(lodger.name, _why(lodger)))
            self._free -= need
            self._room -= need
            self._reach -= need
            return
        self._queued[lodger.name] = self._shortage.queued(need, max(self._free, 0))
        if not may_evict:
            return
        if self._room < need <= self._reach:
            self._make_room(lodger, since_s)
        if need <= min(self._room, self._reach):
            self._room -= need
        self._reach -= need

    def _make_room(self, lodger: Lodger, since_s: float) -> None:
        """End as few as make room for it, the least missed ones; none where that isn't enough."""
        chosen: list[Lodger] = []
        missing = lodger.need_bytes - self._room
        for victim in self._victims(lodger, since_s):
            if missing <= 0:
                break
            chosen.append(victim)
            missing -= victim.need_bytes
        if missing > 0:
            return
        for victim in reversed(chosen):
            if victim.need_bytes <= -missing:
                missing += victim.need_bytes
                continue
            own = victim.model == lodger.model
            whom = "its successor: there isn't memory for both" if own else lodger.model
            self._end(victim, f"makes room for {whom}")

    def _victims(self, rival: Lodger | None, since_s: float) -> list[Lodger]:
        """Who may end now for a rival that wants its place since then, least missed first."""
        ranked: list[tuple[int, float, str, Lodger]] = []
        for one in self._lodgers:
            if one.name in self._retire or one.presence not in (Presence.READY, Presence.FAILED):
                continue
            rank = self._rank(one, rival, since_s)
            if rank is not None:
                missed = one.since_s if rank == _BUSY else max(one.used_s, one.since_s)
                ranked.append((rank, missed, one.name, one))
        return [victim for *_, victim in sorted(ranked, key=lambda entry: entry[:3])]

    def _rank(self, one: Lodger, rival: Lodger | None, since_s: float) -> int | None:
        own = rival is not None and rival.model == one.model and one.age < rival.age
        if one.presence is Presence.FAILED:
            return _FAILED if self._may_ever_end(one) else None
        held = self._now - one.since_s < one.hold_s
        if one.on_demand and not held and not one.busy:
            return _IDLE
        if one.on_demand and not held and rival and self._now - since_s >= one.hold_s and not own:
            return _BUSY
        return _OLD if own else None


_FAILED, _IDLE, _BUSY, _OLD = range(4)


def _newest(lodgers: Sequence[Lodger]) -> dict[str, int]:
    """The generation of each model that counts: the newest that isn't known to fail."""
    newest: dict[str, int] = {}
    for lodger in sorted(lodgers, key=lambda one: (not one.failed, one.age)):
        newest[lodger.model] = lodger.age
    return newest


def _why(lodger: Lodger) -> str:
    if not lodger.on_demand:
        return "it is always loaded"
    return f"{lodger.waiting} requests wait for it" if lodger.waiting else "its model is in use"
