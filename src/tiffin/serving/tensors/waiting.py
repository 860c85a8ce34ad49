"""Requests that wait for a run, in groups that may run as one; pure, no clock, no loop.

A batch is made of one group only: requests whose arrays agree in everything but their rows. The
group of the most urgent request gives the next batch. Interactive goes before batch work, which
keeps a small share whatever comes. Within either, tenants share what is computed by their weights:
each request is tagged with where its tenant's use would stand if all had been served at once, and
the lowest tag is next. So who brings little never waits behind another's flood, one
tenant's own requests keep their order, and a batch may still hold the requests of many.
"""

import asyncio
import math
from collections.abc import Hashable, Mapping
from dataclasses import dataclass, field
from heapq import heapify, heappop, heappush
from typing import Any, Final, NamedTuple

from numpy.typing import NDArray

from tiffin.types.usage import Usage

BATCH_SHARE: Final = 0.05
"""Of the elements computed, while interactive work never ends, for batch work."""
FORGET_AT: Final = 64  # tenants or leavers that are remembered before the needless are forgotten


class Ran(NamedTuple):
    """What became of a request: its own rows of the outputs, and what they took."""

    outputs: Mapping[str, NDArray[Any]]
    usage: Usage


@dataclass(slots=True, eq=False)
class Item:
    """One request, with monotonic seconds; `left` says that nobody wants it any more.

    It began when it was `opened` (0: when asked). By `aim` it should be answered; after `deadline`
    it isn't any more. It was taken because it was foreseen to be answered by `promised`.
    """

    inputs: Mapping[str, NDArray[Any]]
    outputs: tuple[str, ...]
    rows: int
    group: Hashable
    answer: asyncio.Future[Ran]
    asked: float
    deadline: float = math.inf
    batch: bool = False
    tenant: str = ""
    elements: int = 1
    aim: float = math.inf
    weight: float = 1.0
    opened: float = 0.0
    promised: float = math.inf
    waits: bool = False
    left: bool = False
    tag: float = 0.0
    number: int = 0


class Ahead(NamedTuple):
    """What would run before a newcomer: `(how many batches, their elements)`, and its own batch."""

    batches: list[tuple[float, float]]
    own: float


@dataclass(frozen=True, slots=True)
class Cut:
    """How batches are made: of at most `rows`, and those that begin to fill come to have `fill`."""

    rows: int
    fill: float = 0.0


Entry = tuple[float, int, Item]


@dataclass(slots=True)
class _Group:
    """Requests that may run together, by their tags; the first of `heap` always waits."""

    heap: list[Entry] = field(default_factory=list)
    count: int = 0
    rows: int = 0
    elements: int = 0

    def gone(self, item: Item) -> None:
        self.count -= 1
        self.rows -= item.rows
        self.elements -= item.elements
        heap = self.heap
        if len(heap) > 2 * self.count + FORGET_AT:
            self.heap = heap = [entry for entry in heap if entry[2].waits]
            heapify(heap)
        while heap and not heap[0][2].waits:
            heappop(heap)


@dataclass(slots=True)
class _Use:
    """Where a tenant's use ends, its newest request's tag, its weight, and what of it waits."""

    end: float = 0.0
    newest: float = 0.0
    weight: float = 1.0
    elements: int = 0
    count: int = 0


class _Line:
    """One class of urgency: its groups, and what each tenant has had of it."""

    def __init__(self) -> None:
        self.groups: dict[Hashable, _Group] = {}
        self.elements = 0
        self.count = 0
        self._uses: dict[str, _Use] = {}
        self._reached = 0.0  # the tag of who went last

    def put(self, item: Item) -> None:
        use = self._uses.get(item.tenant)
        if use is None:
            self._forget()
            use = self._uses[item.tenant] = _Use()
        begins = max(use.end, self._reached)
        # Where others of its tenant have left, the end came back, but none passes who is there.
        item.tag = use.newest = max(begins, use.newest) if use.count else begins
        use.weight = item.weight
        use.end = begins + item.elements / item.weight
        use.elements += item.elements
        use.count += 1
        self.elements += item.elements
        self.count += 1
        group = self.groups.get(item.group)
        if group is None:
            group = self.groups[item.group] = _Group()
        heappush(group.heap, (item.tag, item.number, item))
        group.count += 1
        group.rows += item.rows
        group.elements += item.elements

    def first(self) -> Item:
        """Who is next."""
        if len(self.groups) == 1:
            [group] = self.groups.values()
            return group.heap[0][2]
        return min(group.heap[0] for group in self.groups.values())[2]

    def gone(self, item: Item) -> None:
        """It waits no more, and is never computed."""
        item.waits = False
        group = self.groups[item.group]
        group.gone(item)
        if not group.count:
            del self.groups[item.group]
        self.elements -= item.elements
        self.count -= 1
        use = self._uses[item.tenant]
        use.elements -= item.elements
        use.count -= 1
        use.end -= item.elements / item.weight  # its tenant hasn't had it
        self._rest()

    def last_of_most(self, item: Item) -> Item | None:
        """The newest of the tenant who has most waiting by its weight, if more than this one's."""
        most, name = 0.0, ""
        for tenant, use in self._uses.items():
            if use.count / use.weight > most:
                most, name = use.count / use.weight, tenant
        own = self._uses.get(item.tenant)
        if name == item.tenant or ((own.count if own else 0) + 1) / item.weight >= most:
            return None
        entries = (entry for group in self.groups.values() for entry in group.heap)
        its = [entry[2] for entry in entries if entry[2].tenant == name and entry[2].waits]
        return max(its, key=_number)

    def take(self, max_rows: int) -> tuple[list[Item], int, int]:
        """The next batch, its rows and its elements; each request leaves as by `gone`, but faster.

        A batch of one request may have more rows than `max_rows`.
        """
        first = self.first()
        self._reached = max(self._reached, first.tag)
        group = self.groups[first.group]
        heap, uses = group.heap, self._uses
        taken: list[Item] = []
        rows = elements = 0
        while heap:
            item = heap[0][2]
            if item.waits:
                if taken and rows + item.rows > max_rows:
                    break
                item.waits = False
                use = uses[item.tenant]
                use.elements -= item.elements
                use.count -= 1
                taken.append(item)
                rows += item.rows
                elements += item.elements
            heappop(heap)
        group.count -= len(taken)
        group.rows -= rows
        group.elements -= elements
        if not heap:
            del self.groups[first.group]
        self.elements -= elements
        self.count -= len(taken)
        self._rest()
        return taken, rows, elements

    def _rest(self) -> None:
        """Where nothing waits, nobody has had more than another."""
        if not self.groups:
            self._uses.clear()
            self._reached = 0.0

    def share_ahead(self, item: Item) -> float:
        """How much of what waits goes before a newcomer, 0 to 1, also where others come yet.

        While it waits, no other tenant gets more, by its weight, than what its own has waiting,
        itself with it, by its own.
        """
        own = self._uses.get(item.tenant)
        if len(self._uses) == (own is not None) or not self.elements:
            return 1.0
        waits = own.elements if own else 0
        weights = sum(use.weight for use in self._uses.values() if use.elements)
        weights += item.weight * (not waits)
        return min(1.0, weights / item.weight * (waits + item.elements) / self.elements)

    def _forget(self) -> None:
        """Let go of tenants whose use says nothing any more, before they are too many."""
        if len(self._uses) >= FORGET_AT and len(self._uses) > 2 * self._waiting_tenants():
            self._uses = {
                tenant: use
                for tenant, use in self._uses.items()
                if use.elements or use.end > self._reached
            }

    def _waiting_tenants(self) -> int:
        return sum(use.elements > 0 for use in self._uses.values())


