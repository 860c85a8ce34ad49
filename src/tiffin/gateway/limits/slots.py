"""How many requests run at once."""

# Nobody knows when one of them ends.
SOON_NS = 10**9


class Slots:
    """Room for so many at once; what is reserved is a slot until it is settled."""

    __slots__ = ("_amount", "taken")

    def __init__(self, amount: int) -> None:
        self._amount = amount
        self.taken = 0

    @property
    def capacity(self) -> int:
        """How many there are."""
        return self._amount

    def change(self, amount: int) -> None:
        """Have another number of slots; those that are taken stay taken."""
        self._amount = amount

    def wait(self, wanted: int, now: int) -> int:
        """Nanoseconds until it may be worth trying, 0 where there is room now."""
        return 0 if self.taken + wanted <= self._amount else SOON_NS

    def take(self, wanted: int, now: int) -> None:
        """Take slots for good; nobody does."""
        self.taken += wanted

    def reserve(self, wanted: int, now: int) -> int:
        """Take slots."""
        self.taken += wanted
        return 0

    def settle(self, mark: int, reserved: int, used: int, now: int) -> None:
        """Give them back."""
        self.taken -= reserved

    def left(self, now: int) -> int:
        """How many are free."""
        return max(0, self._amount - self.taken)

    def recovers_in(self, now: int) -> int:
        """Nanoseconds until all may be free."""
        return SOON_NS if self.taken else 0

    def rests(self, now: int) -> bool:
        """Whether none is taken."""
        return not self.taken
