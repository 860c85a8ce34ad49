"""A rate that several gateways share; without the store each has its share of it."""

from math import gcd

from tiffin.gateway.limits.gcra import Gcra
from tiffin.gateway.limits.slots import SOON_NS
from tiffin.gateway.share import Share
from tiffin.ports.limit_store import Change, Kind, Want

MOST_FINE = 10**12
"""A rate of more is counted in thousands, so that its moments fit what the store counts with."""


class SharedRate:  # noqa: PLR0904 - a meter's methods, and three for the store
    """A rate."""

    __slots__ = (
        "_alone",
        "_amount",
        "_answered",
        "_burst",
        "_held",
        "_name",
        "_period",
        "_share",
        "_tat",
    )

    def __init__(self, name: str, rate: tuple[int, int, int], share: Share) -> None:
        self._name = name
        self._share = share
        self._held = 0
        self._tat = 0
        self._answered = True
        self._alone: Gcra | None = None
        self._set(*rate)

    @property
    def capacity(self) -> int:
        """What may be taken at once; more never passes."""
        return self._burst

    def change(self, amount: int, period_ns: int, burst: int, now: int) -> None:
        """Take another rate; what was taken stays taken, as the store sees to it."""
        ahead = max(0, self._tat - now * self._amount)
        before = self._period
        self._set(amount, period_ns, burst)
        self._tat = now * self._amount + ahead * self._period // before
        if self._alone is not None and (own := self._own()):
            self._alone.change(*own, now)

    def want(self, amount: int, now: int, *, shadow: bool, lasting: bool) -> Want:
        """What to ask the store for."""
        return Want(
            Kind.RATE,
            self._name,
            amount * self._period,
            self._burst * self._period,
            now * self._amount,
            self._amount,
            self._period,
            shadow=shadow,
            lasting=lasting,
        )

    def learn(self, want: Want, level: int, now: int, *, taken: bool) -> int:
        """The store has answered."""
        self._answered = True
        over = level + want.cost - want.room
        if taken and over <= 0:
            level += want.cost
            self._held += want.lasting
        if (want.amount, want.period) == (self._amount, self._period):
            self._tat = now * self._amount + level
        return -(-over // want.amount) if over > 0 else 0

    def change_of(self, want: Want, reserved: int, used: int, now: int) -> Change:
        """What to tell the store."""
        self._held -= 1
        own = want._replace(amount=self._amount, period=self._period)
        return Change(own, (used - reserved) * self._period, now * self._amount)

    def wait(self, wanted: int, now: int) -> int:
        """Nanoseconds until so much may be taken of this gateway's share."""
        self._answered = False
        if self._alone is None:
            own = self._own()
            if own is None:
                return SOON_NS
            self._alone = Gcra(*own)
        return self._alone.wait(wanted, now)

    def take(self, wanted: int, now: int) -> None:
        """Take of the share, after `wait`."""
        if self._alone is not None:
            self._alone.take(wanted, now)

    def reserve(self, wanted: int, now: int) -> int:
        """Take of the share, after `wait`, what may be given back."""
        return self._alone.reserve(wanted, now) if self._alone is not None else 0

    def settle(self, mark: int, reserved: int, used: int, now: int) -> None:
        """End a reservation of the share."""
        if self._alone is not None:
            self._alone.settle(mark, reserved, used, now)

    def left(self, now: int) -> int:
        """How much may be taken right now."""
        if self._alone is not None and not self._answered:
            return self._alone.left(now)
        ahead = max(0, self._tat - now * self._amount)
        return max(0, self._burst - -(-ahead // self._period))

    def recovers_in(self, now: int) -> int:
        """Nanoseconds until everything may be taken again."""
        if self._alone is not None and not self._answered:
            return self._alone.recovers_in(now)
        return max(0, -(-(self._tat - now * self._amount) // self._amount))

    def rests(self, now: int) -> bool:
        """Whether it has nothing to remember."""
        alone = self._alone is None or self._alone.rests(now)
        return alone and not self._held and self._tat <= now * self._amount

    def _own(self) -> tuple[int, int, int] | None:
        """The share as a rate, where there is any."""
        amount, burst = self._share.of(self._amount), self._share.of(self._burst)
        return (amount, self._period, burst) if amount and burst else None

    def _set(self, amount: int, period_ns: int, burst: int) -> None:
        if amount > MOST_FINE:
            amount -= amount % 1000
        common = gcd(amount, period_ns)
        self._amount, self._period, self._burst = amount // common, period_ns // common, burst
