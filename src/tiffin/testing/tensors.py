"""A tensor model that does what a test says: it doubles, and holds a batch until it may go."""

import threading
from collections.abc import Mapping, Sequence
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from tiffin.errors import RunFailed
from tiffin.ports.tensor_runtime import Run
from tiffin.types.tensors import ANY, Signature, TensorSpec

Arrays = Mapping[str, NDArray[Any]]

POISON: Final = 666.0
"""A value that makes a whole batch fail."""

DOUBLING: Final = Signature(
    inputs=(TensorSpec(name="x", datatype="FP32", shape=(ANY, ANY)),),
    outputs=(
        TensorSpec(name="y", datatype="FP32", shape=(ANY, ANY)),
        TensorSpec(name="sum", datatype="FP32", shape=(ANY,)),
    ),
    batched=True,
)


class DoublingTensors:
    """`y` is twice `x`, `sum` the sum of a row. `batches` has the inputs of every run so far.

    `widths` has for each how many lanes it took; with `wide`, runs may take all of them.
    While `gate` is clear, runs wait; `began` is set by each of them.
    """

    def __init__(
        self,
        *,
        lanes: int = 1,
        inline: bool = False,
        wide: bool = False,
        signature: Signature = DOUBLING,
    ) -> None:
        self.lanes = lanes
        self.inline = inline
        self.wide: Run | None = self._wide if wide else None
        self.widths: list[int] = []
        self.example: Arrays | None = None
        self.signature = signature
        self.batches: list[NDArray[Any]] = []
        self.gate = threading.Event()
        self.gate.set()
        self.began = threading.Event()
        self.closed = False

    @property
    def rows(self) -> int:
        """How many rows were computed."""
        return sum(len(batch) for batch in self.batches)

    async def load(self) -> Signature:
        """Nothing is to be loaded."""
        return self.signature

    def run(self, inputs: Arrays, outputs: Sequence[str]) -> Arrays:
        """Double; raises `RunFailed` where any value is `POISON`."""
        return self._run(inputs, outputs, 1)

    def _wide(self, inputs: Arrays, outputs: Sequence[str]) -> Arrays:
        return self._run(inputs, outputs, self.lanes)

    def _run(self, inputs: Arrays, outputs: Sequence[str], width: int) -> Arrays:
        x = inputs["x"]
        self.batches.append(x)
        self.widths.append(width)
        self.began.set()
        if not self.gate.wait(timeout=30):
            raise RunFailed("the test never opened the gate")
        if (x == POISON).any():
            raise RunFailed("poison")
        told = {"y": x * 2, "sum": x.sum(axis=1, dtype=np.float32)}
        return {name: told[name] for name in outputs}

    async def close(self) -> None:
        """Note it."""
        self.closed = True
