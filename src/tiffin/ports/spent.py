"""What was spent of amounts that hold for a period of the calendar, over the death of processes.

Contract:
- A record is this process's alone; `others` is what all other processes, dead or alive, wrote for
  the same name and the same period.
- What was written is there for the next process, however this one ends: `kill -9` included.
- `write` says everything that this process has charged in a period, reservations too, so that
  whoever dies leaves behind no less than was spent. Once a record was written it can be written
  again; the first time it raises `JournalUnavailable` where there is no room.
- `forget` gives up a record that nothing is charged on, or whose period is over.
"""

from typing import Protocol


class Record(Protocol):
    """What was charged under one name."""

    def others(self, begins_ns: int) -> int:
        """What others charged in the period that begins at a moment (UTC nanoseconds)."""
        ...

    def write(self, begins_ns: int, charged: int) -> None:
        """Say what this process has charged in it."""
        ...


class Spent(Protocol):
    """All records of one installation."""

    def record(self, name: str) -> Record:
        """The record of a name, the same one for the same name."""
        ...

    def forget(self, name: str) -> None:
        """Give up a record."""
        ...
