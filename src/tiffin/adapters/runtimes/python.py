"""Your own class as a model, in this process; satisfies `ports.tensor_runtime.TensorRuntime`.

The code does whatever it likes with the rights of this process, so it has to be declared trusted.
What it raises stays in the log: a client learns that it failed. It runs on one thread of its own,
never on the event loop.
"""

import asyncio
import importlib.util
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.machinery import SourceFileLoader
from pathlib import Path
from types import ModuleType
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from tiffin.adapters.runtimes.named_files import NamedFiles
from tiffin.dialects.oip.arrays import DTYPES, from_bf16, to_bf16
from tiffin.errors import InvalidRequest, LoadFailed, RunFailed
from tiffin.ports.tensor_runtime import Run
from tiffin.telemetry import log
from tiffin.types.tensors import ANY, DATATYPE_BYTES, Signature, TensorSpec

Arrays = Mapping[str, NDArray[Any]]

MODULE: Final = "tiffin_served_model"
EXAMPLE: Final = "example"


@dataclass(frozen=True, slots=True)
class Code:
    """Which file holds the class, what the class is called, whether the operator trusts it."""

    file: str = "model.py"
    class_name: str = "Model"
    trusted: bool = False


class PythonRuntime:
    """One object of the class; `beside` is where its files are laid out by name."""

    lanes = 1
    wide: Run | None = None
    inline = False

    def __init__(self, files: Mapping[str, Path], code: Code, beside: Path) -> None:
        self.example: Arrays | None = None
        self._files = files
        self._code = code
        self._beside = beside
        self._named: NamedFiles | None = None
        self._model: Any = None
        self._inputs: dict[str, TensorSpec] = {}
        self._outputs: dict[str, TensorSpec] = {}

    async def load(self) -> Signature:
        """Run the code, make the object and let it load; raises `LoadFailed`."""
        if not self._code.trusted:
            raise LoadFailed(
                "a Python model runs its code with the server's rights: "
                "say `trusted = true` in its section if that is what you want"
            )
        return await asyncio.to_thread(self._load)

    def run(self, inputs: Arrays, outputs: Sequence[str]) -> Arrays:
        """The named outputs of one batch; blocks."""
        given = {name: self._own(name, array) for name, array in inputs.items()}
        try:
            told = self._model.predict(given)
            if not isinstance(told, Mapping):
                raise RunFailed(f"predict returned {type(told).__name__}, not a dict of arrays")
            return {name: self._checked(name, told) for name in outputs}
        except (InvalidRequest, RunFailed) as error:
            told_as = InvalidRequest if isinstance(error, InvalidRequest) else RunFailed
            raise told_as(_words(error.message)) from error
        except BaseException as error:  # what isn't an Exception would end the thread, not the run
            log.error("the model's code failed", exc_info=True)
            raise RunFailed(
                f"the model's code raised {_kind(error)}; the server's log says where"
            ) from error

    async def close(self) -> None:
        """Let go of the object and its files; idempotent."""
        self._model = None
        if self._named is not None:
            self._named.close()
            folder = str(self._named.folder)
            sys.path[:] = [path for path in sys.path if path != folder]
        sys.modules.pop(MODULE, None)

    def _load(self) -> Signature:
        code = self._code
        if code.file not in self._files:
            raise LoadFailed(
                f"the code is to be in '{code.file}', and the files are: {', '.join(self._files)}"
            )
        self._named = named = NamedFiles(self._files, self._beside)
        sys.path.insert(0, str(named.folder))
        try:
            made = getattr(_imported(named.paths[code.file]), code.class_name, None)
            if not isinstance(made, type):
                raise LoadFailed(f"{code.file} has no class '{code.class_name}'")
            self._model = made()
            if hasattr(made, "load"):
                self._model.load(dict(named.paths))
            return self._signature()
        except LoadFailed:
            raise
        except BaseException as error:
            log.error("the model's code failed while it loaded", exc_info=True)
            raise LoadFailed(
                f"the model's code failed while it loaded: {_kind(error)}; the log says where"
            ) from error

    def _signature(self) -> Signature:
        model = self._model
        if not callable(getattr(model, "predict", None)):
            raise LoadFailed(f"the class '{self._code.class_name}' has no method 'predict'")
        inputs, outputs = _specs(model, "inputs"), _specs(model, "outputs")
        self._inputs = {spec.name: spec for spec in inputs}
        self._outputs = {spec.name: spec for spec in outputs}
        batched = bool(getattr(model, "batched", True))
        for spec in (*inputs, *outputs) if batched else ():
            if not spec.shape or spec.shape[0] != ANY:
                raise LoadFailed(
                    f"'{spec.name}' has the shape {list(spec.shape)}: its first dimension must be"
                    f" -1, the rows of a batch; say `batched = False` in the class if it has none"
                )
        self.example = self._example(getattr(model, EXAMPLE, None))
        return Signature(inputs=inputs, outputs=outputs, batched=batched)

    def _example(self, told: Mapping[str, Any] | None) -> Arrays | None:
        if told is None:
            return None
        if set(told) != set(self._inputs):
            raise LoadFailed(f"the class's `example` needs: {', '.join(self._inputs)}")
        try:
            return {
                name: self._array(f"'{name}' of the example", spec, told[name])
                for name, spec in self._inputs.items()
            }
        except RunFailed as error:
            raise LoadFailed(error.message) from None

    def _own(self, name: str, array: NDArray[Any]) -> NDArray[Any]:
        """An input as the code may use it: its own to change, BF16 as numbers."""
        if self._inputs[name].datatype == "BF16":
            return from_bf16(array)
        return array if array.flags.writeable else array.copy()

    def _checked(self, name: str, told: Mapping[str, Any]) -> NDArray[Any]:
        if name not in told:
            raise RunFailed(f"predict returned no '{name}'; it returned: {', '.join(told)}")
        return self._array(f"output '{name}'", self._outputs[name], told[name])

    def _array(self, what: str, spec: TensorSpec, value: Any) -> NDArray[Any]:
        """What the code gave as the array that it declared; raises `RunFailed`."""
        try:
            array = np.asarray(value)
        except ValueError as error:
            raise RunFailed(f"{what} isn't an array: {error}") from error
        if not _fits(array.shape, spec.shape):
            raise RunFailed(
                f"{what} has the shape {list(array.shape)}; declared is {list(spec.shape)}"
            )
        if spec.datatype == "BYTES":
            return _texts(what, array)
        if spec.datatype == "BF16" and array.dtype.kind in "fiu":
            return to_bf16(array)
        wanted = DTYPES[spec.datatype]
        if array.dtype == wanted:
            return np.array(array, order="C")  # a copy: the code may use its buffer again
        # Numbers become floats as they do everywhere; whole numbers must fit.
        floats = wanted.kind == "f" and array.dtype.kind in "fiub"
        if not (floats or np.can_cast(array.dtype, wanted)):
            raise RunFailed(f"{what} is {array.dtype}; declared is {spec.datatype}")
        with np.errstate(over="ignore"):
            return np.array(array, wanted, order="C")


