"""A request through a graph: side by side, one end for all, one by one, and what is summed up."""

import asyncio
import threading
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import msgspec
import numpy as np
import pytest
from numpy.typing import NDArray

from tiffin.config.models import PipelineModel
from tiffin.errors import DeadlineExceeded, Overloaded, RunFailed, SchemaViolation
from tiffin.serving.pipeline.edges import edge_type
from tiffin.serving.pipeline.functions import Counted, Function, step
from tiffin.serving.pipeline.graph import Ends, Graph, graph_of
from tiffin.serving.pipeline.peer import Hop
from tiffin.serving.pipeline.run import Run, Workers
from tiffin.serving.replica import Within
from tiffin.testing.clock import FakeClock
from tiffin.types.usage import Usage

Arrays = dict[str, NDArray[Any]]
Answer = Callable[[Arrays], Awaitable[Arrays]]

PLAIN = Ends({"x": edge_type("FP32[-1]")}, {"y": edge_type("FP32[-1]")})
X = {"x": np.array([1, 2], np.float32)}


class FakePeer:
    """A model that does what a test says; `inside` and `left` count its calls."""

    def __init__(self, answer: Answer) -> None:
        self._answer = answer
        self.inside = 0
        self.most = 0
        self.left = 0
        self.began = asyncio.Event()

    async def __call__(
        self, inputs: Arrays, outputs: Sequence[str], hop: Hop
    ) -> tuple[Arrays, Usage]:
        self.inside += 1
        self.most = max(self.most, self.inside)
        self.began.set()
        try:
            return await self._answer(inputs), Usage(device_ns=5, queue_ns=2)
        finally:
            self.inside -= 1
            self.left += 1


async def doubles(inputs: Arrays) -> Arrays:
    return {"y": 2 * inputs["x"]}


async def waits(inputs: Arrays) -> Arrays:
    await asyncio.Event().wait()
    return {}


@step(takes={"x": "FP32[-1]"}, gives={"parts": "FP32[1]*"})
def apart(x: NDArray[Any]) -> Counted:
    return Counted({"parts": [item[None] for item in x]}, pages=len(x), pixels=100)


@step(takes={"parts": "FP32[-1]*"}, gives={"y": "FP32[-1]"})
def together(parts: list[NDArray[Any]]) -> Mapping[str, Any]:
    return {"y": np.concatenate([*parts, np.empty(0, np.float32)])}


@step(takes={"x": "FP32[-1]"}, gives={"y": "FP32[-1]"})
def breaks(x: NDArray[Any]) -> Mapping[str, Any]:
    raise ZeroDivisionError


HOLD, HELD = threading.Event(), threading.Event()


@step(takes={"x": "FP32[-1]"}, gives={"y": "FP32[-1]"})
def holds(x: NDArray[Any]) -> Mapping[str, Any]:
    HELD.set()
    HOLD.wait(10)
    return {"y": x}


class Bench:
    """Graphs over fake models `a`, `b` … and the functions above."""

    def __init__(self, threads: ThreadPoolExecutor, **peers: FakePeer) -> None:
        self.peers = peers
        self._threads = threads
        self.working: list[int] = []
        self.steps = 0

    def stepped(self) -> None:
        self.steps += 1

    def graph(self, steps: list[dict[str, Any]], outputs: dict[str, Any]) -> Graph:
        tree = {"runtime": "pipeline", "steps": steps, "outputs": outputs}
        pipeline = msgspec.convert(tree, PipelineModel)
        known = {"apart": apart, "together": together, "breaks": breaks, "holds": holds}
        self.functions = {
            one.name: Function(one.function, known[one.function], {}, {})
            for one in pipeline.steps
            if one.function
        }
        ends = {
            one.name: self.functions[one.name].ends if one.function else PLAIN
            for one in pipeline.steps
        }
        return graph_of(pipeline, ends)

    def run(self, parallel: int = 4) -> Run:
        workers = Workers(
            self.peers,  # type: ignore[arg-type]
            self.functions,
            self._threads,
            self.working.append,
            self.stepped,
        )
        return Run(workers, Hop(b"", 1e9), parallel)


@pytest.fixture
def threads() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(2) as pool:
        yield pool


def model(name: str, x: Any = "request.x", **more: Any) -> dict[str, Any]:
    return {"name": name, "model": name, "inputs": {"x": x}, **more}


async def test_steps_that_need_nothing_of_each_other_run_side_by_side(
    threads: ThreadPoolExecutor,
) -> None:
    met = asyncio.Barrier(2)

    async def meets(inputs: Arrays) -> Arrays:
        async with asyncio.timeout(10):
            await met.wait()
        return await doubles(inputs)

    bench = Bench(threads, a=FakePeer(meets), b=FakePeer(meets))
    graph = bench.graph([model("a"), model("b")], {"y": ["b.y", "a.y"]})
    found = await bench.run()(graph, X)
    assert found["y"].tolist() == [2, 4, 2, 4]


