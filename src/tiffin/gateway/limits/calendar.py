"""Amounts by the calendar: so much in each second, minute, hour, day or month, exactly."""

from datetime import UTC, datetime

from tiffin.ports.spent import Record

SECOND_NS = 10**9
PERIOD_NS = {
    "second": SECOND_NS,
    "minute": 60 * SECOND_NS,
    "hour": 3600 * SECOND_NS,
    "day": 86_400 * SECOND_NS,
}


def period(per: str, now_ns: int, east_ns: int = 0) -> tuple[int, int]:
    """The beginning and the end of the period that a moment is in; UTC nanoseconds.

    Days begin `east_ns` before those of UTC.
    """
    here = now_ns + east_ns
    length = PERIOD_NS.get(per)
    if length is not None:
        begins = now_ns - here % length
        return begins, begins + length
    now = datetime.fromtimestamp(here // SECOND_NS, UTC)
    first = datetime(now.year, now.month, 1, tzinfo=UTC)
    after = datetime(now.year + now.month // 12, now.month % 12 + 1, 1, tzinfo=UTC)
    return (
        int(first.timestamp()) * SECOND_NS - east_ns,
        int(after.timestamp()) * SECOND_NS - east_ns,
    )


class Budget:
    """What may be spent in each period; a reservation counts as spent until it is settled.

    So does everything that the record knows of others: earlier lives of this process, and gateways
    that end. A clock that steps back makes no period begin again.
    """

    __slots__ = ("_amount", "_begins", "_charged", "_east_ns", "_ends", "_per", "_record")

    def __init__(self, amount: int, per: str, record: Record, east_ns: int = 0) -> None:
        self._amount = amount
        self._per = per
        self._east_ns = east_ns
        self._record = record
        self._charged = 0
        self._begins = self._ends = 0

    @property
    def capacity(self) -> int:
        """What may be taken at once; more never passes."""
        return self._amount

    def change(self, amount: int) -> None:
        """Take another amount; what was spent stays spent."""
        self._amount = amount

    def wait(self, wanted: int, now: int) -> int:
        """Nanoseconds until so much may be taken, 0 where it may now. Takes nothing.

        Raises `JournalUnavailable` where nothing can be put on record in this period; where it
        doesn't, the period's reservations can.
        """
        if now >= self._ends:
            begins, ends = period(self._per, now, self._east_ns)
            self._record.write(begins, 0)
            self._begins, self._ends, self._charged = begins, ends, 0
        left = self._amount - self._charged - self._record.others(self._begins)
        return 0 if wanted <= left else max(1, self._ends - now)

    def take(self, wanted: int, now: int) -> None:
        """Spend for good, after `wait`."""
        self._charge(wanted)

    def reserve(self, wanted: int, now: int) -> int:
        """Take, after `wait`, what may be given back; returns the mark for `settle`: the period."""
        self._charge(wanted)
        return self._begins

    def settle(self, mark: int, reserved: int, used: int, now: int) -> None:
        """End a reservation: it spent what it used, in the period in which it began."""
        if mark == self._begins and used != reserved:
            self._charge(used - reserved)

    def left(self, now: int) -> int:
        """How much may be taken right now."""
        begins, _, charged = self._period(now)
        return max(0, self._amount - charged - self._record.others(begins))

    def recovers_in(self, now: int) -> int:
        """Nanoseconds until everything may be taken again."""
        return 0 if self.left(now) == self._amount else self._period(now)[1] - now

    def known(self, now: int) -> tuple[int, int, int]:
        """When the period begins and ends that a moment is in, and what is charged in it by
        everybody, as far as the record knows of others."""
        begins, ends, charged = self._period(now)
        return begins, ends, charged + self._record.others(begins)

    def rests(self, now: int) -> bool:
        """Whether it has nothing to remember."""
        return not self._charged or now >= self._ends

    def _period(self, now: int) -> tuple[int, int, int]:
        """When the period begins and ends that a moment is in, and what is charged in it."""
        if now < self._ends:
            return self._begins, self._ends, self._charged
        return (*period(self._per, now, self._east_ns), 0)

    def _charge(self, amount: int) -> None:
        """On record first: whoever dies in between leaves no less than was spent."""
        charged = self._charged + amount
        self._record.write(self._begins, charged)
        self._charged = charged


class _Nowhere:
    """A record that nobody keeps."""

    def others(self, begins_ns: int) -> int:
        """Nothing."""
        return 0

    def write(self, begins_ns: int, charged: int) -> None:
        """Forgets it."""


class Unrecorded:
    """Satisfies `ports.spent.Spent` where nothing has to outlive the process."""

    def record(self, name: str) -> Record:
        """A record that nobody keeps."""
        return _Nowhere()

    def forget(self, name: str) -> None:
        """There is nothing to forget."""
