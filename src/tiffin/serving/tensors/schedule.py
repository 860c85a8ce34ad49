"""Which requests run when, and which can't be answered in time: pure, all moments are given to it.

A batch is as large as gains anything, by the run times that were learnt, and as lets an arrival at
its start wait for it and still be in time. Where the runtime can, a request that is alone has the
processors of all lanes, and where many wait each lane has a part of them, whichever is faster.

A newcomer is refused at once where what runs, what waits ahead of it and its own run would end past
its deadline, as far as run times are known. On an idle lane only its own run counts; and where none
was seen for a while it is let through, so that a slow spell is never believed for ever.
"""

import math
from dataclasses import dataclass, field
from typing import Final, NoReturn

from tiffin.errors import DeadlineExceeded, Overloaded, TiffinError
from tiffin.serving.tensors.execute import Outcome
from tiffin.serving.tensors.pace import WEIGHT, Pace
from tiffin.serving.tensors.waiting import Cut, Item, Waiting

RETRY_AFTER_MAX_S: Final = 60.0
FILL_KEPT: Final = 0.97
"""Of how full batches were, for each that was less so."""
REASONS: Final = {
    "full": "the queue",
    "late": "for what is ahead",
    "long": "by itself",
    "overtaken": "by more pressing ones",
    "waited": "for longer than the model's queue_timeout_s",
    "expired": "its deadline has passed",
}
"""Why a request is refused."""
DISPATCHES: Final = {
    "idle": "a lane was free",
    "gathered": "it had waited for a lane",
    "full": "it could have no more rows",
    "enough": "more rows would gain nothing",
    "shared": "other lanes were free for the rest of what waited",
    "pressed": "a larger one would take too much of the time that its first request has",
    "trial": "larger than seemed to gain anything, to see",
}
"""Why a batch went when it went, and with so many."""
SLACK: Final = 1.05
SLACK_MOST: Final = 3.0
"""So much longer may take what is ahead: it may be cut into other batches than is foreseen, and a
machine has neighbours. Between the two, as was learnt."""
BROKEN: Final = 0.05
"""Of what was foreseen, the part that may come later: the slack grows until no more does."""
SLACK_STEP: Final = 0.01
TRIAL_EVERY: Final = 32
"""Of so many batches that were cut because more would gain nothing, one is twice as large."""
FULL_PART: Final = 0.05
FULL_MOST_PART: Final = 0.25
"""Of what waits ahead, for which a refused request's like needn't ask: so it never runs dry."""
FULL_MOST_S: Final = 0.1
BELIEVED_S: Final = 1.0
"""How long after the last run an idle lane still goes by what it learnt."""


@dataclass(slots=True, eq=False)
class Batch:
    """Requests that run as one, and how that went. Times are seconds; `busy_s` is the thread's own.

    `reason` is one of `DISPATCHES`; `wide` is whether it has the processors of all lanes.
    """

    items: list[Item]
    reason: str
    rows: int = 0
    elements: int = 0
    started: float = 0.0
    ran_s: float = 0.0
    busy_s: float = 0.0
    wide: bool = False
    outcome: Outcome = field(default_factory=Outcome)


@dataclass(frozen=True, slots=True)
class Bounds:
    """`lanes` batches at once of at most `max_batch` rows each, and `queue` requests more waiting.

    `inline` allows runs on the loop's own thread where they prove quick, `wide` runs that have all
    lanes to themselves. Nobody waits for longer than `queue_s`, 0: as long as the deadline is.
    """

    lanes: int = 1
    max_batch: int = 32
    queue: int = 1024
    inline: bool = False
    wide: bool = False
    queue_s: float = 0.0


