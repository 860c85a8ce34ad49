"""Limits that several gateways share: what is taken of them is taken by all or by none.

Contract:
- `reserve` takes everything that is wanted, or nothing where anything is over its room that isn't a
  shadow; a shadow that is over is left out. Others reserve before it or after it, not between.
- What is `lasting` is held under the grant's name until `settle`, which is told exactly once,
  however often the connection breaks meanwhile. Where `reserve` raises, or is cancelled, nothing
  stays held.
- `settle` never waits and never raises; what can't be told now is told later.
- Slots are held by a life of a gateway, and come back when it hasn't been heard of for a while.
- `up` is false from the first call that fails until the store has answered again. While it is,
  `reserve` raises `LimitStoreUnavailable` at once.
"""

from collections.abc import Sequence
from enum import Enum
from typing import NamedTuple, Protocol


class Kind(Enum):
    """How a limit counts: rates recover, budgets are charged in periods, slots are given back."""

    RATE = "rate"
    BUDGET = "budget"
    SLOTS = "slots"


class Want(NamedTuple):
    """So much of a limit, which may come to `room` in all.

    A rate counts in parts of 1/`amount` of a nanosecond, of which one of what it counts takes
    `period`; `now` is the moment by a clock that all gateways share. `floor` is what of a budget
    is charged at least; it is remembered for `keep_ms`.
    """

    kind: Kind
    name: str
    cost: int
    room: int
    now: int = 0
    amount: int = 1
    period: int = 1
    floor: int = 0
    keep_ms: int = 0
    shadow: bool = False
    lasting: bool = False


class Change(NamedTuple):
    """What comes of a want when it is settled: `by` how much more it took, or less."""

    want: Want
    by: int
    now: int


class Grant(NamedTuple):
    """Whether all was taken, under which name, and how much of each was taken before."""

    taken: bool
    name: str
    levels: Sequence[int]


class LimitStore(Protocol):
    """One gateway's end of the store."""

    @property
    def up(self) -> bool:
        """Whether it answers."""
        ...

    async def reserve(self, tenant: str, wants: Sequence[Want], now: int) -> Grant:
        """Take all or none; `now` is in nanoseconds. Raises `LimitStoreUnavailable`."""
        ...

    def settle(self, tenant: str, name: str, changes: Sequence[Change | None], now: int) -> None:
        """End a grant: one change for each want of it that is lasting and was taken, else None."""
        ...
