"""Where limits are counted: by this gateway alone, in its memory; `together` has them shared."""

from collections.abc import Sequence
from typing import NamedTuple, Protocol

from tiffin.gateway.limits.limit import Limit, Meter, Now, meter_of
from tiffin.ports.spent import Spent
from tiffin.types.limits import REQUESTS, Rule

Wanted = Sequence[tuple[Limit, int]]
"""Limits, and how much is to be taken of each."""

# An upstream may claim any use; that may not lock its client out for years.
MOST_DEBT = 10


class Held(Protocol):
    """What was taken and may be given back."""

    def settle(self, used: Sequence[int], now: Now) -> None:
        """So much was used, by the quantities' places; once."""
        ...


class Taken(NamedTuple):
    """Nanoseconds to wait for each that was wanted, 0 where there was room; and what is held.

    Where anything but a shadow has to wait nothing was taken; else all was that has room.
    """

    waits: Sequence[int]
    held: Held | None


class Counts(Protocol):
    """Who counts."""

    def meter_of(self, rule: Rule, name: str, spent: Spent, east_ns: int) -> Meter:
        """What counts for a rule."""
        ...

    async def take(self, tenant: str, wanted: Wanted, now: Now) -> Taken:
        """Take all or none. Raises `LimitStoreUnavailable` where nobody can count, and
        `JournalUnavailable` where it can't be put on record."""
        ...


class OwnCounts:
    """One gateway counts for itself."""

    def meter_of(self, rule: Rule, name: str, spent: Spent, east_ns: int) -> Meter:
        """What counts for a rule."""
        return meter_of(rule, name, spent, east_ns)

    async def take(self, tenant: str, wanted: Wanted, now: Now) -> Taken:
        """Take all or none."""
        return take_here(wanted, now)


def take_here(wanted: Wanted, now: Now) -> Taken:
    """Take of the meters in this process."""
    waits = [limit.meter.wait(amount, now[limit.clock]) for limit, amount in wanted]
    holds: list[tuple[Limit, int, int]] = []
    if any(waits) and not only_shadows(wanted, waits):
        return Taken(waits, None)
    for (limit, amount), wait in zip(wanted, waits, strict=True):
        if wait:
            continue
        if limit.of == REQUESTS:
            limit.meter.take(amount, now[limit.clock])
        else:
            holds.append((limit, amount, limit.meter.reserve(amount, now[limit.clock])))
    return Taken(waits, HeldHere(holds) if holds else None)


def only_shadows(wanted: Wanted, waits: Sequence[int]) -> bool:
    """Whether nothing but shadows has to wait."""
    return all(limit.shadow for (limit, _), wait in zip(wanted, waits, strict=True) if wait)


def came_to(limit: Limit, reserved: int, used: Sequence[int]) -> int:
    """How much of a limit was used, as far as that may make a debt."""
    found = used[limit.of]
    return found if found <= reserved else min(found, reserved + MOST_DEBT * limit.capacity)


class HeldHere:
    """Reservations of meters in this process: each limit, how much, and the meter's mark."""

    __slots__ = ("_holds",)

    def __init__(self, holds: Sequence[tuple[Limit, int, int]]) -> None:
        self._holds = holds

    def settle(self, used: Sequence[int], now: Now) -> None:
        """Give back what wasn't used."""
        for limit, amount, mark in self._holds:
            limit.meter.settle(mark, amount, came_to(limit, amount, used), now[limit.clock])
