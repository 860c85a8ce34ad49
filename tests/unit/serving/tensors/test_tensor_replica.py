"""One tensor model's life: warmed up by real runs, its rows checked, drained, in-process calls."""

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
from numpy.typing import NDArray

from tests.polling import eventually
from tiffin.config.models import Decision
from tiffin.errors import Draining, LoadFailed, Loading, RunFailed
from tiffin.serving.progress import Phase, ProgressFile, read_progress
from tiffin.serving.tensors.measures import TensorMeasures
from tiffin.serving.tensors.probe import probes
from tiffin.serving.tensors.replica import TensorReplica
from tiffin.serving.tensors.schedule import Batch
from tiffin.telemetry.metrics import Meter
from tiffin.testing.clock import FakeClock
from tiffin.testing.tensors import DOUBLING, DoublingTensors
from tiffin.types.tensors import Signature, TensorSpec

Arrays = Mapping[str, NDArray[Any]]
ONE = np.array([[1, 2]], np.float32)


class Site:
    """A replica over a model of a test's."""

    def __init__(self, folder: Path, runtime: DoublingTensors) -> None:
        self.path = folder / "progress"
        self.runtime = runtime
        self.meter = Meter("replica", "ep_1")
        self.measures = TensorMeasures(self.meter, "m", "0" * 12)
        self.batches: list[Batch] = []
        self.replica = TensorReplica(runtime, FakeClock(), ProgressFile(self.path), self.observe)

    def observe(self, batch: Batch) -> None:
        self.batches.append(batch)
        self.measures(batch)

    def counted(self, name: str) -> dict[str, float]:
        """A family's first number by the last label."""
        [family] = [f for f in self.meter.snapshot().families if f.name == name]
        return {s.labels[-1]: s.numbers[0] for s in family.series}


@asynccontextmanager
async def site(
    folder: Path, runtime: DoublingTensors | None = None, **load: Any
) -> AsyncIterator[Site]:
    made = Site(folder, runtime or DoublingTensors())
    try:
        await made.replica.load(**load)
        await made.replica.warm_up()
        made.runtime.batches.clear()
        made.runtime.began.clear()
        yield made
    finally:
        made.runtime.gate.set()
        await made.replica.close()
        assert made.runtime.closed


async def test_it_is_ready_when_real_runs_have_passed(tmp_path: Path) -> None:
    made = Site(tmp_path, DoublingTensors())
    with pytest.raises(Loading):
        await made.replica.infer({"x": ONE})
    await made.replica.load()
    with pytest.raises(Loading):
        made.replica.check()
    await made.replica.warm_up()
    made.replica.check()
    assert read_progress(made.path).phase == Phase.READY
    assert read_progress(made.path).steps > 0
    assert made.batches == []  # nobody's requests
    await made.replica.close()


async def test_a_call_in_process_gets_outputs_and_usage(tmp_path: Path) -> None:
    async with site(tmp_path) as made:
        ran = await made.replica.infer({"x": np.vstack([ONE, ONE])}, ("sum",), rows=2)
        assert ran.outputs["sum"].tolist() == [3, 3]
        assert ran.usage.rows == 2
        everything = await made.replica.infer({"x": ONE})
        assert list(everything.outputs) == ["y", "sum"]
        assert made.counted("nv_inference_count") == {"0" * 12: 3}
        assert made.counted("nv_inference_exec_count") == {"0" * 12: 2}
        assert made.counted("nv_inference_request_success") == {"0" * 12: 2}
        assert made.counted("tiffin_batches_total") == {"idle": 2}
        assert read_progress(made.path).outstanding == 0


class Failing(DoublingTensors):
    """Fails on what a test says."""

    def __init__(self, signature: Signature = DOUBLING, *, below: int = 0) -> None:
        super().__init__(signature=signature)
        self.below = below

    def run(self, inputs: Arrays, outputs: Sequence[str]) -> Arrays:
        if inputs["x"].shape[1] < self.below:
            raise RunFailed("too small")
        return super().run(inputs, outputs)


async def test_inputs_are_made_up_until_the_model_takes_them(tmp_path: Path) -> None:
    async with site(tmp_path, Failing(below=30)) as made:
        assert (await made.replica.infer({"x": np.ones((1, 30), np.float32)})).usage.rows == 1


async def test_a_model_that_fails_on_everything_fails_to_load(tmp_path: Path) -> None:
    made = Site(tmp_path, Failing(below=10_000))
    with pytest.raises(LoadFailed, match="all inputs made up for it: too small"):
        await made.replica.load()
    made.runtime.example = {"x": ONE}
    with pytest.raises(LoadFailed, match="the example that it gives: too small"):
        await made.replica.load()
    await made.replica.close()


async def test_an_example_takes_the_place_of_made_up_inputs(tmp_path: Path) -> None:
    runtime = Failing(below=2)
    runtime.example = {"x": ONE}
    made = Site(tmp_path, runtime)
    await made.replica.load()
    assert all(batch.shape[1] == 2 for batch in runtime.batches)
    await made.replica.close()


