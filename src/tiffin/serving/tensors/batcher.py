"""The replica's scheduler: batches what is already waiting, and waits for nothing.

When a lane is idle a request runs at once; while all run, arrivals gather. Everything that one turn
of the loop reads is queued and then drained together. Whoever leaves the queue is never computed,
and whoever leaves a running batch costs no more than that batch.

In process: `ran = await batcher.run(inputs, outputs, rows, context)` gives this request's own rows
of the outputs, and its usage. Cancelling that await is leaving.
"""

import asyncio
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final

from numpy.typing import NDArray

from tiffin.errors import DeadlineExceeded, Overloaded, RunFailed, TiffinError
from tiffin.ports.clock import Clock
from tiffin.serving.replica import Context
from tiffin.serving.tensors.execute import Execution, Outcome
from tiffin.serving.tensors.pace import WEIGHT, Pace
from tiffin.serving.tensors.waiting import Item, Ran, Waiting
from tiffin.telemetry import log
from tiffin.types.usage import Usage

Arrays = Mapping[str, NDArray[Any]]

INLINE_S: Final = 0.001
"""Runs that are expected to be shorter than this don't pay for a thread."""
TURN_S: Final = 0.002
"""How long runs on the loop may take before the loop reads its sockets again."""
RETRY_AFTER_MAX_S: Final = 60.0
NOBODY: Final = Context()


@dataclass(slots=True)
class Batch:
    """Requests that run as one, and how that went. Times are seconds; `busy_s` is the thread's own.

    `reason` is why it went when it went, and with so many: `idle` (a lane was free), `gathered` (it
    had waited for a lane), `full` (it couldn't have taken more).
    """

    items: Sequence[Item]
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
        self._free = bounds.lanes
        self._waiting = Waiting(bounds.max_batch)
        self._pace = Pace()
        self._request_s = 0.0
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
        return self._bounds.lanes - self._free

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
        now = self._clock()
        self._admit(now, context.deadline)
        group = tuple([(name, a.dtype.char, a.shape[1:]) for name, a in inputs.items()])
        answer: asyncio.Future[Ran] = self._loop.create_future()
        item = Item(inputs, outputs, rows, group, answer, now, context.deadline, context.batch)
        self._waiting.put(item)
        if not self._kicked and self._free:
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

    def retry_after_s(self) -> float:
        """When what waits now may have run, by how long recent batches took for each request."""
        ahead_s = len(self._waiting) * self._request_s / self._bounds.lanes
        return min(RETRY_AFTER_MAX_S, max(1.0, ahead_s))

    def _admit(self, now: float, deadline: float) -> None:
        if self._closed is not None:
            raise self._closed()
        if deadline <= now:
            raise DeadlineExceeded("the deadline had passed before the request could be queued")
        # What a free lane takes at once doesn't wait.
        bounds = self._bounds
        if len(self._waiting) >= bounds.queue + self._free * bounds.max_batch:
            raise Overloaded(
                f"the model's queue is full ({bounds.queue} requests wait)",
                retry_after=self.retry_after_s(),
            )

    def _kick(self, reason: str) -> None:
        """Start what waits, as far as lanes are free."""
        self._kicked = False
        began = self._clock()
        while self._free and self._waiting:
            items = self._expired(self._waiting.take(), began)
            if not items:
                continue
            batch = Batch(items, reason)
            for item in items:
                batch.rows += item.rows
                for array in item.inputs.values():
                    batch.elements += array.size
            if batch.rows >= self._bounds.max_batch:
                batch.reason = "full"
            expected = self._pace.expect(batch.elements) if self._bounds.inline else None
            if expected is None or expected > INLINE_S:
                self._start(batch)
                continue
            self._run(batch)
            self._finish(batch)
            if self._clock() - began > TURN_S and self._waiting:
                self._kicked = True
                self._loop.call_soon(self._kick, "gathered")
                return

    def _start(self, batch: Batch) -> None:
        self._free -= 1
        job = self._loop.run_in_executor(self._threads, self._run, batch)
        job.add_done_callback(partial(self._ended, batch))

    def _run(self, batch: Batch) -> None:
        """Compute it, on whatever thread this is."""
        batch.started = self._clock()
        began = self._busy()
        try:
            batch.outcome = self._execution(batch.items)
        except Exception:  # noqa: BLE001 - a defect, or no memory left: every request must be told
            log.error("a batch broke off", rows=batch.rows, exc_info=True)
            told = "the run was broken off; the server's log says why"
            batch.outcome = Outcome([RunFailed(told) for _ in batch.items])
        batch.busy_s = self._busy() - began
        batch.ran_s = self._clock() - batch.started

    def _ended(self, batch: Batch, job: asyncio.Future[None]) -> None:
        self._free += 1
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
        request_s = batch.ran_s / len(batch.items)
        self._request_s += WEIGHT * (request_s - self._request_s)
        row_ns = batch.ran_s * 1e9 / batch.rows
        for item, result in zip(batch.items, outcome.results, strict=True):
            answer = item.answer
            if answer.done():
                continue
            if isinstance(result, TiffinError):
                answer.set_exception(result)
            elif result is not None:
                queue_ns = int((batch.started - item.asked) * 1e9)
                device_ns = int(row_ns * item.rows)
                usage = Usage(queue_ns=queue_ns, device_ns=device_ns, rows=item.rows)
                answer.set_result(Ran(result, usage))
        self._observe(batch)

    def _expired(self, items: list[Item], now: float) -> list[Item]:
        late = [item for item in items if item.deadline <= now]
        if not late:
            return items
        for item in late:
            _give(item, DeadlineExceeded("the deadline passed in the model's queue"))
        return [item for item in items if item.deadline > now]


def _give(item: Item, error: TiffinError) -> None:
    if not item.answer.done():
        item.answer.set_exception(error)
