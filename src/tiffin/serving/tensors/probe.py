"""Inputs made up from a signature, for the first runs of a model, and what those runs tell."""

from collections.abc import Iterator, Mapping
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from tiffin.errors import LoadFailed, TiffinError
from tiffin.ports.tensor_runtime import TensorRuntime
from tiffin.serving.tensors.execute import Execution
from tiffin.types.tensors import ANY, Signature, TensorSpec

Arrays = Mapping[str, NDArray[Any]]

SIZES: Final = (1, 32, 224)
"""What is tried for a dimension that may have any size: some models take no image of one pixel."""
LOOSE: Final = 0.05

_DTYPES: Final[dict[str, Any]] = {
    "BOOL": np.bool_, "UINT8": np.uint8, "UINT16": np.uint16, "UINT32": np.uint32,
    "UINT64": np.uint64, "INT8": np.int8, "INT16": np.int16, "INT32": np.int32, "INT64": np.int64,
    "FP16": np.float16, "BF16": np.uint16, "FP32": np.float32, "FP64": np.float64,
}  # fmt: skip
_ONE_AS_BF16: Final = 0x3F80


def first_runs(runtime: TensorRuntime, signature: Signature) -> tuple[Arrays, bool]:
    """Inputs of one row that the model takes, and whether rows of several may run as one; blocks.

    Raises `LoadFailed` where the model fails on all that can be made up for it.
    """
    names = [spec.name for spec in signature.outputs]
    execution = Execution(runtime, batched=signature.batched, max_rows=2)
    failure: TiffinError | None = None
    for inputs in (runtime.example,) if runtime.example else probes(signature):
        try:
            alone = execution.once(inputs, names, 1)
        except TiffinError as error:
            failure = error
            continue
        return inputs, signature.batched and _independent(execution, inputs, alone)
    what = "the example that it gives" if runtime.example else "all inputs made up for it"
    raise LoadFailed(f"the model failed on {what}: {failure}") from failure


def probes(signature: Signature) -> Iterator[Arrays]:
    """Inputs of one row, from small zeros to large ones: one that the model takes is enough."""
    for size in SIZES:
        for value in (0, 1):
            yield {
                spec.name: _filled(spec, _shape(spec, size, signature.batched), value)
                for spec in signature.inputs
                if not spec.optional
            }


def _independent(execution: Execution, one: Arrays, alone: Arrays) -> bool:
    """Whether a row gives the same beside another, different one as it gave `alone`.

    Loosely the same: a quantized model takes its scales from the whole batch.
    """
    pair = {name: np.concatenate([array, _different(array)]) for name, array in one.items()}
    try:
        both = execution.once(pair, list(alone), 2)
    except TiffinError:
        return False
    return all(
        both[name].shape[1:] == array.shape[1:] and _alike(both[name][:1], array)
        for name, array in alone.items()
    )


def _alike(given: NDArray[Any], array: NDArray[Any]) -> bool:
    if array.dtype.kind != "f":
        return True
    largest = float(np.abs(array[np.isfinite(array)]).max(initial=0.0))
    return bool(np.allclose(given, array, rtol=LOOSE, atol=LOOSE * largest, equal_nan=True))


def _shape(spec: TensorSpec, size: int, batched: bool) -> list[int]:
    shape = [size if dimension == ANY else dimension for dimension in spec.shape]
    if batched:
        shape[0] = 1
    return shape


def _filled(spec: TensorSpec, shape: list[int], value: int) -> NDArray[Any]:
    if spec.datatype == "BYTES":
        texts = np.empty(shape, object)
        texts.fill(b"" if value == 0 else b"1")
        return texts
    if spec.datatype == "BF16":
        value *= _ONE_AS_BF16
    return np.full(shape, value, _DTYPES[spec.datatype])


def _different(array: NDArray[Any]) -> NDArray[Any]:
    """Other values that the model most likely takes as well."""
    if array.dtype == object:
        texts = np.empty(array.shape, object)
        texts.fill(b"2")
        return texts
    return np.zeros_like(array) if array.any() else np.ones_like(array)