class Waiting:
    """The queue: what is put in comes out once, by `take`, `remove` or `clear`."""

    def __init__(self) -> None:
        self._interactive = _Line()
        self._batch = _Line()
        self._owed = 0.0  # elements that batch work may compute before interactive work
        self._number = 0
        self._count = 0
        self.rows = 0
        """How many rows wait."""

    def __len__(self) -> int:
        """How many requests wait."""
        return self._count

    def count(self, *, batch: bool) -> int:
        """How many requests of this class wait."""
        return (self._batch if batch else self._interactive).count

    def put(self, item: Item) -> None:
        """Queue a request."""
        self._number = item.number = self._number + 1
        item.waits = True
        self._line(item).put(item)
        self._count += 1
        self.rows += item.rows

    def remove(self, item: Item) -> None:
        """Take one request out, wherever it stands."""
        self._gone(item)

    def last_of_most(self, item: Item) -> Item | None:
        """The newest of the tenant with most waiting of this class, if that is unfair to this."""
        return self._line(item).last_of_most(item)

    def first(self) -> Item:
        """Who is next; there must be somebody."""
        return self._next_line().first()

    def take(self, max_rows: int) -> list[Item]:
        """The next batch: at most `max_rows` rows, or one request that has more; empty: none."""
        if not self._count:
            return []
        line = self._next_line()
        taken, rows, elements = line.take(max_rows)
        self._count -= len(taken)
        self.rows -= rows
        self._settle(line, elements)
        return taken

    def ahead(self, item: Item, cut: Cut) -> Ahead:
        """The batches that would be made before the one that a newcomer would be in."""
        line = self._line(item)
        batches: list[tuple[float, float]] = []
        if item.batch:
            for group in self._interactive.groups.values():
                _batches(group, 1.0, cut, batches)
        share = line.share_ahead(item)
        rows = float(item.rows)
        for key, group in line.groups.items():
            rest = _batches(group, share, cut, batches)
            if key == item.group and rest and rest + item.rows <= cut.rows:
                rows += rest
                batches.pop()
        return Ahead(batches, max(rows, cut.fill) * item.elements / item.rows)

    def clear(self) -> list[Item]:
        """Everything that waited; nothing waits afterwards."""
        items = [
            entry[2]
            for line in (self._interactive, self._batch)
            for group in line.groups.values()
            for entry in group.heap
            if entry[2].waits
        ]
        for item in items:
            self._gone(item)
        return items

    def _line(self, item: Item) -> _Line:
        return self._batch if item.batch else self._interactive

    def _next_line(self) -> _Line:
        if not self._batch.groups:
            return self._interactive
        if not self._interactive.groups or self._owed >= self._batch.first().elements:
            return self._batch
        return self._interactive

    def _settle(self, line: _Line, elements: int) -> None:
        """Batch work is owed its share of what others compute while it waits."""
        if not self._batch.groups:
            self._owed = 0.0
        elif line is self._interactive:
            self._owed += elements * BATCH_SHARE / (1 - BATCH_SHARE)
        elif self._interactive.groups:
            self._owed -= elements

    def _gone(self, item: Item) -> None:
        self._line(item).gone(item)
        self._count -= 1
        self.rows -= item.rows


def _number(item: Item) -> int:
    return item.number


def _batches(group: _Group, share: float, cut: Cut, batches: list[tuple[float, float]]) -> float:
    """Add the batches that this share of a group makes; the rows of the last, not full, one."""
    full, rest = divmod(group.rows * share, cut.rows)
    of_row = group.elements / group.rows
    if full:
        batches.append((full, cut.rows * of_row))
    if rest:
        batches.append((1.0, max(rest, cut.fill) * of_row))
    return rest
