"""Slots that several gateways share; without the store each has its share of them."""

from tiffin.gateway.limits.slots import SOON_NS, Slots
from tiffin.gateway.share import Share
from tiffin.ports.limit_store import Change, Kind, Want


class SharedSlots:  # noqa: PLR0904 - a meter's methods, and three for the store
    """Room for so many at once; `own` are those that this gateway has of it, all that it can tell
    of."""

    __slots__ = ("_amount", "_name", "_share", "own")

    def __init__(self, name: str, amount: int, share: Share) -> None:
        self._name = name
        self._amount = amount
        self._share = share
        self.own = Slots(share.of(amount))

    @property
    def capacity(self) -> int:
        """How many there are."""
        return self._amount

    def change(self, amount: int) -> None:
        """Have another number of slots; those that are taken stay taken."""
        self._amount = amount
        self.own.change(self._share.of(amount))

    def want(self, amount: int, now: int, *, shadow: bool, lasting: bool) -> Want:
        """What to ask the store for."""
        return Want(
            Kind.SLOTS, self._name, amount, self._amount, now, shadow=shadow, lasting=lasting
        )

    def learn(self, want: Want, level: int, now: int, *, taken: bool) -> int:
        """The store has answered."""
        over = level + want.cost > want.room
        if taken and not over:
            self.own.take(want.cost, now)
        return SOON_NS if over else 0

    def change_of(self, want: Want, reserved: int, used: int, now: int) -> Change:
        """What to tell the store."""
        self.own.settle(0, reserved, used, now)
        return Change(want, -reserved, now)

    def wait(self, wanted: int, now: int) -> int:
        """Nanoseconds until it may be worth trying, 0 where this gateway's share has room."""
        return self.own.wait(wanted, now)

    def take(self, wanted: int, now: int) -> None:
        """Take slots for good; nobody does."""
        self.own.take(wanted, now)

    def reserve(self, wanted: int, now: int) -> int:
        """Take slots."""
        return self.own.reserve(wanted, now)

    def settle(self, mark: int, reserved: int, used: int, now: int) -> None:
        """Give them back."""
        self.own.settle(mark, reserved, used, now)

    def left(self, now: int) -> int:
        """How many this gateway hasn't taken."""
        return max(0, self._amount - self.own.taken)

    def recovers_in(self, now: int) -> int:
        """Nanoseconds until all may be free."""
        return SOON_NS if self.left(now) < self._amount else 0

    def rests(self, now: int) -> bool:
        """Whether none of ours is taken."""
        return self.own.rests(now)
