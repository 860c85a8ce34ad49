"""The replica's scheduler: batches what is already waiting, and waits for nothing.

When a lane is idle a request runs at once; while all run, arrivals gather. Everything that one turn
of the loop reads is queued and then drained together. Whoever leaves the queue is never computed,
and whoever leaves a running batch costs no more than that batch. A tenant whose request made a
batch fail shares batches with no other tenant for a while.

In process: `ran = await batcher.run(inputs, outputs, rows, context)` gives this request's own rows
of the outputs, and its usage. Cancelling that await is leaving.
"""

import asyncio
import time
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any, Final

from numpy.typing import NDArray

from tiffin.errors import RunFailed, TiffinError
from tiffin.ports.clock import Clock
from tiffin.serving.context import Context
from tiffin.serving.tensors.execute import Execution, Outcome
from tiffin.serving.tensors.pace import Pace
from tiffin.serving.tensors.schedule import Batch, Bounds, Schedule
from tiffin.serving.tensors.suspects import Suspects
from tiffin.serving.tensors.waiting import Item, Ran
from tiffin.telemetry import log
from tiffin.types.usage import Usage

Arrays = Mapping[str, NDArray[Any]]

INLINE_S: Final = 0.001
"""Runs that are expected to be shorter than this don't pay for a thread."""
TURN_S: Final = 0.002
"""How long runs on the loop may take before the loop reads its sockets again."""
NOBODY: Final = Context()


