"""A schedule and the lanes that it drives, in virtual time."""

import asyncio
import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import cast

from tiffin.errors import DeadlineExceeded, Overloaded, TiffinError
from tiffin.serving.tensors.schedule import Batch, Bounds, Schedule
from tiffin.serving.tensors.waiting import Item, Ran

NO_ANSWER = cast("asyncio.Future[Ran]", None)


def an_item(
    now: float = 0.0,
    within: float = math.inf,
    *,
    tenant: str = "",
    group: str = "g",
    batch: bool = False,
    rows: int = 1,
    weight: float = 1.0,
) -> Item:
    moments = (now, now + within)
    return Item({}, (), rows, group, NO_ANSWER, *moments, batch, tenant, rows * 8, weight=weight)


@dataclass
class Machine:
    """Lanes that run a batch of so many rows for `run_s(rows)`, in virtual time.

    Where there is a `wide_s`, a batch with all lanes takes that.
    """

    schedule: Schedule
    run_s: Callable[[int], float]
    wide_s: Callable[[int], float] | None = None
    now: float = 0.0
    running: list[tuple[float, Batch]] = field(default_factory=list)
    answered: list[tuple[float, Item]] = field(default_factory=list)
    refused: list[tuple[float, TiffinError]] = field(default_factory=list)
    late: list[Item] = field(default_factory=list)
    batches: list[Batch] = field(default_factory=list)

    def ask(self, item: Item) -> bool:
        try:
            gives = self.schedule.admit(item, self.now)
        except (Overloaded, DeadlineExceeded) as error:
            self.refused.append((self.now, error))
            return False
        if gives is not None:
            self.late.append(gives[0])
        if self.schedule.free:
            self.start("idle")
        return True

    def start(self, reason: str) -> None:
        schedule = self.schedule
        while schedule.free and schedule.waiting:
            batch, late = schedule.take(self.now, reason)
            self.late += [item for item, _ in late]
            if batch is None:
                return
            self.batches.append(batch)
            schedule.began(batch, self.now)
            batch.started = self.now
            run_s = self.wide_s if batch.wide and self.wide_s else self.run_s
            batch.ran_s = run_s(batch.rows)
            batch.outcome.runs = 1
            self.running.append((self.now + batch.ran_s, batch))

    def until(self, moment: float) -> None:
        """Let time pass."""
        while self.running and min(self.running, key=lambda run: run[0])[0] <= moment:
            end, batch = run = min(self.running, key=lambda run: run[0])
            self.running.remove(run)
            self.now = end
            self.schedule.ended(batch)
            self.schedule.learn(batch)
            self.answered += [(end, item) for item in batch.items]
            self.start("gathered")
        self.now = max(self.now, moment) if moment < math.inf else self.now

    def learn(self, rows: int) -> None:
        """Have seen full batches of every size before."""
        self.ask(an_item(self.now))
        size = 1
        while size <= rows:
            for _ in range(size):
                self.ask(an_item(self.now))
            self.until(math.inf)
            size *= 2
        for _ in range(rows + 1):
            self.ask(an_item(self.now))
        self.until(math.inf)
        self.answered.clear()


def a_machine(
    run_s: Callable[[int], float],
    *,
    lanes: int = 1,
    max_batch: int = 32,
    queue: int = 1024,
    queue_s: float = 0.0,
    wide_s: Callable[[int], float] | None = None,
) -> Machine:
    bounds = Bounds(lanes, max_batch, queue, wide=wide_s is not None, queue_s=queue_s)
    machine = Machine(Schedule(bounds), run_s, wide_s)
    machine.learn(max_batch)
    return machine


def steep(rows: int) -> float:
    return 0.003 * rows


def flat(rows: int) -> float:
    return 0.08 + 0.0005 * rows


def between(rows: int) -> float:
    return 0.02 + 0.003 * rows
