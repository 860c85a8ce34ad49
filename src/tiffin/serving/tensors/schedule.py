"""Which requests run when, and which can't be answered in time: pure, all moments are given to it.

A newcomer is refused at once where what runs, what waits ahead of it and its own run would end past
its deadline, as far as run times are known. On an idle lane only its own run counts; and where none
was seen for a while it is let through, so that a slow spell is never believed for ever.
"""

import math
from dataclasses import dataclass, field
from typing import Final

from tiffin.errors import DeadlineExceeded, Overloaded, TiffinError
from tiffin.serving.tensors.execute import Outcome
from tiffin.serving.tensors.pace import WEIGHT, Pace
from tiffin.serving.tensors.waiting import Cut, Item, Waiting

RETRY_AFTER_MAX_S: Final = 60.0
FILL_KEPT: Final = 0.97
"""Of how full batches were, for each that was less so."""
REASONS: Final = ("full", "late", "long", "overtaken", "expired")
"""Why a request is refused: the queue is full; its answer would be late for what is ahead; its own
run is too long for its deadline; more pressing ones came before it; its deadline has passed."""
BELIEVED_S: Final = 1.0
"""How long after the last run an idle lane still goes by what it learnt."""


@dataclass(slots=True, eq=False)
class Batch:
    """Requests that run as one, and how that went. Times are seconds; `busy_s` is the thread's own.

    `reason` is why it went when it went, and with so many: `idle` (a lane was free), `gathered` (it
    had waited for a lane), `full` (it couldn't have taken more), `pressed` (larger ones would take
    too much of the time that its first request has).
    """

    items: list[Item]
    reason: str
    rows: int = 0
    elements: int = 0
    started: float = 0.0
    ran_s: float = 0.0
    busy_s: float = 0.0
    outcome: Outcome = field(default_factory=Outcome)


@dataclass(frozen=True, slots=True)
class Bounds:
    """`lanes` batches at once of at most `max_batch` rows each, and `queue` requests more waiting.

    `inline` allows runs on the loop's own thread where they prove quick.
    """

    lanes: int = 1
    max_batch: int = 32
    queue: int = 1024
    inline: bool = False


