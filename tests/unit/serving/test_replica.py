"""A loaded model and its queue: answers come in order, and leaving leaves nothing behind."""

import asyncio
import contextlib
import random
from collections.abc import AsyncIterator, Sequence
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tiffin.errors import (
    DeadlineExceeded,
    Draining,
    LoadFailed,
    Loading,
    Overloaded,
    RunFailed,
    SchemaViolation,
    TiffinError,
)
from tiffin.ports.text_runtime import Delta
from tiffin.serving.context import Context
from tiffin.serving.progress import Phase, ProgressFile, read_progress
from tiffin.serving.replica import Answer, Piece, Replica, Served
from tiffin.testing.clock import FakeClock
from tiffin.testing.scripted import ScriptedRuntime, Step, words
from tiffin.types.text import ChatRequest, Message

REQUEST = ChatRequest(model="m", messages=[Message(role="user", content="hi")])


class Bench:
    """A replica over a scripted runtime, with what it reported."""

    def __init__(
        self, path: Path, script: Sequence[Step] = words("a_b"), *, slots: int = 1, queue: int = 8
    ) -> None:
        self.clock = FakeClock()
        self.runtime = ScriptedRuntime(script, slots=slots)
        self.served: list[Served] = []
        self.path = path
        self.progress = ProgressFile(path)
        self.replica = Replica(self.runtime, self.clock, self.progress, self.served.append)
        self.queue = queue

    async def __aenter__(self) -> "Bench":
        script, self.runtime.script = self.runtime.script, words("warm")
        await self.replica.load(self.queue)
        await self.replica.warm_up()
        self.runtime.script = script
        self.runtime.runs.clear()
        return self

    async def __aexit__(self, *_: object) -> None:
        assert self.empty()
        self.progress.close()

    def empty(self) -> bool:
        lanes = self.replica.lanes
        return not (lanes.running or lanes.waiting or self.runtime.running)

    async def answer(self, n: int = 1, context: Context = Context(tenant="a")) -> Answer:  # noqa: B008
        prompts = await self.replica.prepare(REQUEST, context)
        return self.replica.answer(prompts, n, context)

    async def collect(self, n: int = 1, context: Context = Context(tenant="a")) -> list[Piece]:  # noqa: B008
        async with await self.answer(n, context) as answer:
            return [piece async for pieces in answer for piece in pieces]


@pytest.fixture
async def bench(tmp_path: Path) -> AsyncIterator[Bench]:
    async with Bench(tmp_path / "r.progress") as made:
        yield made


def text(pieces: list[Piece], choice: int = 0) -> str:
    return "".join(piece.delta.text for piece in pieces if piece.choice == choice)


async def until_running(bench: Bench, count: int) -> None:
    await bench.runtime.until(lambda: len(bench.runtime.running) >= count)


async def test_pieces_come_in_order_and_the_last_has_finish(bench: Bench) -> None:
    pieces = await bench.collect()
    assert text(pieces) == "ab"
    assert [piece.delta.finish for piece in pieces] == [None, None, "stop"]


async def test_choices_run_in_turn_through_one_slot(bench: Bench) -> None:
    pieces = await bench.collect(n=3)
    assert [text(pieces, choice) for choice in range(3)] == ["ab"] * 3
    assert [run.sample for run in bench.runtime.runs] == [0, 1, 2]


async def test_usage_counts_the_prompt_once_and_every_choice(tmp_path: Path) -> None:
    async with Bench(tmp_path / "p", slots=2) as bench:
        async with await bench.answer(n=3) as answer:
            async for _ in answer:
                bench.clock.advance(1.0)
        assert (answer.usage.prompt_tokens, answer.usage.completion_tokens) == (3, 6)
        assert answer.usage.measured
        assert bench.served[-1].reasons == ["stop"] * 3


async def test_queue_and_device_time_are_told(bench: Bench) -> None:
    bench.runtime.held = True
    async with await bench.answer(), await bench.answer() as second:
        await until_running(bench, 1)
        bench.clock.advance(2.0)
        bench.runtime.release(3)
        pieces = aiter(second)
        await bench.runtime.until(lambda: len(bench.runtime.runs) == 2)
        bench.clock.advance(3.0)
        bench.runtime.release(3)
        async for _ in pieces:
            pass
        assert second.usage.queue_ns == 2_000_000_000
        assert second.usage.device_ns == 3_000_000_000


