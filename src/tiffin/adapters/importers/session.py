"""An ONNX graph in onnxruntime, to try it here: its signature, and what it gives for rows."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tiffin.dialects.oip.arrays import DTYPES
from tiffin.dialects.onnx_file import DATATYPES
from tiffin.errors import ArtifactError
from tiffin.types.tensors import ANY, Signature, TensorSpec

Arrays = Mapping[str, NDArray[Any]]


class Session:
    """A loaded graph on the CPU, with one thread; raises `ArtifactError` where it is none."""

    def __init__(self, path: Path) -> None:
        import onnxruntime as ort  # type: ignore[import-untyped]

        options = ort.SessionOptions()
        options.intra_op_num_threads = 1
        options.log_severity_level = 4  # what goes wrong is raised
        try:
            self._session = ort.InferenceSession(
                str(path), options, providers=["CPUExecutionProvider"]
            )
        except Exception as cause:
            raise ArtifactError(
                f"{path} is no ONNX model that can run here: {_line(cause)}"
            ) from cause
        inputs = tuple(_spec(one, path) for one in self._session.get_inputs())
        outputs = tuple(_spec(one, path) for one in self._session.get_outputs())
        free = all(spec.shape and spec.shape[0] == ANY for spec in (*inputs, *outputs))
        self.signature = Signature(inputs=inputs, outputs=outputs, batched=free)

    def run(self, inputs: Arrays) -> Arrays:
        """All outputs by name; raises `ArtifactError` where the graph fails."""
        try:
            found = self._session.run(None, dict(inputs))
        except Exception as cause:
            raise ArtifactError(f"the graph fails on its sample: {_line(cause)}") from cause
        names = (spec.name for spec in self.signature.outputs)
        return dict(zip(names, map(np.asarray, found), strict=True))


def example_of(signature: Signature) -> Arrays:
    """One row of zeros for each input; dimensions that may have any size have 1."""
    return {
        spec.name: np.full(
            [1 if size == ANY else size for size in spec.shape],
            "" if spec.datatype == "BYTES" else 0,
            dtype=DTYPES[spec.datatype],
        )
        for spec in signature.inputs
        if spec.datatype != "BF16"
    }


def _spec(one: Any, path: Path) -> TensorSpec:
    datatype = DATATYPES.get(one.type)
    if datatype is None:
        raise ArtifactError(
            f"{path}: {one.name} is a {one.type}, and only tensors can be served: export it with"
            " tensors (skl2onnx: zipmap off)"
        )
    shape = tuple(size if isinstance(size, int) and size >= 0 else ANY for size in one.shape)
    return TensorSpec(name=one.name, datatype=datatype, shape=shape)


def _line(cause: Exception) -> str:
    return " ".join(str(cause).split())[:300]
