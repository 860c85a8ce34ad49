"""Functions as steps: plain Python that says what it takes and gives.

    @step(takes={"score": "FP32[-1]"}, gives={"label": "BYTES[-1]"})
    def label(score, *, limit=0.5):
        return {"label": np.array([b"yes" if s >= limit else b"no" for s in score], object)}

Inputs come as keyword arguments, arrays or (many) lists of arrays; a step's `options` too, and
`files`, the pipeline's files by name, where the function has a parameter of that name. It runs in
a worker thread. What is wrong with a request it tells by raising an `InvalidRequest`.
"""

import inspect
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, TypeVar

import numpy as np
from numpy.typing import NDArray

from tiffin.dialects.oip.arrays import DTYPES
from tiffin.errors import LoadFailed, RunFailed, TiffinError
from tiffin.serving.pipeline.edges import EdgeType, agree, edge_type
from tiffin.serving.pipeline.graph import Ends
from tiffin.telemetry import log
from tiffin.types.usage import Usage

Value = NDArray[Any] | list[NDArray[Any]]
F = TypeVar("F", bound=Callable[..., Any])

FILES: Final = "files"
_MARK: Final = "tiffin_step"


@dataclass(frozen=True, slots=True)
class Counted:
    """What a function gives, and what it counted on the way."""

    values: Mapping[str, Any]
    pages: int = 0
    pixels: int = 0


@dataclass(frozen=True, slots=True)
class Declared:
    """What a function says of itself. `example` makes inputs that a warm-up can use."""

    ends: Ends
    example: Callable[[], Mapping[str, NDArray[Any]]] | None = None


def step(
    *,
    takes: Mapping[str, str],
    gives: Mapping[str, str],
    example: Callable[[], Mapping[str, NDArray[Any]]] | None = None,
) -> Callable[[F], F]:
    """Makes a function one that pipelines can have as a step; types are as `FP32[-1,3]*`."""
    ends = Ends(
        {name: edge_type(spelled) for name, spelled in takes.items()},
        {name: edge_type(spelled) for name, spelled in gives.items()},
    )

    def mark(function: F) -> F:
        setattr(function, _MARK, Declared(ends, example))
        return function

    return mark


class Function:
    """A function with its options and files, checked; call it on a worker thread."""

    def __init__(
        self, name: str, function: Any, options: Mapping[str, Any], files: Mapping[str, Path]
    ) -> None:
        declared = getattr(function, _MARK, None)
        if not isinstance(declared, Declared) or not callable(function):
            raise LoadFailed(f"'{name}' isn't a function that is marked with @step")
        self.name = name
        self.ends = declared.ends
        self.example = declared.example
        self._function: Callable[..., Any] = function
        self._settings = dict(options)
        known = inspect.signature(function).parameters
        for option in options:
            if option not in known or option in self.ends.takes or option == FILES:
                raise LoadFailed(f"'{name}' has no option '{option}'")
        if FILES in known:
            self._settings[FILES] = files

    def __call__(self, inputs: Mapping[str, Value]) -> tuple[dict[str, Value], Usage]:
        """Its outputs, and what it took; raises `InvalidRequest` or `RunFailed`."""
        began = time.perf_counter_ns()
        try:
            gave = self._function(**inputs, **self._settings)
        except TiffinError:
            raise
        except BaseException as error:  # noqa: BLE001 - whatever it is, it ends one request
            log.error("a pipeline's function failed", function=self.name, exc_info=True)
            raise RunFailed(f"the function {self.name} failed: {type(error).__name__}") from None
        counted = gave if isinstance(gave, Counted) else Counted(gave)
        values = {
            name: self._checked(name, kind, counted.values)
            for name, kind in self.ends.gives.items()
        }
        took_ns = time.perf_counter_ns() - began
        return values, Usage(prepare_ns=took_ns, pages=counted.pages, pixels=counted.pixels)

    def _checked(self, name: str, kind: EdgeType, values: Any) -> Value:
        if not isinstance(values, Mapping) or name not in values:
            raise RunFailed(f"the function {self.name} didn't give '{name}'")
        value = values[name]
        if not kind.many:
            return self._array(name, kind, value)
        if not isinstance(value, list):
            raise RunFailed(f"the function {self.name} gave one '{name}' instead of many")
        return [self._array(name, kind, item) for item in value]

    def _array(self, name: str, kind: EdgeType, value: Any) -> NDArray[Any]:
        array = np.ascontiguousarray(value)
        if array.dtype != DTYPES[kind.datatype] or not agree(array.shape, kind.shape):
            told = f"{array.dtype} {list(array.shape)}"
            raise RunFailed(f"the function {self.name} gave '{name}' as {told}, not {kind}")
        return array