async def test_leaving_early_stops_all_choices_and_frees_their_slots(tmp_path: Path) -> None:
    async with Bench(tmp_path / "p", slots=2) as bench:
        bench.runtime.held = True
        async with await bench.answer(n=4):
            await until_running(bench, 2)
        assert bench.empty()
        assert bench.served[-1].reasons == ["abort"] * 4


async def test_cancelling_the_reader_stops_the_work(bench: Bench) -> None:
    bench.runtime.held = True
    reader = asyncio.ensure_future(bench.collect(n=2))
    await until_running(bench, 1)
    reader.cancel()
    with pytest.raises(asyncio.CancelledError):
        await reader
    assert bench.empty()


async def test_an_error_comes_after_the_pieces_before_it(tmp_path: Path) -> None:
    script: list[Step] = [Delta(text="a"), RunFailed("the engine fell over")]
    async with Bench(tmp_path / "p", script) as bench, await bench.answer() as answer:
        assert text(await anext(answer)) == "a"
        with pytest.raises(RunFailed, match="fell over"):
            await anext(answer)


async def test_one_failed_choice_ends_the_others(tmp_path: Path) -> None:
    async with Bench(tmp_path / "p", [RunFailed("no")], slots=2) as bench:
        with pytest.raises(RunFailed):
            await bench.collect(n=8)
        assert bench.empty()


async def test_an_engine_that_ends_without_a_reason_failed(tmp_path: Path) -> None:
    async with Bench(tmp_path / "p", [Delta(text="a")]) as bench:
        with pytest.raises(RunFailed, match="broke"):
            await bench.collect()


async def test_a_defect_in_a_runtime_surfaces_as_itself(tmp_path: Path) -> None:
    async with Bench(tmp_path / "p", [Delta(text="a"), ZeroDivisionError("oops")]) as bench:
        with pytest.raises(ZeroDivisionError):
            await bench.collect(n=2)
        assert bench.empty()
        assert asyncio.current_task().cancelling() == 0  # type: ignore[union-attr]


async def test_a_reader_s_own_error_passes_unchanged(bench: Bench) -> None:
    with pytest.raises(KeyError, match="mine"):
        async with await bench.answer():
            raise KeyError("mine")


async def test_a_slow_reader_makes_the_engine_wait(tmp_path: Path) -> None:
    script: list[Step] = [*[Delta(text="x")] * 2000, *words("end")]
    async with Bench(tmp_path / "p", script) as bench:
        before = read_progress(bench.path).steps
        async with await bench.answer() as answer:
            for _ in range(50):
                await asyncio.sleep(0)
            assert read_progress(bench.path).steps - before < 1000
            pieces = [piece async for some in answer for piece in some]
        assert len(pieces) == 2002


async def test_a_deadline_ends_what_runs_and_what_waits(bench: Bench) -> None:
    bench.runtime.held = True
    soon = Context(tenant="a", deadline=bench.clock.monotonic() + 0.01)
    results = await asyncio.gather(
        bench.collect(context=soon), bench.collect(context=soon), return_exceptions=True
    )
    assert [type(result) for result in results] == [DeadlineExceeded, DeadlineExceeded]


async def test_a_deadline_holds_while_preparing(bench: Bench) -> None:
    with pytest.raises(DeadlineExceeded):
        async with await bench.answer(context=Context(deadline=bench.clock.monotonic())):
            pass


async def test_a_full_queue_refuses(tmp_path: Path) -> None:
    async with Bench(tmp_path / "p", queue=0) as bench:
        bench.runtime.held = True
        async with await bench.answer():
            with pytest.raises(Overloaded):
                await bench.collect()


async def test_too_many_choices_are_refused(bench: Bench) -> None:
    with pytest.raises(SchemaViolation):
        await bench.answer(n=129)


async def test_a_prefix_is_reused_by_its_tenant_only(bench: Bench) -> None:
    for tenant in ("a", "a", "b", "b", "", ""):
        await bench.collect(context=Context(tenant=tenant))
    assert [run.reuse_prefix for run in bench.runtime.runs] == [
        False,
        True,
        False,
        True,
        False,
        False,
    ]


