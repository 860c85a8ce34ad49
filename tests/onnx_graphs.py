"""Tiny ONNX graphs for tests, made on the spot."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

Shape = list[int | str | None]


def graph(
    nodes: list[Any],
    inputs: dict[str, tuple[int, Shape]],
    outputs: dict[str, tuple[int, Shape]],
    weights: dict[str, Any] | None = None,
) -> bytes:
    """A checked model; inputs and outputs are (element type, shape) by name."""
    made = helper.make_graph(
        nodes,
        "g",
        [helper.make_tensor_value_info(n, kind, shape) for n, (kind, shape) in inputs.items()],
        [helper.make_tensor_value_info(n, kind, shape) for n, (kind, shape) in outputs.items()],
        [numpy_helper.from_array(np.asarray(a), n) for n, a in (weights or {}).items()],
    )
    model = helper.make_model(made, opset_imports=[helper.make_opsetid("", 21)])
    model.ir_version = 10
    onnx.checker.check_model(model)
    return bytes(model.SerializeToString())


def doubling() -> bytes:
    """`y` is twice `x`, of any number of columns; `sum` is each row's sum."""
    return graph(
        [
            helper.make_node("Mul", ["x", "two"], ["y"]),
            helper.make_node("ReduceSum", ["x", "axis"], ["sum"], keepdims=0),
        ],
        {"x": (TensorProto.FLOAT, ["n", "m"])},
        {"y": (TensorProto.FLOAT, ["n", "m"]), "sum": (TensorProto.FLOAT, ["n"])},
        {"two": np.float32(2), "axis": np.array([1], np.int64)},
    )


def scoring(width: int = 4, seed: int = 7) -> bytes:
    """A small network of two layers with `probabilities` of two classes."""
    random = np.random.default_rng(seed)
    weights = {
        "w1": random.normal(size=(width, 8)).astype(np.float32),
        "w2": random.normal(size=(8, 2)).astype(np.float32),
    }
    return graph(
        [
            helper.make_node("MatMul", ["x", "w1"], ["h"]),
            helper.make_node("Tanh", ["h"], ["t"]),
            helper.make_node("MatMul", ["t", "w2"], ["z"]),
            helper.make_node("Softmax", ["z"], ["probabilities"], axis=1),
        ],
        {"x": (TensorProto.FLOAT, ["n", width])},
        {"probabilities": (TensorProto.FLOAT, ["n", 2])},
        weights,
    )


def quantized(width: int = 4, seed: int = 5) -> bytes:
    """`y` is `x` by a matrix of bytes: the scale of `x` is taken from all rows that are given."""
    random = np.random.default_rng(seed)
    weights = {
        "w": random.integers(-120, 120, size=(width, 3)).astype(np.int8),
        "zero": np.int8(0),
        "scale": np.float32(0.01),
    }
    return graph(
        [
            helper.make_node("DynamicQuantizeLinear", ["x"], ["q", "s", "z"]),
            helper.make_node("MatMulInteger", ["q", "w", "z", "zero"], ["i"]),
            helper.make_node("Cast", ["i"], ["f"], to=TensorProto.FLOAT),
            helper.make_node("Mul", ["s", "scale"], ["both"]),
            helper.make_node("Mul", ["f", "both"], ["y"]),
        ],
        {"x": (TensorProto.FLOAT, ["n", width])},
        {"y": (TensorProto.FLOAT, ["n", 3])},
        weights,
    )


def lookup(rows: int = 10) -> bytes:
    """`y` is the row of a table that each of `ids` names: an id out of range is refused."""
    return graph(
        [helper.make_node("Gather", ["table", "ids"], ["y"], axis=0)],
        {"ids": (TensorProto.INT64, ["n"])},
        {"y": (TensorProto.FLOAT, ["n", 3])},
        {"table": np.arange(rows * 3, dtype=np.float32).reshape(rows, 3)},
    )


def mixing_rows() -> bytes:
    """Looks as if it took rows, and takes their running sum: they depend on each other."""
    return graph(
        [helper.make_node("CumSum", ["x", "axis"], ["y"], reverse=1)],
        {"x": (TensorProto.FLOAT, ["n", 2])},
        {"y": (TensorProto.FLOAT, ["n", 2])},
        {"axis": np.int64(0)},
    )


def passing(kind: int) -> bytes:
    """Gives back what it takes, of any ONNX element type."""
    return graph(
        [helper.make_node("Identity", ["x"], ["y"])],
        {"x": (kind, ["n", 2])},
        {"y": (kind, ["n", 2])},
    )


def passing_each(kinds: Mapping[str, int]) -> bytes:
    """The same for many types at once: `y-NAME` is `x-NAME`."""
    return graph(
        [helper.make_node("Identity", [f"x-{name}"], [f"y-{name}"]) for name in kinds],
        {f"x-{name}": (kind, ["n", 2]) for name, kind in kinds.items()},
        {f"y-{name}": (kind, ["n", 2]) for name, kind in kinds.items()},
    )


def fixed() -> bytes:
    """Takes exactly one shape, so that requests run one by one."""
    return graph(
        [helper.make_node("Neg", ["x"], ["y"])],
        {"x": (TensorProto.FLOAT, [2, 3])},
        {"y": (TensorProto.FLOAT, [2, 3])},
    )


def written(folder: Path, model: bytes, name: str = "model.onnx") -> Path:
    """The model as a file."""
    path = folder / name
    path.write_bytes(model)
    return path
