"""The generic cell rate algorithm in whole numbers: a rate and a burst kept in one moment.

Source: ITU-T I.371. The moment is when all that was taken will have recovered, here in units of
1/amount nanoseconds, so that no rate has to be rounded. What a request used counts from when it was
reserved; of what it didn't use as much is given back as would be there now, had it never been
reserved: no more than the least that was taken at any time since, for the rest has recovered
already. That least is kept for each time since which somebody has a reservation (it's the sliding
minimum of a queue's level, after Skorokhod's reflection).
"""

from bisect import bisect_right

MAX_MARKS = 64


class Gcra:
    """One rate: `amount` in `period_ns`, up to `burst` at once. Moments are nanoseconds."""

    __slots__ = (
        "_amount",
        "_burst",
        "_held",
        "_last",
        "_lows",
        "_marks",
        "_period_ns",
        "_tat",
    )

    def __init__(self, amount: int, period_ns: int, burst: int) -> None:
        self._amount = amount
        self._period_ns = period_ns
        self._burst = burst
        self._tat = 0
        # The least that was taken since each mark; both ascend.
        self._marks: list[int] = []
        self._lows: list[int] = []
        self._held = 0
        self._last = 0

    @property
    def capacity(self) -> int:
        """What may be taken at once; more never passes."""
        return self._burst

    def change(self, amount: int, period_ns: int, burst: int, now: int) -> None:
        """Take another rate; what was taken stays taken, and what is reserved isn't given back."""
        if (amount, period_ns, burst) == (self._amount, self._period_ns, self._burst):
            return
        ahead = -(-self._ahead(now) * period_ns // self._period_ns)
        self._amount, self._period_ns, self._burst = amount, period_ns, burst
        self._tat = now * amount + ahead
        if self._lows:
            self._marks, self._lows = self._marks[:1], [0]

    def wait(self, wanted: int, now: int) -> int:
        """Nanoseconds until so much may be taken, 0 where it may now. Takes nothing."""
        over = self._ahead(now) + (wanted - self._burst) * self._period_ns
        return -(-over // self._amount) if over > 0 else 0

    def take(self, wanted: int, now: int) -> None:
        """Take for good; more than there is makes a debt, which must recover first."""
        ahead = self._ahead(now)
        if self._lows:
            self._see(ahead)
        self._tat = now * self._amount + ahead + wanted * self._period_ns

    def reserve(self, wanted: int, now: int) -> int:
        """Take what may be given back; returns the mark that `settle` wants."""
        self.take(wanted, now)
        self._last = mark = self._last + 1
        self._marks.append(mark)
        self._lows.append(self._ahead(now))
        if len(self._marks) > MAX_MARKS:  # two neighbours share the lower of their levels
            del self._marks[1::2], self._lows[1::2]
        self._held += 1
        return mark

    def settle(self, mark: int, reserved: int, used: int, now: int) -> None:
        """End a reservation: what it didn't use comes back, what it used beyond it is a debt."""
        if used > reserved:
            self.take(used - reserved, now)
        elif used < reserved:
            self._see(self._ahead(now))
            self._give_back(mark, (reserved - used) * self._period_ns)
        self._held -= 1
        if not self._held:
            self._marks.clear()
            self._lows.clear()

    def left(self, now: int) -> int:
        """How much may be taken right now."""
        return max(0, self._burst - -(-self._ahead(now) // self._period_ns))

    def recovers_in(self, now: int) -> int:
        """Nanoseconds until everything may be taken again."""
        return -(-self._ahead(now) // self._amount)

    def rests(self, now: int) -> bool:
        """Whether it has nothing to remember."""
        return not self._held and self._tat <= now * self._amount

    def _ahead(self, now: int) -> int:
        """What is taken and hasn't recovered."""
        ahead = self._tat - now * self._amount
        return ahead if ahead > 0 else 0

    def _see(self, level: int) -> None:
        """Note a level: whoever reserved before has seen no more."""
        marks, lows = self._marks, self._lows
        mark = 0
        while lows and lows[-1] >= level:
            lows.pop()
            mark = marks.pop()
        if mark:
            marks.append(mark)
            lows.append(level)

    def _give_back(self, mark: int, amount: int) -> None:
        marks, lows = self._marks, self._lows
        at = bisect_right(marks, mark) - 1
        back = min(amount, lows[at])
        self._tat -= back
        for later in range(at, len(lows)):
            lows[later] -= back
        first = at
        while first and lows[first - 1] >= lows[at]:
            first -= 1
        lows[first] = lows[at]
        del marks[first + 1 : at + 1], lows[first + 1 : at + 1]
