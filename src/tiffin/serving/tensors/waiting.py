"""Requests that wait for a run, in groups that may run as one; pure, no clock, no loop.

A batch is made of one group only: requests whose arrays agree in everything but their rows. The
group whose first request is the most urgent gives the next batch: interactive before batch work,
then first come first.
"""

import asyncio
import math
from collections import deque
from collections.abc import Hashable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from numpy.typing import NDArray

from tiffin.types.usage import Usage

Key = tuple[bool, Hashable]


class Ran(NamedTuple):
    """What became of a request: its own rows of the outputs, and what they took."""

    outputs: Mapping[str, NDArray[Any]]
    usage: Usage


@dataclass(slots=True, eq=False)
class Item:
    """One request. `deadline` is monotonic seconds; `left` says that nobody wants it any more."""

    inputs: Mapping[str, NDArray[Any]]
    outputs: tuple[str, ...]
    rows: int
    group: Hashable
    answer: asyncio.Future[Ran]
    asked: float
    deadline: float = math.inf
    batch: bool = False
    waits: bool = False
    left: bool = False
    number: int = 0


class Waiting:
    """The queue: what is put in comes out once, by `take`, `remove` or `clear`."""

    def __init__(self, max_rows: int) -> None:
        self._max_rows = max_rows
        self._groups: dict[Key, deque[Item]] = {}
        self._number = 0
        self._count = 0

    def __len__(self) -> int:
        """How many requests wait."""
        return self._count

    def put(self, item: Item) -> None:
        """Queue a request."""
        self._number = item.number = self._number + 1
        item.waits = True
        key = (item.batch, item.group)
        group = self._groups.get(key)
        if group is None:
            self._groups[key] = deque((item,))
        else:
            group.append(item)
        self._count += 1

    def remove(self, item: Item) -> None:
        """Take one request out, wherever it stands."""
        key = (item.batch, item.group)
        group = self._groups[key]
        group.remove(item)
        if not group:
            del self._groups[key]
        self._gone(item)

    def take(self) -> list[Item]:
        """The next batch: at most `max_rows` rows, or one request that has more; empty: none."""
        if not self._groups:
            return []
        if len(self._groups) == 1:
            key, group = next(iter(self._groups.items()))
        else:
            key, group = min(self._groups.items(), key=_urgency)
        taken: list[Item] = []
        rows = 0
        while group and (not taken or rows + group[0].rows <= self._max_rows):
            item = group.popleft()
            self._gone(item)
            taken.append(item)
            rows += item.rows
        if not group:
            del self._groups[key]
        return taken

    def clear(self) -> list[Item]:
        """Everything that waited; nothing waits afterwards."""
        items = [item for group in self._groups.values() for item in group]
        self._groups.clear()
        for item in items:
            self._gone(item)
        return items

    def _gone(self, item: Item) -> None:
        item.waits = False
        self._count -= 1


def _urgency(entry: tuple[Key, deque[Item]]) -> tuple[bool, int]:
    return entry[1][0].batch, entry[1][0].number