def test_what_is_made_up_has_every_type_and_shape() -> None:
    kinds = ("BOOL", "INT8", "UINT64", "FP16", "BF16", "FP64", "BYTES")
    specs = tuple(TensorSpec(name=kind, datatype=kind, shape=(-1, 3, -1)) for kind in kinds)
    left_out = TensorSpec(name="z", datatype="FP32", shape=(1,), optional=True)
    signature = Signature(inputs=(*specs, left_out), outputs=(), batched=True)
    made = list(probes(signature))
    assert [probe["FP16"].shape for probe in made] == [
        *[(1, 3, 1)] * 2,
        *[(1, 3, 32)] * 2,
        *[(1, 3, 224)] * 2,
    ]
    assert "z" not in made[0]
    assert made[1]["BF16"].ravel().tolist() == [0x3F80] * 3


class Mixing(DoublingTensors):
    """Each row depends on those after it."""

    def run(self, inputs: Arrays, outputs: Sequence[str]) -> Arrays:
        x = inputs["x"][::-1].cumsum(axis=0, dtype=np.float32)[::-1]
        return super().run({"x": x}, outputs)


async def test_rows_that_depend_on_each_other_are_never_batched(tmp_path: Path) -> None:
    async with site(tmp_path, Mixing()) as made:
        ran = await asyncio.gather(*[made.replica.infer({"x": ONE}) for _ in range(8)])
        assert [r.outputs["y"].tolist() for r in ran] == [[[2, 4]]] * 8
        assert [len(batch) for batch in made.runtime.batches] == [1] * 8


async def test_draining_finishes_what_was_taken_and_refuses_the_rest(tmp_path: Path) -> None:
    async with site(tmp_path) as made:
        made.runtime.gate.clear()
        taken = asyncio.ensure_future(made.replica.infer({"x": ONE}))
        await eventually(made.runtime.began.is_set)
        draining = asyncio.ensure_future(made.replica.drain(10))
        await eventually(lambda: made.replica.phase is Phase.DRAINING)
        with pytest.raises(Draining):
            await made.replica.infer({"x": ONE})
        made.runtime.gate.set()
        assert (await taken).outputs["y"].tolist() == [[2, 4]]
        await draining


async def test_what_waits_longer_than_draining_may_take_is_refused(tmp_path: Path) -> None:
    async with site(tmp_path, max_batch=1) as made:
        made.runtime.gate.clear()
        running = asyncio.ensure_future(made.replica.infer({"x": ONE}))
        await eventually(made.runtime.began.is_set)
        waiting = asyncio.ensure_future(made.replica.infer({"x": ONE}))
        await eventually(lambda: made.replica.waiting == 1)
        draining = asyncio.ensure_future(made.replica.drain(0.01))
        with pytest.raises(Draining):
            await waiting
        made.runtime.gate.set()
        await running
        await draining


class Scoring(DoublingTensors):
    """The score is 0.1 a + 0.5 b."""

    def run(self, inputs: Arrays, outputs: Sequence[str]) -> Arrays:
        self.batches.append(inputs["x"])
        y = (inputs["x"] @ np.array([[0.1], [0.5]], np.float32)).astype(np.float32)
        return {name: y if name == "y" else y[:, 0] for name in outputs}


TWO = (TensorSpec(name="x", datatype="FP32", shape=(-1, 2)),)
DECISION = Decision(
    output="y", threshold=0.5, labels=("no", "yes"), features=["a", "b"], reference=[0, 0]
)


async def test_decision_score_and_reasons_are_computed_only_when_asked_for(tmp_path: Path) -> None:
    scoring = Scoring(signature=msgspec.structs.replace(DOUBLING, inputs=TWO))
    async with site(tmp_path, scoring, decision=DECISION) as made:
        extra = [spec.name for spec in made.replica.signature.extra_outputs]
        assert extra == ["decision", "score", "reasons"]
        x = np.array([[1, 1], [1, 0]], np.float32)
        plain = await made.replica.infer({"x": x}, rows=2)
        assert list(plain.outputs) == ["y", "sum"]
        assert sum(len(batch) for batch in made.runtime.batches) == 2

        ran = await made.replica.infer({"x": x}, ("decision", "sum"), rows=2)
        assert list(ran.outputs) == ["decision", "sum"]
        assert ran.outputs["decision"].tolist() == [b"yes", b"no"]
        assert sum(len(batch) for batch in made.runtime.batches) == 4

        ran = await made.replica.infer({"x": x}, ("reasons", "score"), rows=2)
        assert ran.outputs["score"].tolist() == pytest.approx([0.6, 0.1])
        first, second = [msgspec.json.decode(told) for told in ran.outputs["reasons"]]
        assert [r["feature"] for r in first] == ["b", "a"]
        assert [r["effect"] for r in first] == pytest.approx([0.5, 0.1])
        assert [r["effect"] for r in second] == pytest.approx([0.1, 0.0])
        assert sum(len(batch) for batch in made.runtime.batches) == 4 + 2 + 2 * 3