class Schedule:
    """The queue and the lanes: `admit` or refuse, `take` a batch, tell when it `ended`."""

    def __init__(self, bounds: Bounds) -> None:
        self.bounds = bounds
        self.waiting = Waiting()
        self.pace = Pace()
        """How long whole runs take."""
        self.refusals = dict.fromkeys(REASONS, 0)
        """How many were refused, by why."""
        self.free = bounds.lanes
        self._ends: dict[Batch, float] = {}  # what runs, and when it is expected to end
        self._request_s = 0.0
        self._ran_at = -math.inf
        self._fill = 0.0  # how full batches come to be, of what they may be

    def admit(self, item: Item, now: float) -> None:
        """Queue a request; raises `Overloaded` or `DeadlineExceeded` where that can't end well."""
        if item.deadline <= now:
            self.refusals["expired"] += 1
            raise DeadlineExceeded("the deadline had passed before the request could be queued")
        # What a free lane takes at once doesn't wait.
        bounds = self.bounds
        if len(self.waiting) >= bounds.queue + self.free * bounds.max_batch:
            self.refusals["full"] += 1
            raise Overloaded(
                f"the model's queue is full ({bounds.queue} requests wait)",
                retry_after=self.retry_after_s(),
            )
        # However the queue is cut, it takes no longer than this; most deadlines are far beyond.
        runs = len(self.waiting) + (self.waiting.rows + item.rows) // bounds.max_batch + 2
        most_s = runs * self.pace.slowest
        for end in self._ends.values():
            most_s += abs(end - now)
        if min(item.deadline, item.aim) - now <= most_s:
            self._check(item, now)
        self.waiting.put(item)

    def take(self, now: float, reason: str) -> tuple[Batch | None, list[tuple[Item, TiffinError]]]:
        """The next batch for a free lane, if any, and those for whom it has become too late."""
        late: list[tuple[Item, TiffinError]] = []
        waited = reason != "idle"
        while self.waiting:
            batch = Batch([], reason)
            most = self._most_rows(self.waiting.first())
            for item in self.waiting.take(most):
                error = self._too_late(item, now, waited)
                if error is not None:
                    late.append((item, error))
                    continue
                batch.items.append(item)
                batch.rows += item.rows
                batch.elements += item.elements
            if batch.items:
                self._fill = max(min(1.0, batch.rows / most), FILL_KEPT * self._fill)
                if batch.rows >= most:
                    batch.reason = "full" if most == self.bounds.max_batch else "pressed"
                return batch, late
        return None, late

    def began(self, batch: Batch, now: float) -> None:
        """It has a lane."""
        self.free -= 1
        self._ends[batch] = now + self._run_s(batch.rows, batch.elements)

    def ended(self, batch: Batch) -> None:
        """Its lane is free again."""
        self.free += 1
        del self._ends[batch]

    def learn(self, batch: Batch) -> None:
        """It has run, in `ran_s` from `started`."""
        self._ran_at = batch.started + batch.ran_s
        if batch.outcome.runs == 1:
            self.pace.learn(batch.elements, batch.ran_s)
        request_s = batch.ran_s / len(batch.items)
        self._request_s += WEIGHT * (request_s - self._request_s)

    def retry_after_s(self) -> float:
        """When what waits now may have run, by how long recent batches took for each request."""
        ahead_s = len(self.waiting) * self._request_s / self.bounds.lanes
        return min(RETRY_AFTER_MAX_S, max(1.0, ahead_s))

    def _check(self, item: Item, now: float) -> None:
        """Raise where it would be late."""
        left_s = item.deadline - now
        idle = self.free and not self.waiting
        if idle and now - self._ran_at > BELIEVED_S:
            return
        pace = self.pace
        alone_s = self._run_s(item.rows, item.elements)
        if alone_s > left_s:
            self.refusals["long"] += 1
            raise DeadlineExceeded(
                f"the model needs about {alone_s * 1000:.0f} ms for this,"
                f" and {left_s * 1000:.0f} ms are left until its deadline"
            )
        if idle:
            return
        if now + alone_s <= item.aim:  # else the objective is missed however little waits
            left_s = min(left_s, item.aim - now)
        most = self._most_rows(item)
        ahead = self.waiting.ahead(item, Cut(most, self._fill * most))
        # What runs longer than foreseen is taken to need as long again as it is late by.
        work_s = sum(abs(end - now) for end in self._ends.values())
        for count, elements in ahead.batches:
            work_s += count * pace.foresee(elements)
        # Lanes take what is ahead in turns, so none of them is idle before it is done.
        answer_s = work_s / self.bounds.lanes + max(alone_s, pace.foresee(ahead.own, cautious=True))
        if answer_s > left_s:
            self.refusals["late"] += 1
            raise Overloaded(
                f"the answer would take about {answer_s * 1000:.0f} ms,"
                f" and {left_s * 1000:.0f} ms are left until its deadline",
                retry_after=min(RETRY_AFTER_MAX_S, answer_s - left_s),
            )

    def _most_rows(self, item: Item) -> int:
        """How many rows a batch may have: who comes as one starts waits for it and for its own."""
        rows, given_s = self.bounds.max_batch, min(item.deadline, item.aim) - item.asked
        runs = 1 + 1 / self.bounds.lanes
        if given_s > runs * self.pace.slowest:
            return rows
        while rows > 1 and runs * self.pace.foresee(rows * item.elements / item.rows) > given_s:
            rows //= 2
        return rows

    def _run_s(self, rows: int, elements: int) -> float:
        """How long its own run takes, or its runs where it has more rows than one may have."""
        parts = -(-rows // self.bounds.max_batch)
        return parts * self.pace.foresee(elements / parts)

    def _too_late(self, item: Item, now: float, waited: bool) -> TiffinError | None:
        if item.deadline <= now:
            self.refusals["expired"] += 1
            return DeadlineExceeded("the deadline passed in the model's queue")
        if waited and now + self._run_s(item.rows, item.elements) > item.deadline:
            self.refusals["overtaken"] += 1
            return Overloaded(
                "more pressing requests came before this one; it would end past its deadline",
                retry_after=self.retry_after_s(),
            )
        return None
