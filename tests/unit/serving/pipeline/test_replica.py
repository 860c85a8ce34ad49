"""A pipeline's life: loaded when its models are, ready after a request, bounded, drained."""

import asyncio
import threading
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
from numpy.typing import NDArray

from tiffin.config.models import PipelineModel
from tiffin.errors import (
    Draining,
    InvalidRequest,
    LoadFailed,
    Loading,
    Overloaded,
    UpstreamUnavailable,
)
from tiffin.ports.backend import Backend, Call, Reply
from tiffin.serving.context import Context
from tiffin.serving.pipeline.functions import Function, step
from tiffin.serving.pipeline.measures import PipelineMeasures
from tiffin.serving.pipeline.replica import PipelineReplica
from tiffin.serving.progress import Phase, ProgressFile, read_progress
from tiffin.telemetry.metrics import Meter
from tiffin.testing.clock import FakeClock

X = {"x": np.array([3.0], np.float32)}


class Nobody:
    """A backend where no replica listens; `asked` is how often it was tried."""

    def __init__(self) -> None:
        self.asked = 0

    @asynccontextmanager
    async def start(self, call: Call) -> AsyncIterator[Reply]:
        self.asked += 1
        raise UpstreamUnavailable("can't connect")
        yield


class Gate:
    """A function that waits in its thread for what is positive, until it may go."""

    def __init__(self) -> None:
        self.began = threading.Event()
        self.go = threading.Event()

        @step(takes={"x": "FP32[-1]"}, gives={"y": "FP32[-1]"})
        def passes(x: NDArray[Any]) -> Mapping[str, Any]:
            if x.max(initial=0) > 1:
                self.began.set()
                assert self.go.wait(10)
            return {"y": x}

        self.function = Function("passes", passes, {}, {})


Make = Callable[..., PipelineReplica]


@pytest.fixture
def make(tmp_path: Path) -> Iterator[Make]:
    progress = ProgressFile(tmp_path / "p.progress")
    made: list[PipelineReplica] = []

    def make(backends: Mapping[str, Backend] | None = None, **settings: Any) -> PipelineReplica:
        first = {"name": "a", "inputs": {"x": "request.x"}}
        first |= {"model": "m"} if backends else {"function": "passes"}
        tree = {"runtime": "pipeline", "steps": [first], "outputs": {"y": "a.y"}, **settings}
        pipeline = msgspec.convert(tree, PipelineModel)
        measures = PipelineMeasures(Meter("replica", "e"), "p")
        replica = PipelineReplica(pipeline, backends or {}, 2, FakeClock(), progress, measures)
        made.append(replica)
        return replica

    yield make
    for replica in made:
        replica.close()
    progress.close()


async def ready(replica: PipelineReplica, gate: Gate) -> PipelineReplica:
    await replica.load(lambda: {"a": gate.function})
    await replica.warm_up()
    return replica


async def ask(replica: PipelineReplica) -> list[float]:
    found, _ = await replica.infer(X, ["y"], Context(), b"")
    answer: list[float] = found["y"].tolist()
    return answer


async def began(gate: Gate) -> None:
    assert await asyncio.to_thread(gate.began.wait, 10)


async def test_it_answers_once_it_is_warm(make: Make, tmp_path: Path) -> None:
    replica, gate = make(), Gate()
    gate.go.set()
    with pytest.raises(Loading):
        await ask(replica)
    await ready(replica, gate)
    assert await ask(replica) == [3.0]
    progress = read_progress(tmp_path / "p.progress")
    assert (progress.phase, progress.outstanding) == (Phase.READY, 0)
    assert progress.steps >= 2


async def test_beyond_its_queue_it_refuses_at_once(make: Make) -> None:
    gate = Gate()
    replica = await ready(make(concurrency=1, queue=0), gate)
    running = asyncio.ensure_future(ask(replica))
    await began(gate)
    with pytest.raises(Overloaded) as refused:
        await ask(replica)
    assert refused.value.retry_after
    gate.go.set()
    assert await running == [3.0]
    assert await ask(replica) == [3.0]


async def test_who_leaves_gives_the_place_to_the_next(make: Make) -> None:
    gate = Gate()
    replica = await ready(make(concurrency=1), gate)
    leaving = asyncio.ensure_future(ask(replica))
    await began(gate)
    waiting = asyncio.ensure_future(ask(replica))
    await asyncio.sleep(0)
    leaving.cancel()
    with pytest.raises(asyncio.CancelledError):
        await leaving
    gate.go.set()
    assert await waiting == [3.0]
    assert (replica.lanes.running, replica.lanes.waiting) == (0, 0)


async def test_draining_lets_what_runs_finish(make: Make) -> None:
    gate = Gate()
    replica = await ready(make(), gate)
    running = asyncio.ensure_future(ask(replica))
    await began(gate)
    drained = asyncio.ensure_future(replica.drain(10))
    await asyncio.sleep(0)
    with pytest.raises(Draining):
        await ask(replica)
    gate.go.set()
    await drained
    assert await running == [3.0]


async def test_what_takes_too_long_to_drain_is_broken_off(make: Make) -> None:
    gate = Gate()
    replica = await ready(make(), gate)
    running = asyncio.ensure_future(ask(replica))
    await began(gate)
    await replica.drain(0.01)
    with pytest.raises(Draining):
        await running
    gate.go.set()


async def test_a_model_that_never_comes_fails_the_load_by_name(make: Make) -> None:
    nobody = Nobody()
    replica = make({"m": nobody}, load_timeout_s=0.5)
    with pytest.raises(LoadFailed, match="it calls 'm', which isn't ready") as failed:
        await replica.load(dict)
    assert isinstance(failed.value.__cause__, UpstreamUnavailable)  # so that another try may help
    assert nobody.asked > 1


async def test_a_function_that_refuses_all_that_is_made_up_fails_the_warm_up(make: Make) -> None:
    @step(takes={"x": "FP32[-1]"}, gives={"y": "FP32[-1]"})
    def picky(x: NDArray[Any]) -> Mapping[str, Any]:
        raise InvalidRequest("not this one")

    replica = make()
    await replica.load(lambda: {"a": Function("picky", picky, {}, {})})
    with pytest.raises(LoadFailed, match="not this one"):
        await replica.warm_up()


async def test_a_functions_example_is_what_goes_through(make: Make) -> None:
    seen: list[float] = []

    def example() -> dict[str, NDArray[Any]]:
        return {"x": np.array([42.0], np.float32)}

    @step(takes={"x": "FP32[-1]"}, gives={"y": "FP32[-1]"}, example=example)
    def sees(x: NDArray[Any]) -> Mapping[str, Any]:
        seen.extend(x.tolist())
        return {"y": x}

    replica = make()
    await replica.load(lambda: {"a": Function("sees", sees, {}, {})})
    await replica.warm_up()
    assert seen == [42.0]