def _imported(path: Path) -> ModuleType:
    spec = importlib.util.spec_from_loader(MODULE, SourceFileLoader(MODULE, str(path)))
    if spec is None or spec.loader is None:
        raise LoadFailed(f"{path.name} can't be imported")
    module = importlib.util.module_from_spec(spec)
    sys.modules[MODULE] = module  # dataclasses and pickle look there
    spec.loader.exec_module(module)
    return module


def _specs(model: Any, attribute: str) -> tuple[TensorSpec, ...]:
    told = getattr(model, attribute, None)
    try:
        specs = tuple(
            TensorSpec(name=str(name), datatype=datatype, shape=tuple(int(size) for size in shape))
            for name, datatype, shape in told or ()
        )
    except (TypeError, ValueError):
        specs = ()
    if not specs or not all(spec.datatype in DATATYPE_BYTES for spec in specs):
        raise LoadFailed(
            f"the class needs `{attribute}`, a list of (name, datatype, shape) such as"
            f' ("x", "FP32", [-1, 4]), with the datatypes {", ".join(DATATYPE_BYTES)}'
        )
    return specs


def _fits(given: tuple[int, ...], declared: tuple[int, ...]) -> bool:
    return len(given) == len(declared) and all(
        wanted in (ANY, size) for size, wanted in zip(given, declared, strict=True)
    )


def _kind(error: BaseException) -> str:
    """What was raised, by its type alone: its text may hold what isn't the client's to know."""
    return _words(type(error).__name__, at_most=80)


def _words(told: object, *, at_most: int = 2_000) -> str:
    """Something of the code's as text that every answer can carry."""
    return str(told)[:at_most].encode("utf-8", "replace").decode()


def _texts(what: str, array: NDArray[Any]) -> NDArray[Any]:
    items = np.empty(array.size, object)
    for number, value in enumerate(array.ravel().tolist()):
        if not isinstance(value, str | bytes):
            raise RunFailed(f"{what} holds {type(value).__name__}; BYTES are str or bytes")
        items[number] = value.encode() if isinstance(value, str) else value
    return items.reshape(array.shape)