class Batcher:
    """Runs requests within its bounds; `busy` is the seconds that the calling thread has worked."""

    def __init__(
        self,
        execution: Execution,
        bounds: Bounds,
        clock: Clock,
        observe: Callable[[Batch], None],
        *,
        busy: Callable[[], float] = time.thread_time,
    ) -> None:
        self._execution = execution
        self._clock = clock.monotonic
        self._busy = busy
        self._observe = observe
        self._bounds = bounds
        self._schedule = Schedule(bounds)
        self._waiting = self._schedule.waiting
        self._pace = Pace()
        self._suspects = Suspects()
        self._threads = ThreadPoolExecutor(bounds.lanes, thread_name_prefix="lane")
        self._loop = asyncio.get_running_loop()
        self._kicked = False
        self._inside = 0
        self._closed: Callable[[], TiffinError] | None = None
        self._idle = asyncio.Event()
        self._idle.set()

    @property
    def waiting(self) -> int:
        """How many requests wait for a lane."""
        return len(self._waiting)

    @property
    def running(self) -> int:
        """How many batches are being computed."""
        return self._schedule.running

    @property
    def refusals(self) -> Mapping[str, int]:
        """How many requests were refused, by `schedule.REASONS`."""
        return self._schedule.refusals

    @property
    def inside(self) -> int:
        """How many requests were taken and aren't answered."""
        return self._inside

    async def run(
        self, inputs: Arrays, outputs: tuple[str, ...], rows: int, context: Context = NOBODY
    ) -> Ran:
        """This request's own rows of the named outputs; `rows` is 1 where rows aren't counted.

        Raises `Overloaded`, `DeadlineExceeded`, `Draining`, or what the model raised for it.
        """
        if self._closed is not None:
            raise self._closed()
        now = self._clock()
        group: tuple[object, ...] = tuple(
            [(name, a.dtype.char, a.shape[1:]) for name, a in inputs.items()]
        )
        if self._suspects and context.tenant in self._suspects:
            group = (context.tenant, *group)
        elements = sum(array.size for array in inputs.values())
        answer: asyncio.Future[Ran] = self._loop.create_future()
        item = Item(
            inputs,
            outputs,
            rows,
            group,
            answer,
            now,
            context.deadline,
            context.batch,
            context.tenant,
            elements,
            context.aim,
            context.weight,
            context.opened,
        )
        gives = self._schedule.admit(item, now)
        if gives is not None:
            _give(*gives)
        if not self._kicked and self._schedule.free:
            self._kicked = True
            self._loop.call_soon(self._kick, "idle")
        self._inside += 1
        try:
            return await answer
        except asyncio.CancelledError:
            item.left = True
            if item.waits:
                self._waiting.remove(item)
            elif not answer.cancelled() and answer.done():
                answer.exception()  # it came too late to be told to anybody
            raise
        finally:
            self._inside -= 1
            if not self._inside:
                self._idle.set()

    def close(self, refusal: Callable[[], TiffinError]) -> None:
        """Take nothing more: who comes gets this refusal."""
        self._closed = refusal

    async def emptied(self, within_s: float) -> bool:
        """Wait until everything that was taken is answered; false where it took too long."""
        self._idle.clear()
        if not self._inside:
            return True
        try:
            async with asyncio.timeout(within_s):
                await self._idle.wait()
        except TimeoutError:
            return False
        return True

    def abandon(self, refusal: Callable[[], TiffinError]) -> None:
        """Refuse what waits and what comes, and stop the threads once what runs is done."""
        self._closed = refusal
        for item in self._waiting.clear():
            _give(item, refusal())
        self._threads.shutdown(wait=False)

    def _kick(self, reason: str) -> None:
        """Start what waits, as far as lanes are free."""
        self._kicked = False
        schedule = self._schedule
        now = began = self._clock()
        while schedule.free and self._waiting:
            batch, late = schedule.take(now, reason)
            for item, error in late:
                _give(item, error)
            if batch is None:
                return
            expected = self._pace.expect(batch.elements) if self._bounds.inline else None
            if expected is None or expected > INLINE_S:
                self._start(batch, now)
                continue
            batch.wide = False
            self._run(batch)
            schedule.learn(batch)
            self._finish(batch)
            now = self._clock()
            if now - began > TURN_S and self._waiting:
                self._kicked = True
                self._loop.call_soon(self._kick, "gathered")
                return

    def _start(self, batch: Batch, now: float) -> None:
        self._schedule.began(batch, now)
        job = self._loop.run_in_executor(self._threads, self._run, batch)
        job.add_done_callback(partial(self._ended, batch))

    def _run(self, batch: Batch) -> None:
        """Compute it, on whatever thread this is."""
        batch.started = self._clock()
        began = self._busy()
        try:
            batch.outcome = self._execution(batch.items, wide=batch.wide)
        except Exception:  # noqa: BLE001 - a defect, or no memory left: every request must be told
            log.error("a batch broke off", rows=batch.rows, exc_info=True)
            told = "the run was broken off; the server's log says why"
            batch.outcome = Outcome([RunFailed(told) for _ in batch.items])
        batch.busy_s = self._busy() - began
        batch.ran_s = self._clock() - batch.started

    def _ended(self, batch: Batch, job: asyncio.Future[None]) -> None:
        self._schedule.ended(batch)
        if not job.cancelled():
            self._schedule.learn(batch)
        if self._waiting and not self._kicked:
            self._kick("gathered")  # the next batch first, answers while it runs
        if job.cancelled():
            for item in batch.items:
                _give(item, RunFailed("the run was broken off"))
        else:
            self._finish(batch)

    def _finish(self, batch: Batch) -> None:
        outcome = batch.outcome
        if outcome.runs == 1:
            self._pace.learn(batch.elements, batch.busy_s)
        if outcome.runs > 1 or self._suspects:
            self._judge(batch)
        row_ns = batch.ran_s * 1e9 / batch.rows
        reason = batch.reason
        for item, result in zip(batch.items, outcome.results, strict=True):
            answer = item.answer
            if answer.done():
                continue
            if isinstance(result, TiffinError):
                answer.set_exception(result)
            elif result is not None:
                queue_ns = int((batch.started - item.asked) * 1e9)
                device_ns = int(row_ns * item.rows)
                usage = Usage(queue_ns=queue_ns, device_ns=device_ns, rows=item.rows, reason=reason)
                answer.set_result(Ran(result, usage))
        self._observe(batch)

    def _judge(self, batch: Batch) -> None:
        """Whose requests make batches fail, and whose don't any more."""
        shared = len(batch.items) > 1
        for item, result in zip(batch.items, batch.outcome.results, strict=True):
            if shared and isinstance(result, TiffinError):
                self._suspects.failed(item.tenant)
            elif result is not None:
                self._suspects.went_well(item.tenant)


def _give(item: Item, error: TiffinError) -> None:
    if not item.answer.done():
        item.answer.set_exception(error)
