"""An amount by the calendar that several gateways share; without the store each has its share."""

from tiffin.gateway.limits.calendar import Budget
from tiffin.gateway.share import Share
from tiffin.ports.limit_store import Change, Kind, Want

DAY_MS = 86_400_000


class SharedBudget:  # noqa: PLR0904 - a meter's methods, and three for the store
    """An amount by the calendar; `own` has on record what this gateway spent of it.

    What was spent while the store didn't answer is `owed` to it.
    """

    __slots__ = (
        "_allowed",
        "_amount",
        "_begins",
        "_charged",
        "_name",
        "_owed_in",
        "_share",
        "owed",
        "own",
    )

    def __init__(self, name: str, amount: int, own: Budget, share: Share) -> None:
        self._name = name
        self._amount = amount
        self._share = share
        self.own = own
        self._begins = -1
        self._charged = 0
        # What may still be spent of the share while the store doesn't answer, in which period.
        self._allowed: tuple[int, int] | None = None
        self.owed = 0
        self._owed_in = -1

    @property
    def capacity(self) -> int:
        """What may be taken at once; more never passes."""
        return self._amount

    def change(self, amount: int) -> None:
        """Take another amount; what was spent stays spent."""
        self._amount = amount
        self.own.change(amount)
        self._allowed = None

    def want(self, amount: int, now: int, *, shadow: bool, lasting: bool) -> Want:
        """What to ask the store for; raises `JournalUnavailable` as `Budget.wait` does."""
        self.own.wait(0, now)
        begins, ends, charged = self.own.known(now)
        return Want(
            Kind.BUDGET,
            f"{self._name}:{begins}",
            amount,
            self._amount,
            begins,
            floor=max(0, charged - self.owed),
            keep_ms=(ends - now) // 10**6 + DAY_MS,
            shadow=shadow,
            lasting=lasting,
        )

    def learn(self, want: Want, level: int, now: int, *, taken: bool) -> int:
        """The store has answered."""
        self._allowed = None
        over = level + want.cost - want.room
        if taken and over <= 0:
            level += want.cost
            self.own.take(want.cost, now)
        self._begins, self._charged = want.now, level
        return max(1, self.own.known(now)[1] - now) if over > 0 else 0

    def change_of(self, want: Want, reserved: int, used: int, now: int) -> Change:
        """What to tell the store."""
        self.own.settle(want.now, reserved, used, now)
        if want.now == self._begins:
            self._charged += used - reserved
        return Change(want, used - reserved, want.now)

    def wait(self, wanted: int, now: int) -> int:
        """Nanoseconds until so much may be spent of this gateway's share of what was left."""
        self.own.wait(0, now)
        begins, ends, _ = self.own.known(now)
        if self._allowed is None or self._allowed[0] != begins:
            self._allowed = begins, self._share.of(self._left(now))
        return 0 if wanted <= self._allowed[1] else max(1, ends - now)

    def take(self, wanted: int, now: int) -> None:
        """Spend of the share for good, after `wait`."""
        self.reserve(wanted, now)

    def reserve(self, wanted: int, now: int) -> int:
        """Spend of the share, after `wait`, what may be given back."""
        mark = self.own.reserve(wanted, now)
        self.owe(mark, wanted)
        return mark

    def settle(self, mark: int, reserved: int, used: int, now: int) -> None:
        """End a reservation of the share."""
        self.own.settle(mark, reserved, used, now)
        self.owe(mark, used - reserved)

    def left(self, now: int) -> int:
        """How much may be taken right now."""
        if self._allowed is not None:
            return max(0, self._allowed[1])
        return self._left(now)

    def recovers_in(self, now: int) -> int:
        """Nanoseconds until everything may be taken again."""
        return 0 if self.left(now) == self._amount else self.own.known(now)[1] - now

    def rests(self, now: int) -> bool:
        """Whether it has nothing to remember."""
        return self.own.rests(now) and not self.owed

    def owe(self, begins: int, amount: int) -> None:
        """So much more was spent that the store wasn't told, or less; of another period than
        before nothing is owed any more."""
        if self._owed_in != begins:
            self.owed, self._owed_in = 0, begins
        self.owed += amount
        if self._allowed is not None and self._allowed[0] == begins:
            self._allowed = begins, self._allowed[1] - amount

    def _left(self, now: int) -> int:
        """What is left of the whole, as the store or as the records say."""
        begins, _, charged = self.own.known(now)
        if begins == self._begins:
            charged = max(charged, self._charged)
        return max(0, self._amount - charged)
