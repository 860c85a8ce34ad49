"""The scheduler: each request is answered once with its own rows, and leaving stops work."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from typing import NoReturn

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from tests.polling import eventually
from tiffin.errors import DeadlineExceeded, Draining, Overloaded, RunFailed, TiffinError
from tiffin.serving.context import Context
from tiffin.serving.tensors.batcher import Batcher
from tiffin.serving.tensors.execute import Execution
from tiffin.serving.tensors.schedule import FULL_MOST_S, SLACK, Batch, Bounds
from tiffin.serving.tensors.suspects import CLEARED_AFTER, MAX_SUSPECTS, Suspects
from tiffin.serving.tensors.waiting import Ran
from tiffin.testing.clock import FakeClock
from tiffin.testing.tensors import POISON, DoublingTensors

Array = NDArray[np.float32]


class Bench:
    """A batcher over a model that doubles."""

    def __init__(self, runtime: DoublingTensors, bounds: Bounds) -> None:
        self.runtime = runtime
        self.clock = FakeClock()
        self.seen: list[Batch] = []
        execution = Execution(runtime, batched=True, max_rows=bounds.max_batch)
        self.batcher = Batcher(execution, bounds, self.clock, self.seen.append, busy=lambda: 0.0)

    def ask(self, x: Array, **context: float | str) -> "asyncio.Task[Ran]":
        made = Context(**context)  # type: ignore[arg-type]
        return asyncio.ensure_future(self.batcher.run({"x": x}, ("y",), len(x), made))

    async def held(self) -> "asyncio.Task[Ran]":
        """A first request that is being computed until the gate opens."""
        self.runtime.gate.clear()
        task = self.ask(row(0))
        await eventually(self.runtime.began.is_set)
        return task


@asynccontextmanager
async def batcher(
    *, inline: bool = False, lanes: int = 1, max_batch: int = 8, queue: int = 64
) -> AsyncIterator[Bench]:
    runtime = DoublingTensors(lanes=lanes, inline=inline)
    bench = Bench(runtime, Bounds(lanes, max_batch, queue, inline))
    try:
        yield bench
    finally:
        runtime.gate.set()
        assert await bench.batcher.emptied(10)
        assert bench.batcher.waiting == bench.batcher.inside == 0
        await eventually(lambda: bench.batcher.running == 0)
        bench.batcher.abandon(refused)


def refused() -> TiffinError:
    return Draining("the replica is stopping")


def row(*values: float) -> Array:
    return np.array([values], np.float32)


async def test_a_request_gets_its_own_rows_and_what_it_used() -> None:
    async with batcher() as bench:
        ran = await bench.ask(np.array([[1, 2], [3, 4]], np.float32))
        assert ran.outputs["y"].tolist() == [[2, 4], [6, 8]]
        assert list(ran.outputs) == ["y"]
        assert ran.usage.rows == 2


@pytest.mark.parametrize("inline", [False, True])
async def test_what_one_turn_brings_runs_as_one(inline: bool) -> None:
    async with batcher(inline=inline) as bench:
        tasks = [bench.ask(row(i)) for i in range(5)]
        assert [(await task).outputs["y"][0, 0] for task in tasks] == [0, 2, 4, 6, 8]
        assert [len(batch) for batch in bench.runtime.batches] == [5]
        assert [batch.reason for batch in bench.seen] == ["idle"]


async def test_arrivals_gather_while_a_batch_runs_and_go_as_soon_as_it_ends() -> None:
    async with batcher() as bench:
        first = await bench.held()
        rest = [bench.ask(row(i)) for i in range(5)]
        await eventually(lambda: bench.batcher.waiting == 5)
        bench.runtime.gate.set()
        await asyncio.gather(first, *rest)
        assert [len(batch) for batch in bench.runtime.batches] == [1, 5]
        assert [batch.reason for batch in bench.seen] == ["idle", "gathered"]


async def test_a_batch_has_at_most_so_many_rows_and_one_shape() -> None:
    async with batcher(max_batch=4) as bench:
        first = await bench.held()
        rest = [bench.ask(np.full((1, 1 + i % 2), i, np.float32)) for i in range(10)]
        await eventually(lambda: bench.batcher.waiting == 10)
        bench.runtime.gate.set()
        await asyncio.gather(first, *rest)
        shapes = [batch.shape for batch in bench.runtime.batches[1:]]
        assert shapes == [(4, 1), (4, 2), (1, 1), (1, 2)]
        assert [batch.reason for batch in bench.seen[1:]] == ["full", "full"] + ["gathered"] * 2


async def test_a_request_with_more_rows_than_a_batch_runs_in_parts() -> None:
    async with batcher(max_batch=4) as bench:
        x = np.arange(10, dtype=np.float32).reshape(10, 1)
        ran = await bench.ask(x)
        assert (ran.outputs["y"] == 2 * x).all()
        assert [len(batch) for batch in bench.runtime.batches] == [4, 4, 2]


async def test_interactive_goes_before_batch_work() -> None:
    async with batcher(max_batch=1) as bench:
        first = await bench.held()
        slow = bench.ask(row(1), batch=True)
        quick = bench.ask(row(2))
        await eventually(lambda: bench.batcher.waiting == 2)
        bench.runtime.gate.set()
        await asyncio.gather(first, slow, quick)
        assert [batch[0, 0] for batch in bench.runtime.batches] == [0, 2, 1]


async def test_poison_fails_alone() -> None:
    async with batcher() as bench:
        values = [1.0, 2.0, POISON, 4.0, 5.0]
        told = await asyncio.gather(*[bench.ask(row(v)) for v in values], return_exceptions=True)
        assert isinstance(told[2], RunFailed)
        good = [ran.outputs["y"][0, 0] for ran in told if isinstance(ran, Ran)]
        assert good == [2, 4, 8, 10]


async def test_a_defect_fails_its_batch_and_nothing_after_it() -> None:
    for inline in (False, True):
        async with batcher(inline=inline) as bench:
            await bench.ask(row(1))
            right = bench.batcher._execution

            def broken(items: object) -> NoReturn:
                raise MemoryError

            bench.batcher._execution = broken  # type: ignore[assignment]
            told = await asyncio.gather(
                bench.ask(row(1)), bench.ask(row(2)), return_exceptions=True
            )
            assert [type(error) for error in told] == [RunFailed, RunFailed]
            bench.batcher._execution = right
            assert (await bench.ask(row(3))).outputs["y"][0, 0] == 6


async def test_160_who_leave_cost_no_more_than_the_running_batch() -> None:
    async with batcher(max_batch=32, queue=1024) as bench:
        bench.runtime.gate.clear()
        tasks = [bench.ask(row(i)) for i in range(160)]
        await eventually(bench.runtime.began.is_set)
        assert bench.batcher.waiting == 128
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        assert bench.batcher.waiting == bench.batcher.inside == 0
        bench.runtime.gate.set()
        after = await bench.ask(row(7))
        assert after.outputs["y"][0, 0] == 14
        assert bench.runtime.rows == 32 + 1


async def test_a_long_request_stops_between_its_parts_when_its_client_leaves() -> None:
    async with batcher(max_batch=4) as bench:
        bench.runtime.gate.clear()
        task = bench.ask(np.zeros((100, 1), np.float32))
        await eventually(bench.runtime.began.is_set)
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task
        bench.runtime.gate.set()
        await bench.ask(row(1))
        assert bench.runtime.rows == 4 + 1


async def test_a_full_queue_refuses_and_says_when_to_come_again() -> None:
    async with batcher(queue=2) as bench:
        first = await bench.held()
        waiting = [bench.ask(row(i)) for i in range(2)]
        await eventually(lambda: bench.batcher.waiting == 2)
        with pytest.raises(Overloaded) as refusal:
            await bench.ask(row(9))
        assert refusal.value.retry_after is not None
        bench.runtime.gate.set()
        await asyncio.gather(first, *waiting)


async def test_who_has_less_than_its_share_gets_another_s_place_in_a_full_queue() -> None:
    async with batcher(queue=2) as bench:
        first = await bench.held()
        kept, given = bench.ask(row(1), tenant="flood"), bench.ask(row(2), tenant="flood")
        await eventually(lambda: bench.batcher.waiting == 2)
        other = bench.ask(row(3), tenant="other")
        with pytest.raises(Overloaded, match="less than their share"):
            await given
        bench.runtime.gate.set()
        await asyncio.gather(first, kept, other)


async def test_a_deadline_that_passed_is_refused_before_and_in_the_queue() -> None:
    async with batcher() as bench:
        with pytest.raises(DeadlineExceeded):
            await bench.ask(row(1), deadline=bench.clock.monotonic())
        first = await bench.held()
        late = bench.ask(row(2), deadline=bench.clock.monotonic() + 1)
        await eventually(lambda: bench.batcher.waiting == 1)
        bench.clock.advance(2)
        bench.runtime.gate.set()
        with pytest.raises(DeadlineExceeded):
            await late
        await first
        assert bench.runtime.rows == 1


async def test_who_would_be_late_is_refused_at_once_and_an_aim_counts_like_a_deadline() -> None:
    async with batcher() as bench:
        first = await bench.held()
        bench.clock.advance(1.0)
        bench.runtime.gate.set()
        await first  # a run takes about a second
        now = bench.clock.monotonic()
        running = await bench.held()
        for context in ({"deadline": now + 1.5}, {"deadline": now + 9, "aim": now + 1.5}):
            with pytest.raises(Overloaded) as refusal:
                await bench.ask(row(1), **context)
            assert refusal.value.retry_after == pytest.approx(0.5 + (SLACK - 1.0))
            assert 0 < refusal.value.full_s <= FULL_MOST_S
        assert bench.batcher.refusals["late"] == 2
        patient = bench.ask(row(2), deadline=now + 9)
        await eventually(lambda: bench.batcher.waiting == 1)
        bench.runtime.gate.set()
        await asyncio.gather(running, patient)


async def test_a_closed_batcher_finishes_what_it_took_and_refuses_what_comes() -> None:
    async with batcher() as bench:
        first = await bench.held()
        waiting = bench.ask(row(2))
        await eventually(lambda: bench.batcher.waiting == 1)
        bench.batcher.close(refused)
        with pytest.raises(Draining):
            await bench.ask(row(3))
        assert not await bench.batcher.emptied(0.01)
        bench.runtime.gate.set()
        assert (await waiting).outputs["y"][0, 0] == 4
        await first


async def test_a_quick_model_comes_to_run_on_the_loop_and_a_slow_one_never_does() -> None:
    for busy_s, inline in ((0.0001, True), (0.1, False)):
        async with batcher(inline=True) as bench:
            spent = iter_of(busy_s)
            bench.batcher._busy = lambda spent=spent: next(spent)  # type: ignore[misc]
            await bench.ask(row(1))
            task = bench.ask(row(2))
            for _ in range(4):
                await asyncio.sleep(0)
            assert task.done() == inline
            await task


def iter_of(step: float) -> Iterator[float]:
    now = 0.0
    while True:
        yield now
        now += step


KINDS = ("ask", "ask", "ask", "batch", "poison", "leave", "turn", "open", "shut")
STEP = st.tuples(
    st.sampled_from(KINDS), st.integers(1, 6), st.integers(1, 3), st.integers(0, 30)
)  # what happens, rows, columns, who leaves


class History:
    """Clients that come and go, and what each of them must get."""

    def __init__(self, bench: Bench, *, may_hold: bool) -> None:
        self.bench = bench
        self.may_hold = may_hold  # a model that runs on the loop would hold the loop
        self.asked: list[tuple[Array, asyncio.Task[Ran]]] = []
        self.left: set[int] = set()

    async def step(self, kind: str, rows: int, columns: int, who: int) -> None:
        gate = self.bench.runtime.gate
        if kind in ("ask", "batch", "poison"):
            x = np.full((rows, columns), len(self.asked) + 1, np.float32)
            if kind == "poison":
                x[0, 0] = POISON
            self.asked.append((x, self.bench.ask(x, batch=kind == "batch")))
        elif kind == "leave" and self.asked:
            self.left.add(who % len(self.asked))
            self.asked[who % len(self.asked)][1].cancel()
        elif kind == "shut" and self.may_hold:
            gate.clear()
        elif kind == "open":
            gate.set()
        else:
            await asyncio.sleep(0)

    async def check(self) -> None:
        self.bench.runtime.gate.set()
        for number, (x, task) in enumerate(self.asked):
            try:
                ran = await asyncio.wait_for(task, 10)
            except asyncio.CancelledError:
                assert number in self.left
            except RunFailed:
                assert (x == POISON).any()
            except Overloaded:
                continue
            else:
                assert ran.outputs["y"].tolist() == (2 * x).tolist()


@given(st.lists(STEP, max_size=40), st.booleans(), st.integers(1, 2))
@settings(max_examples=60, deadline=None)
async def test_whatever_happens_each_is_answered_once_and_rightly(
    steps: list[tuple[str, int, int, int]], inline: bool, lanes: int
) -> None:
    async with batcher(inline=inline, lanes=lanes, max_batch=4, queue=6) as bench:
        history = History(bench, may_hold=not inline)
        for step in steps:
            await history.step(*step)
            # Interactive and batch work have a queue each.
            assert bench.batcher.waiting <= 2 * (6 + lanes * 4)
        await history.check()


async def test_who_made_a_batch_fail_shares_with_nobody_else_until_all_goes_well_again() -> None:
    async with batcher(max_batch=64) as bench:

        async def together(*asked: tuple[str, float]) -> list[int]:
            """Sizes of the batches that these tenants' requests make at once."""
            made = len(bench.runtime.batches)
            tasks = [bench.ask(row(value), tenant=tenant) for tenant, value in asked]
            await asyncio.gather(*tasks, return_exceptions=True)
            return [len(batch) for batch in bench.runtime.batches[made:]]

        await together(("bad", POISON), ("good", 1), ("good", 2), ("good", 3))
        apart = await together(("bad", POISON), ("good", 1), ("bad", 1), ("good", 3))
        assert sorted(apart) == [1, 1, 2, 2]
        for _ in range(CLEARED_AFTER):
            await together(("bad", 1))
        assert await together(("bad", 1), ("good", 1)) == [2]


def test_suspects_are_bounded() -> None:
    suspects = Suspects()
    for number in range(2 * MAX_SUSPECTS):
        suspects.failed(str(number))
    assert "0" not in suspects
    assert str(2 * MAX_SUSPECTS - 1) in suspects
    for number in range(2 * MAX_SUSPECTS):
        for _ in range(CLEARED_AFTER):
            suspects.went_well(str(number))
    assert not suspects