async def test_nothing_is_answered_before_a_real_inference_passed(tmp_path: Path) -> None:
    bench = Bench(tmp_path / "p")
    with pytest.raises(Loading):
        await bench.answer()
    bench.runtime.held = True
    await bench.replica.load(1)
    starting = asyncio.ensure_future(bench.replica.warm_up())
    await until_running(bench, 1)
    assert read_progress(bench.path).phase == Phase.WARMING
    with pytest.raises(Loading):
        await bench.answer()
    bench.runtime.release(9)
    await starting
    assert read_progress(bench.path).phase == Phase.READY
    assert bench.served == []
    bench.progress.close()


async def test_a_failed_warm_up_is_a_failed_load(tmp_path: Path) -> None:
    bench = Bench(tmp_path / "p", [RunFailed("no tokens")])
    await bench.replica.load(1)
    with pytest.raises(LoadFailed, match="no tokens"):
        await bench.replica.warm_up()
    with pytest.raises(Loading):
        bench.replica.check()
    bench.progress.close()


async def test_draining_lets_what_runs_finish_and_refuses_what_waits(bench: Bench) -> None:
    bench.runtime.held = True
    running = asyncio.ensure_future(bench.collect())
    await until_running(bench, 1)
    waiting = asyncio.ensure_future(bench.collect())
    await asyncio.sleep(0)
    drained = asyncio.ensure_future(bench.replica.drain(60))
    with pytest.raises(Draining):
        await waiting
    assert read_progress(bench.path).phase == Phase.DRAINING
    assert not drained.done()
    bench.runtime.release(3)
    await drained
    assert text(await running) == "ab"
    with pytest.raises(Draining):
        await bench.collect()


async def test_draining_while_it_warms_up_stays_draining(tmp_path: Path) -> None:
    bench = Bench(tmp_path / "p")
    await bench.replica.load(1)
    await bench.replica.drain(0)
    with pytest.raises(LoadFailed, match="stopping"):
        await bench.replica.warm_up()
    with pytest.raises(Draining):
        bench.replica.check()
    bench.progress.close()


async def test_what_hasn_t_finished_when_draining_ends_is_broken_off(bench: Bench) -> None:
    bench.runtime.held = True
    running = asyncio.ensure_future(bench.collect())
    await until_running(bench, 1)
    await bench.replica.drain(0)
    with pytest.raises(Draining):
        await running
    assert bench.empty()


async def test_outstanding_requests_are_counted(bench: Bench) -> None:
    bench.runtime.held = True
    async with await bench.answer(), await bench.answer():
        assert read_progress(bench.path).outstanding == 2
    assert read_progress(bench.path).outstanding == 0


@settings(max_examples=40, deadline=None)
@given(seed=st.integers(0, 2**32), slots=st.integers(1, 3), requests=st.integers(1, 12))
def test_whatever_happens_everything_is_given_back(
    tmp_path_factory: pytest.TempPathFactory, seed: int, slots: int, requests: int
) -> None:
    asyncio.run(_chaos(tmp_path_factory.mktemp("chaos") / "p", seed, slots, requests))


async def _chaos(path: Path, seed: int, slots: int, requests: int) -> None:
    """Requests that finish, leave, fail, expire or are cancelled, in an order of the seed."""
    chance = random.Random(seed)
    async with Bench(path, words("a_b_c"), slots=slots, queue=4) as bench:

        async def one() -> None:
            n = chance.choice([1, 1, 2, 5])
            patience = chance.choice([0.0, 0.001, 1e9])
            context = Context(chance.choice("ab"), bench.clock.monotonic() + patience)
            leave_after = chance.choice([0, 1, 2, 99])
            with contextlib.suppress(TiffinError):
                async with await bench.answer(n, context) as answer:
                    if chance.random() < 0.1:
                        answer.fail(RunFailed("broken off"))
                    async for _ in answer:
                        leave_after -= 1
                        if leave_after < 0:
                            break

        bench.runtime.held = True
        tasks = [asyncio.ensure_future(one()) for _ in range(requests)]
        for _ in range(requests * 20):
            assert len(bench.runtime.running) <= slots
            if chance.random() < 0.2:
                chance.choice(tasks).cancel()
            if chance.random() < 0.7:
                bench.runtime.release()
            await asyncio.sleep(0)
        bench.runtime.release(10_000)
        await asyncio.wait(tasks, timeout=10)
        assert all(task.done() for task in tasks)
        crashed = [t.exception() for t in tasks if not t.cancelled() and t.exception()]
        assert crashed == []
        assert bench.empty()
        assert len(bench.served) == len({id(served) for served in bench.served})
        bench.runtime.held = False
        assert text(await bench.collect()) == "abc"