class Schedule:
    """The queue and the lanes: `admit` or refuse, `take` a batch, tell when it `ended`."""

    def __init__(self, bounds: Bounds) -> None:
        self.bounds = bounds
        self.waiting = Waiting()
        self.pace = Pace()
        """How long whole runs take, of one lane."""
        self.wide = Pace()
        """How long those take that have all lanes."""
        self.refusals = dict.fromkeys(REASONS, 0)
        """How many were refused, by why."""
        self.free = bounds.lanes
        self._ends: dict[Batch, float] = {}  # what runs, and when it is expected to end
        self._request_s = 0.0
        self._ran_at = -math.inf
        self._fill = 0.0  # how full batches come to be, of what they may be
        self._slack = SLACK
        self._way_s = math.inf  # the least that requests took to get here
        self._cut = 0  # batches that were cut because more would gain nothing
        self._choices = 0  # between lanes and all of them at one run

    @property
    def running(self) -> int:
        """How many batches are being computed."""
        return len(self._ends)

    def admit(self, item: Item, now: float) -> tuple[Item, TiffinError] | None:
        """Queue a request; raises `Overloaded` or `DeadlineExceeded` where that can't end well.

        In a full queue its place may be another's, who is given with the refusal for it.
        """
        if item.deadline <= now:
            self.refusals["expired"] += 1
            raise DeadlineExceeded("the deadline had passed before the request could be queued")
        # What a free lane takes at once doesn't wait.
        bounds = self.bounds
        gives = None
        if self.waiting.count(batch=item.batch) >= bounds.queue + self.free * bounds.max_batch:
            gives = self._gives_room(item)
        # However the queue is cut, it takes no longer than this; most deadlines are far beyond.
        runs = len(self.waiting) + (self.waiting.rows + item.rows) // bounds.max_batch + 2
        most_s = runs * max(self.pace.slowest, self.wide.slowest)
        for end in self._ends.values():
            most_s += abs(end - now)
        left_s = min(item.deadline, item.aim) - now
        if left_s <= most_s or 0 < bounds.queue_s <= most_s:
            self._check(item, now)
        if gives is not None:
            self.waiting.remove(gives[0])
            self.refusals["overtaken"] += 1
        self.waiting.put(item)
        return gives

    def take(self, now: float, reason: str) -> tuple[Batch | None, list[tuple[Item, TiffinError]]]:
        """The next batch for a free lane, if any, and those for whom it has become too late."""
        late: list[tuple[Item, TiffinError]] = []
        waited = reason != "idle"
        while self.waiting:
            batch = Batch([], reason)
            first = self.waiting.first()
            most, why = self._size(first, batch)
            for item in self.waiting.take(most):
                error = self._too_late(item, now, waited)
                if error is not None:
                    self._kept(item, math.inf)
                    late.append((item, error))
                    continue
                batch.items.append(item)
                batch.rows += item.rows
                batch.elements += item.elements
            if batch.items:
                fill = batch.rows / self._most(first, self.pace)[0]
                self._fill = max(min(1.0, fill), FILL_KEPT * self._fill)
                if batch.rows >= most and self.waiting:
                    batch.reason = why
                return batch, late
        return None, late

    def began(self, batch: Batch, now: float) -> None:
        """It has a lane."""
        self.free -= self._width(batch)
        self._ends[batch] = now + self._run_s(batch.rows, batch.elements, wide=batch.wide)

    def ended(self, batch: Batch) -> None:
        """Its lane is free again."""
        self.free += self._width(batch)
        del self._ends[batch]

    def learn(self, batch: Batch) -> None:
        """It has run, in `ran_s` from `started`."""
        self._ran_at = batch.started + batch.ran_s
        if batch.outcome.runs == 1:
            pace = self.wide if batch.wide else self.pace
            pace.learn(batch.elements, batch.ran_s)
        for item in batch.items:
            self._kept(item, self._ran_at)
        request_s = batch.ran_s / len(batch.items)
        self._request_s += WEIGHT * (request_s - self._request_s)

    def retry_after_s(self) -> float:
        """When what waits now may have run, by how long recent batches took for each request."""
        ahead_s = len(self.waiting) * self._request_s / self.bounds.lanes
        return min(RETRY_AFTER_MAX_S, max(1.0, ahead_s))

    def _gives_room(self, item: Item) -> tuple[Item, TiffinError]:
        """Whose place a newcomer gets, and the refusal; raises `Overloaded` where it is nobody's.

        In a queue of its urgency that is full, no tenant keeps out one with less than its share.
        """
        queue = self.bounds.queue
        last = self.waiting.last_of_most(item) if queue else None
        full = f"the model's queue is full ({queue} requests wait)"
        if last is None:
            self.refusals["full"] += 1
            ahead_s = len(self.waiting) * self._request_s / self.bounds.lanes
            raise Overloaded(
                full,
                retry_after=self.retry_after_s(),
                full_s=min(FULL_MOST_S, FULL_PART * ahead_s),
            )
        full += ", and others have less than their share of it"
        return last, Overloaded(full, retry_after=self.retry_after_s())

    def _kept(self, item: Item, end: float) -> None:
        """Whether what was foreseen for it came true: it ended then."""
        if item.promised < math.inf:
            step = SLACK_STEP * (1 if end > item.promised else -BROKEN / (1 - BROKEN))
            self._slack = min(SLACK_MOST, max(SLACK, self._slack * (1 + step)))

    def _check(self, item: Item, now: float) -> None:
        """Raise where it would be late."""
        left_s, opened = item.deadline - now, item.opened or now
        self._way_s = min(self._way_s, now - opened)
        idle = self.free and not self.waiting
        if idle and now - self._ran_at > BELIEVED_S:
            return
        bounds, pace = self.bounds, self.pace
        wide = bounds.wide and self.free == bounds.lanes
        alone_s = self._run_s(item.rows, item.elements, wide=wide)
        if alone_s > left_s:
            self.refusals["long"] += 1
            raise DeadlineExceeded(
                f"the model needs about {alone_s * 1000:.0f} ms for this,"
                f" and {left_s * 1000:.0f} ms are left until its deadline"
            )
        if idle:
            return
        # Unless the objective is missed however little waits, on the way here or here.
        if opened + self._way_s + alone_s <= item.aim:
            left_s = min(left_s, item.aim - now)
        most, _ = self._most(item, pace)
        ahead = self.waiting.ahead(item, Cut(most, self._fill * most))
        # What runs longer than foreseen is taken to need as long again as it is late by.
        ahead_s = sum(abs(end - now) * self._width(run) for run, end in self._ends.items())
        for count, elements in ahead.batches:
            ahead_s += count * pace.foresee(elements)
        ahead_s /= bounds.lanes  # that take it in turns, so none of them is idle before it is done
        if 0 < bounds.queue_s < ahead_s:
            self._refuse("waited", ahead_s - bounds.queue_s, ahead_s)
        own_s = max(alone_s, pace.foresee(ahead.own, cautious=True))
        answer_s = self._slack * ahead_s + own_s
        if answer_s > left_s:
            self._refuse("late", answer_s - left_s, ahead_s)
        item.promised = now + answer_s

    def _refuse(self, why: str, over_s: float, ahead_s: float) -> NoReturn:
        """Raise that it would be late by so much."""
        self.refusals[why] += 1
        limit = "its deadline" if why == "late" else "the model's queue_timeout_s"
        raise Overloaded(
            f"about {ahead_s * 1000:.0f} ms of work are ahead: it would be"
            f" {over_s * 1000:.0f} ms over {limit}",
            retry_after=min(RETRY_AFTER_MAX_S, over_s),
            full_s=min(FULL_MOST_S, FULL_MOST_PART * ahead_s, max(over_s, FULL_PART * ahead_s)),
        )

    def _size(self, first: Item, batch: Batch) -> tuple[int, str]:
        """How many rows the next batch may have, and why no more; says whether it is wide."""
        bounds, waits = self.bounds, self.waiting.rows
        if bounds.wide and self.free == bounds.lanes:
            batch.wide = waits <= first.rows or not self._lanes_are_faster(first, waits)
        most, why = self._most(first, self.wide if batch.wide else self.pace)
        if why == "enough" and waits > most:
            self._cut += 1
            if self._cut % TRIAL_EVERY == 0:
                most, why = min(bounds.max_batch, 2 * most), "trial"
        if bounds.wide and not batch.wide and (part := -(-waits // self.free)) < most:
            return part, "shared"
        return most, why

    def _lanes_are_faster(self, first: Item, waits: int) -> bool:
        """Whether what waits is done sooner in parts, one a lane, than as one with all of them.

        Now and then the other way is taken, since what isn't done isn't learnt.
        """
        lanes, of_row = self.bounds.lanes, first.elements / first.rows
        rows = min(waits, self._most(first, self.wide)[0])
        part = min(-(-waits // lanes), self._most(first, self.pace)[0])
        wide_s = self.wide.foresee(rows * of_row) / rows
        faster = self.pace.foresee(part * of_row) / (part * lanes) <= wide_s
        self._choices += 1
        return faster != (self._choices % TRIAL_EVERY == 0)

    def _most(self, item: Item, pace: Pace) -> tuple[int, str]:
        """How many rows a batch may have: who comes as one starts waits for it and for its own."""
        rows, why, of_row = self.bounds.max_batch, "full", item.elements / item.rows
        if pace.enough < rows * of_row:
            rows, why = max(1, round(pace.enough / of_row)), "enough"
        given_s = min(item.deadline, item.aim) - item.asked
        runs = 1 + 1 / self.bounds.lanes
        if given_s > runs * pace.slowest:
            return rows, why
        while rows > 1 and runs * pace.foresee(rows * of_row) > given_s:
            rows, why = rows // 2, "pressed"
        return rows, why

    def _width(self, batch: Batch) -> int:
        return self.bounds.lanes if batch.wide else 1

    def _run_s(self, rows: int, elements: int, *, wide: bool = False) -> float:
        """How long its own run takes, or its runs where it has more rows than one may have."""
        parts = -(-rows // self.bounds.max_batch)
        pace, other = (self.wide, self.pace) if wide else (self.pace, self.wide)
        return parts * (pace.foresee(elements / parts) or other.foresee(elements / parts))

    def _too_late(self, item: Item, now: float, waited: bool) -> TiffinError | None:
        if item.deadline <= now:
            self.refusals["expired"] += 1
            return DeadlineExceeded("the deadline passed in the model's queue")
        queue_s = self.bounds.queue_s
        if 0 < queue_s < now - item.asked:
            self.refusals["waited"] += 1
            return Overloaded(
                f"the request waited for longer than {queue_s:g} s (queue_timeout_s)",
                retry_after=self.retry_after_s(),
            )
        if waited and now + self._run_s(item.rows, item.elements) > item.deadline:
            self.refusals["overtaken"] += 1
            return Overloaded(
                "more pressing requests came before this one; it would end past its deadline",
                retry_after=self.retry_after_s(),
            )
        return None