async def test_the_first_step_that_fails_ends_all_others(threads: ThreadPoolExecutor) -> None:
    slow = FakePeer(waits)

    async def fails(inputs: Arrays) -> Arrays:
        await slow.began.wait()
        raise Overloaded("too much", retry_after=3.0)

    bench = Bench(threads, a=FakePeer(fails), b=slow)
    graph = bench.graph([model("a"), model("b")], {"y": ["a.y", "b.y"]})
    with pytest.raises(Overloaded, match="step 'a': too much") as refused:
        await bench.run()(graph, X)
    assert refused.value.retry_after == 3.0
    assert (slow.inside, slow.left) == (0, 1)


async def test_leaving_stops_every_call_and_begins_no_other(threads: ThreadPoolExecutor) -> None:
    first, second, after = FakePeer(waits), FakePeer(waits), FakePeer(doubles)
    bench = Bench(threads, a=first, b=second, c=after)
    graph = bench.graph([model("a"), model("b"), model("c", ["a.y", "b.y"])], {"y": "c.y"})
    running = asyncio.ensure_future(bench.run()(graph, X))
    await asyncio.gather(first.began.wait(), second.began.wait())
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    assert (first.inside, second.inside, after.left) == (0, 0, 0)


async def test_a_function_that_fails_has_made_progress(threads: ThreadPoolExecutor) -> None:
    bench = Bench(threads)
    graph = bench.graph(
        [{"name": "f", "function": "breaks", "inputs": {"x": "request.x"}}], {"y": "f.y"}
    )
    with pytest.raises(RunFailed):
        await bench.run()(graph, X)
    assert bench.steps == 1


async def test_a_function_that_is_left_behind_counts_until_it_has_ended(
    threads: ThreadPoolExecutor,
) -> None:
    bench = Bench(threads)
    graph = bench.graph(
        [{"name": "f", "function": "holds", "inputs": {"x": "request.x"}}], {"y": "f.y"}
    )
    running = asyncio.ensure_future(bench.run()(graph, X))
    assert await asyncio.to_thread(HELD.wait, 10)
    running.cancel()
    await asyncio.wait([running])
    assert bench.working == [1]
    HOLD.set()
    await asyncio.to_thread(threads.shutdown)
    assert bench.working == [1, -1]


async def test_the_deadline_stops_every_call(threads: ThreadPoolExecutor) -> None:
    slow = FakePeer(waits)
    bench = Bench(threads, a=slow)
    graph = bench.graph([model("a")], {"y": "a.y"})
    clock = FakeClock()
    with pytest.raises(DeadlineExceeded):
        async with Within(clock.monotonic() + 0.05, clock):
            await bench.run()(graph, X)
    assert (slow.inside, slow.left) == (0, 1)


async def test_many_go_one_by_one_within_bounds_and_keep_their_order(
    threads: ThreadPoolExecutor,
) -> None:
    async def yields(inputs: Arrays) -> Arrays:
        for _ in range(int(8 - inputs["x"][0])):
            await asyncio.sleep(0)
        return await doubles(inputs)

    peer = FakePeer(yields)
    bench = Bench(threads, a=peer)
    graph = bench.graph(
        [
            {"name": "apart", "function": "apart", "inputs": {"x": "request.x"}},
            model("a", "apart.parts"),
            {"name": "together", "function": "together", "inputs": {"parts": "a.y"}},
        ],
        {"y": "together.y"},
    )
    run = bench.run(parallel=3)
    found = await run(graph, {"x": np.arange(8, dtype=np.float32)})
    assert found["y"].tolist() == [0, 2, 4, 6, 8, 10, 12, 14]
    assert peer.most == 3
    usage = run.tally.usage()
    assert (usage.device_ns, usage.queue_ns, usage.pages, usage.pixels) == (40, 16, 8, 100)
    assert usage.prepare_ns > 0
    assert sum(bench.working) == 0


async def test_none_of_many_is_no_call_at_all(threads: ThreadPoolExecutor) -> None:
    peer = FakePeer(doubles)
    bench = Bench(threads, a=peer)
    graph = bench.graph(
        [
            {"name": "apart", "function": "apart", "inputs": {"x": "request.x"}},
            model("a", "apart.parts"),
            {"name": "together", "function": "together", "inputs": {"parts": "a.y"}},
        ],
        {"y": "together.y"},
    )
    found = await bench.run()(graph, {"x": np.empty(0, np.float32)})
    assert (found["y"].tolist(), peer.left) == ([], 0)


async def test_a_condition_decides_on_one_value(threads: ThreadPoolExecutor) -> None:
    bench = Bench(threads, a=FakePeer(doubles))
    graph = bench.graph([model("a", when="request.x > 1")], {"y": "a.y"})
    with pytest.raises(SchemaViolation, match="one row a request"):
        await bench.run()(graph, X)


async def test_a_defect_of_a_function_ends_one_request(threads: ThreadPoolExecutor) -> None:
    bench = Bench(threads)
    graph = bench.graph(
        [{"name": "f", "function": "breaks", "inputs": {"x": "request.x"}}], {"y": "f.y"}
    )
    with pytest.raises(RunFailed, match="step 'f': the function breaks failed: ZeroDivisionError"):
        await bench.run()(graph, X)
    assert sum(bench.working) == 0
