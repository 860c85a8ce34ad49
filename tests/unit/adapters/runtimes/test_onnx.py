"""ONNX graphs in onnxruntime: every datatype, what is refused, where weights and providers lie."""

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from numpy.typing import NDArray
from onnx import TensorProto, helper
from onnx.external_data_helper import convert_model_to_external_data
from onnxruntime import InferenceSession  # type: ignore[import-untyped]

from tests.onnx_graphs import doubling, fixed, graph, lookup, passing, scoring, written
from tiffin.adapters.runtimes.onnx import OnnxRuntime, Placement, chosen
from tiffin.dialects.oip.arrays import DTYPES, to_bf16
from tiffin.errors import LoadFailed, RunFailed, SchemaViolation
from tiffin.types.tensors import Signature

KINDS = {
    "BOOL": TensorProto.BOOL,
    "UINT8": TensorProto.UINT8,
    "UINT16": TensorProto.UINT16,
    "UINT32": TensorProto.UINT32,
    "UINT64": TensorProto.UINT64,
    "INT8": TensorProto.INT8,
    "INT16": TensorProto.INT16,
    "INT32": TensorProto.INT32,
    "INT64": TensorProto.INT64,
    "FP16": TensorProto.FLOAT16,
    "BF16": TensorProto.BFLOAT16,
    "FP32": TensorProto.FLOAT,
    "FP64": TensorProto.DOUBLE,
    "BYTES": TensorProto.STRING,
}


async def loaded(folder: Path, model: bytes, **placed: Any) -> tuple[OnnxRuntime, Signature]:
    files = {"model.onnx": written(folder, model)}
    runtime = OnnxRuntime(files, "model.onnx", Placement(**placed), folder)
    return runtime, await runtime.load()


def some(datatype: str) -> NDArray[Any]:
    if datatype == "BYTES":
        return np.array([["नमस्ते".encode(), b""]], object)
    if datatype == "BF16":
        return to_bf16(np.array([[1.5, -2]], np.float32))
    return np.array([[1, 0]], DTYPES[datatype])


@pytest.mark.parametrize("datatype", KINDS)
async def test_every_datatype_goes_in_and_comes_out(datatype: str, tmp_path: Path) -> None:
    runtime, signature = await loaded(tmp_path, passing(KINDS[datatype]))
    assert signature.inputs[0].datatype == signature.outputs[0].datatype == datatype
    x = some(datatype)
    y = runtime.run({"x": x}, ["y"])["y"]
    assert y.dtype == DTYPES[datatype]
    assert y.tolist() == x.tolist()
    await runtime.close()


async def test_a_graph_of_one_shape_isnt_batched(tmp_path: Path) -> None:
    runtime, signature = await loaded(tmp_path, fixed())
    assert not signature.batched
    assert signature.inputs[0].shape == (2, 3)
    await runtime.close()


async def test_inputs_whose_first_dimensions_are_called_differently_arent_rows(
    tmp_path: Path,
) -> None:
    two = graph(
        [helper.make_node("MatMul", ["a", "b"], ["y"])],
        {"a": (TensorProto.FLOAT, ["n", "k"]), "b": (TensorProto.FLOAT, ["k", 3])},
        {"y": (TensorProto.FLOAT, ["n", 3])},
    )
    runtime, signature = await loaded(tmp_path, two)
    assert not signature.batched
    await runtime.close()


async def test_values_that_the_graph_refuses_are_the_requests_fault(tmp_path: Path) -> None:
    runtime, _ = await loaded(tmp_path, lookup())
    with pytest.raises(SchemaViolation, match="out of data bounds"):
        runtime.run({"ids": np.array([99], np.int64)}, ["y"])
    await runtime.close()


async def test_text_that_isnt_utf_8_is_refused_by_the_inputs_name(tmp_path: Path) -> None:
    runtime, _ = await loaded(tmp_path, passing(TensorProto.STRING))
    with pytest.raises(SchemaViolation, match="'x' has bytes"):
        runtime.run({"x": np.array([[b"\xff", b""]], object)}, ["y"])
    await runtime.close()


async def test_a_closed_runtime_runs_nothing(tmp_path: Path) -> None:
    runtime, _ = await loaded(tmp_path, doubling())
    await runtime.close()
    with pytest.raises(RunFailed):
        runtime.run({"x": np.zeros((1, 1), np.float32)}, ["y"])


async def test_weights_beside_the_graph_are_found_by_their_name(tmp_path: Path) -> None:
    model = onnx.load_from_string(scoring())
    convert_model_to_external_data(model, location="w.bin", size_threshold=0)
    onnx.save(model, str(tmp_path / "saved.onnx"))
    store = tmp_path / "store"
    files = {"model.onnx": store / "aa", "w.bin": store / "bb"}
    moved(store, {tmp_path / "saved.onnx": "aa", tmp_path / "w.bin": "bb"})
    runtime = OnnxRuntime(files, "model.onnx", Placement(), tmp_path)
    await runtime.load()
    x = np.ones((1, 4), np.float32)
    (expected,) = InferenceSession(scoring()).run(None, {"x": x})
    assert np.allclose(runtime.run({"x": x}, ["probabilities"])["probabilities"], expected)
    await runtime.close()


def moved(store: Path, files: dict[Path, str]) -> None:
    store.mkdir()
    for path, name in files.items():
        path.rename(store / name)


async def test_an_output_that_is_no_tensor_cant_be_served(tmp_path: Path) -> None:
    made = helper.make_graph(
        [helper.make_node("SequenceConstruct", ["x"], ["s"])],
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n"])],
        [helper.make_tensor_sequence_value_info("s", TensorProto.FLOAT, None)],
    )
    model = helper.make_model(made, opset_imports=[helper.make_opsetid("", 21)])
    model.ir_version = 10
    with pytest.raises(LoadFailed, match=r"output 's' is seq\(tensor\(float\)\)"):
        await loaded(tmp_path, model.SerializeToString())


@pytest.mark.parametrize(
    ("wanted", "names"),
    [
        (["cpu"], ["CPUExecutionProvider"]),
        (["cuda", "cpu"], ["CPUExecutionProvider"]),
        (["CPUExecutionProvider"], ["CPUExecutionProvider"]),
        (["CUDA"], []),
        (["warp"], []),
    ],
)
def test_the_providers_that_are_present_are_chosen_in_order(
    wanted: list[str], names: list[str]
) -> None:
    present = ["AzureExecutionProvider", "CPUExecutionProvider"]
    if names:
        assert chosen(wanted, present) == names
    else:
        with pytest.raises(LoadFailed, match=f"{wanted[0]} is in this onnxruntime.*cpu"):
            chosen(wanted, present)


async def test_a_provider_that_isnt_here_fails_the_load(tmp_path: Path) -> None:
    with pytest.raises(LoadFailed, match="none of the providers cuda"):
        await loaded(tmp_path, doubling(), providers=("cuda",))
