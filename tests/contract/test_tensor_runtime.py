"""What every runtime of tensors does alike: loads or says why, runs named outputs, and closes."""

from collections.abc import AsyncIterator
from pathlib import Path

import numpy as np
import pytest

from tests.onnx_graphs import doubling, written
from tiffin.adapters.runtimes.onnx import OnnxRuntime, Placement
from tiffin.adapters.runtimes.python import Code, PythonRuntime
from tiffin.errors import LoadFailed
from tiffin.ports.tensor_runtime import TensorRuntime
from tiffin.testing.tensors import DoublingTensors
from tiffin.types.tensors import Signature

CODE = """
class Model:
    inputs = [("x", "FP32", [-1, -1])]
    outputs = [("y", "FP32", [-1, -1]), ("sum", "FP32", [-1])]

    def predict(self, inputs):
        return {"y": inputs["x"] * 2, "sum": inputs["x"].sum(axis=1)}
"""

KINDS = ["onnx", "python", "doubling"]


def made(kind: str, folder: Path, content: bytes | None = None) -> TensorRuntime:
    if kind == "onnx":
        path = written(folder, doubling() if content is None else content)
        return OnnxRuntime({"model.onnx": path}, "model.onnx", Placement(), folder)
    if kind == "python":
        path = written(folder, CODE.encode() if content is None else content, "model.py")
        return PythonRuntime({"model.py": path}, Code(trusted=True), folder)
    return DoublingTensors()


@pytest.fixture(params=KINDS)
async def runtime(
    request: pytest.FixtureRequest, tmp_path: Path
) -> AsyncIterator[tuple[TensorRuntime, Signature]]:
    runtime = made(request.param, tmp_path)
    yield runtime, await runtime.load()
    await runtime.close()
    await runtime.close()
    assert folders(tmp_path) == []


def folders(folder: Path) -> list[str]:
    return [path.name for path in folder.iterdir() if path.is_dir()]


Loaded = tuple[TensorRuntime, Signature]


def test_the_signature_says_names_types_and_shapes(runtime: Loaded) -> None:
    _, signature = runtime
    assert [(s.name, s.datatype, s.shape) for s in signature.inputs] == [("x", "FP32", (-1, -1))]
    told = [(s.name, s.datatype, s.shape) for s in signature.outputs]
    assert told == [("y", "FP32", (-1, -1)), ("sum", "FP32", (-1,))]
    assert signature.batched


@pytest.mark.parametrize("rows", [1, 3])
def test_rows_come_back_in_their_order(runtime: Loaded, rows: int) -> None:
    x = np.arange(rows * 2, dtype=np.float32).reshape(rows, 2)
    told = runtime[0].run({"x": x}, ["y", "sum"])
    assert np.array_equal(told["y"], 2 * x)
    assert np.array_equal(told["sum"], x.sum(axis=1))
    assert told["y"].dtype == told["sum"].dtype == np.float32


def test_only_the_named_outputs_come(runtime: Loaded) -> None:
    assert list(runtime[0].run({"x": np.zeros((1, 2), np.float32)}, ["sum"])) == ["sum"]


def test_inputs_that_must_not_change_are_taken_and_dont(runtime: Loaded) -> None:
    x = np.frombuffer(np.ones(4, np.float32).tobytes(), np.float32).reshape(2, 2)
    assert runtime[0].run({"x": x}, ["y"])["y"].tolist() == [[2, 2], [2, 2]]
    assert x.tolist() == [[1, 1], [1, 1]]


def test_an_answer_stays_what_it_is_while_the_next_is_computed(runtime: Loaded) -> None:
    first = runtime[0].run({"x": np.ones((1, 2), np.float32)}, ["y"])["y"]
    runtime[0].run({"x": np.full((1, 2), 9, np.float32)}, ["y"])
    assert first.tolist() == [[2, 2]]


@pytest.mark.parametrize("kind", ["onnx", "python"])
@pytest.mark.parametrize("content", [b"", b"\x00\xff nonsense (", doubling()[:40]])
async def test_a_corrupt_file_fails_to_load_with_a_reason(
    kind: str, content: bytes, tmp_path: Path
) -> None:
    runtime = made(kind, tmp_path, content)
    with pytest.raises(LoadFailed) as failure:
        await runtime.load()
    assert len(failure.value.message) > 20
    await runtime.close()


@pytest.mark.parametrize("kind", ["onnx", "python"])
async def test_a_missing_file_fails_to_load_and_says_which_there_are(
    kind: str, tmp_path: Path
) -> None:
    path = written(tmp_path, b"", "weights.bin")
    files = {"weights.bin": path}
    runtime: TensorRuntime = OnnxRuntime(files, "model.onnx", Placement(), tmp_path)
    if kind == "python":
        runtime = PythonRuntime(files, Code(trusted=True), tmp_path)
    with pytest.raises(LoadFailed, match=r"weights\.bin"):
        await runtime.load()
    await runtime.close()
