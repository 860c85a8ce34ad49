"""Runs a batch so that one bad request never harms another; blocks, on whatever thread it is.

A batch that fails as a whole is halved until what fails stands alone. A request with more rows than
a run may have goes in several runs, and stops between them once nobody waits for it.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tiffin.errors import InvalidRequest, RunFailed, TiffinError
from tiffin.ports.tensor_runtime import TensorRuntime
from tiffin.serving.tensors.waiting import Item
from tiffin.telemetry import log

Arrays = Mapping[str, NDArray[Any]]


@dataclass(slots=True)
class Outcome:
    """What a batch gave: for each request its outputs or its error, in order; and the runs made.

    A request that nobody waited for any more may have neither.
    """

    results: list[Arrays | TiffinError | None] = field(default_factory=list)
    runs: int = 0
    rows: int = 0
    wide: bool = False


class Execution:
    """Runs batches on one runtime. `batched` models get rows of several requests as one."""

    def __init__(self, runtime: TensorRuntime, *, batched: bool, max_rows: int) -> None:
        self._runtime = runtime
        self._batched = batched
        self._max_rows = max_rows

    def __call__(self, items: Sequence[Item], *, wide: bool = False) -> Outcome:
        """Run a batch, `wide` with all lanes' processors; every error is in the outcome."""
        outcome = Outcome(wide=wide)
        self._batch(items, outcome)
        return outcome

    def once(self, inputs: Arrays, names: Sequence[str], rows: int) -> Arrays:
        """One run; raises what went wrong as an error of ours."""
        return self._run(inputs, names, rows, Outcome())

    def _batch(self, items: Sequence[Item], outcome: Outcome) -> None:
        if len(items) == 1:
            outcome.results.append(self._alone(items[0], outcome))
            return
        names = items[0].outputs
        for item in items:
            if item.outputs != names:
                names = tuple(dict.fromkeys(name for item in items for name in item.outputs))
                break
        rows = sum(item.rows for item in items)
        inputs = {
            name: np.concatenate([item.inputs[name] for item in items]) for name in items[0].inputs
        }
        try:
            outputs = self._run(inputs, names, rows, outcome)
        except TiffinError:
            middle = len(items) // 2
            self._batch(items[:middle], outcome)
            self._batch(items[middle:], outcome)
            return
        at = 0
        for item in items:
            end = at + item.rows
            outcome.results.append({name: outputs[name][at:end] for name in item.outputs})
            at = end

    def _alone(self, item: Item, outcome: Outcome) -> Arrays | TiffinError | None:
        try:
            if not self._batched or item.rows <= self._max_rows:
                return self._run(item.inputs, item.outputs, item.rows, outcome)
            parts = []
            for at in range(0, item.rows, self._max_rows):
                if item.left:
                    return None
                end = min(at + self._max_rows, item.rows)
                inputs = {name: array[at:end] for name, array in item.inputs.items()}
                parts.append(self._run(inputs, item.outputs, end - at, outcome))
            return {name: np.concatenate([part[name] for part in parts]) for name in item.outputs}
        except TiffinError as error:
            return error
        except ValueError as error:
            return RunFailed(f"the parts of the model's answer don't fit together: {error}")

    def _run(self, inputs: Arrays, names: Sequence[str], rows: int, outcome: Outcome) -> Arrays:
        """One run of the model, whatever it raises as one of our errors."""
        outcome.runs += 1
        outcome.rows += rows
        try:
            run = self._runtime.wide if outcome.wide else None
            outputs = (run or self._runtime.run)(inputs, names)
        except (InvalidRequest, RunFailed):
            raise
        except MemoryError:
            raise RunFailed("the model ran out of memory") from None
        except Exception as error:
            log.error("the runtime failed unexpectedly", exc_info=True)
            raise RunFailed(f"the model failed: {type(error).__name__}") from error
        if self._batched:
            for name in names:
                given = outputs[name].shape
                if not given or given[0] != rows:
                    raise RunFailed(
                        f"the model gave '{name}' of the shape {list(given)} for {rows} rows"
                    )
        return outputs
