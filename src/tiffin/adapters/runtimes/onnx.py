"""An ONNX graph run by onnxruntime in this process; satisfies `ports.tensor_runtime.TensorRuntime`.

Threads don't spin while they wait: spinning collapses beside busy neighbours.
"""

import asyncio
import ctypes
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from tiffin.adapters.runtimes.named_files import NamedFiles
from tiffin.adapters.runtimes.quantized import scales_by_batch
from tiffin.dialects.onnx_file import DATATYPES, with_best
from tiffin.errors import InvalidRequest, LoadFailed, RunFailed, SchemaViolation
from tiffin.ports.tensor_runtime import Run
from tiffin.telemetry import log
from tiffin.types.tensors import ANY, Signature, TensorSpec

Arrays = Mapping[str, NDArray[Any]]

CPU: Final = "CPUExecutionProvider"
PROVIDERS: Final = {
    "cpu": CPU,
    "cuda": "CUDAExecutionProvider",
    "tensorrt": "TensorrtExecutionProvider",
    "openvino": "OpenVINOExecutionProvider",
    "rocm": "ROCMExecutionProvider",
    "coreml": "CoreMLExecutionProvider",
    "directml": "DmlExecutionProvider",
}
"""Short names of execution providers; onnxruntime's own names do as well."""

BFLOAT16: Final = 16  # in onnx.TensorProto
MAX_REASON: Final = 300
ERRORS_ONLY: Final = 3


@dataclass(frozen=True, slots=True)
class Placement:
    """What runs a graph: threads (at least 1), and providers in the order they are tried.

    With `parts`, on processors, as many runs go on at once as there are threads.
    """

    threads: int = 1
    providers: Sequence[str] = ("cpu",)
    parts: bool = False


@dataclass(slots=True)
class _Special:
    """Inputs and outputs that need turning: text, and what numpy has no type for."""

    texts_in: list[str] = field(default_factory=list)
    texts_out: set[str] = field(default_factory=set)
    bf16: set[str] = field(default_factory=set)


class OnnxRuntime:
    """The file called `graph`; `beside` is where files are laid out by name.

    `best_of` names an output of which `classes` and `confidence` are given too. A session with one
    thread takes as many runs at once as there are lanes; a second one has all threads for one run.
    """

    example: Arrays | None = None

    def __init__(
        self,
        files: Mapping[str, Path],
        graph: str,
        placement: Placement,
        beside: Path,
        best_of: str = "",
    ) -> None:
        self.inline = False
        self.lanes = 1
        self.wide: Run | None = None
        self._files = files
        self._graph = graph
        self._placement = placement
        self._beside = beside
        self._best_of = best_of
        self._named: NamedFiles | None = None
        self._special = _Special()
        self._session: Any = None
        self._wide: Any = None

    async def load(self) -> Signature:
        """Read the graph; raises `LoadFailed`."""
        return await asyncio.to_thread(self._load)

    def run(self, inputs: Arrays, outputs: Sequence[str]) -> Arrays:
        """The named outputs of one batch; blocks."""
        return self._run(self._session, inputs, outputs)

    def _run_wide(self, inputs: Arrays, outputs: Sequence[str]) -> Arrays:
        return self._run(self._wide, inputs, outputs)

    def _run(self, session: Any, inputs: Arrays, outputs: Sequence[str]) -> Arrays:
        if session is None:
            raise RunFailed("the model isn't loaded")
        special = self._special
        if special.texts_in:
            inputs = {**inputs, **{n: _text(n, inputs[n]) for n in special.texts_in if n in inputs}}
        try:
            if special.bf16:
                return self._run_bits(session, inputs, outputs)
            given = session.run(outputs, inputs)
        except Exception as error:
            raise _failure(error) from error
        told = dict(zip(outputs, given, strict=True))
        for name in special.texts_out.intersection(told):
            told[name] = _bytes(told[name])
        return told

    async def close(self) -> None:
        """Drop the session; idempotent."""
        self._session = self._wide = None
        if self._named is not None:
            self._named.close()

    def _load(self) -> Signature:
        import onnxruntime  # type: ignore[import-untyped]

        if self._graph not in self._files:
            raise LoadFailed(
                f"the graph is to be '{self._graph}', and the files are: {', '.join(self._files)}"
            )
        names = chosen(self._placement.providers, onnxruntime.get_available_providers())
        path = self._files[self._graph]
        if len(self._files) > 1:  # weights beside the graph are found by their names
            self._named = NamedFiles(self._files, self._beside)
            path = self._named.paths[self._graph]
        graph = with_best(path.read_bytes(), self._best_of) if self._best_of else str(path)
        threads = max(1, self._placement.threads)
        parts = self._placement.parts and names[0] == CPU and threads > 1

        def opened(threads: int) -> Any:
            options = self._options(onnxruntime, threads)
            return onnxruntime.InferenceSession(graph, options, providers=names)

        try:
            session = opened(1 if parts else threads)
            if parts:
                self._wide = opened(threads)
        except Exception as error:
            told = reason(error).replace(str(path), self._graph)
            raise LoadFailed(f"onnxruntime can't load the graph: {told}") from error
        used = session.get_providers()
        if names[0] not in used:
            raise LoadFailed(f"{names[0]} didn't start on this machine; onnxruntime has: {used}")
        self.inline = names[0] == CPU
        self._session = session
        if parts:
            self.lanes, self.wide = threads, self._run_wide
        log.info("the graph is loaded", providers=used, threads=threads, lanes=self.lanes)
        return self._signature(session, alone=scales_by_batch(path))

    def _options(self, onnxruntime: Any, threads: int) -> Any:
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = threads
        options.inter_op_num_threads = 1
        options.execution_mode = onnxruntime.ExecutionMode.ORT_SEQUENTIAL
        options.enable_cpu_mem_arena = True
        options.log_severity_level = ERRORS_ONLY
        options.add_session_config_entry("session.intra_op.allow_spinning", "0")
        return options

    def _signature(self, session: Any, *, alone: bool) -> Signature:
        """What the graph takes and gives; `alone` where its rows depend on their neighbours."""
        taken, given = session.get_inputs(), session.get_outputs()
        inputs = tuple(_spec("input", arg) for arg in taken)
        outputs = tuple(_spec("output", arg) for arg in given)
        self._special = _Special(
            [spec.name for spec in inputs if spec.datatype == "BYTES"],
            {spec.name for spec in outputs if spec.datatype == "BYTES"},
            {spec.name for spec in (*inputs, *outputs) if spec.datatype == "BF16"},
        )
        rows = not alone and batched(taken, given)
        return Signature(inputs=inputs, outputs=outputs, batched=rows)

    def _run_bits(
        self,
        session: Any,
        inputs: Arrays,
        outputs: Sequence[str],
    ) -> Arrays:
        """A run with tensors that numpy has no type for: their bits go in and out."""
        from onnxruntime import OrtValue

        bits = self._special.bf16
        feed = {
            name: OrtValue.ortvalue_from_numpy_with_onnx_type(array, BFLOAT16)
            if name in bits
            else OrtValue.ortvalue_from_numpy(array)
            for name, array in inputs.items()
        }
        told: dict[str, NDArray[Any]] = {}
        values = session.run_with_ort_values(outputs, feed)
        for name, value in zip(outputs, values, strict=True):
            if name in bits:
                raw = ctypes.string_at(value.data_ptr(), value.tensor_size_in_bytes())
                told[name] = np.frombuffer(raw, np.uint16).reshape(value.shape())
            else:
                array = value.numpy()
                told[name] = _bytes(array) if name in self._special.texts_out else array
        return told


def chosen(wanted: Sequence[str], present: Sequence[str]) -> list[str]:
    """The wanted providers that are present, by onnxruntime's names; raises `LoadFailed`."""
    names = [PROVIDERS.get(name.lower(), name) for name in wanted]
    found = [name for name in names if name in present]
    if not found:
        short = {name: short for short, name in PROVIDERS.items()}
        here = ", ".join(short.get(name, name) for name in present)
        raise LoadFailed(
            f"none of the providers {', '.join(wanted)} is in this onnxruntime; it has: {here}"
        )
    return found


def batched(taken: Sequence[Any], given: Sequence[Any]) -> bool:
    """Whether the first dimension of everything may have any size, and is the same for inputs."""
    first = [arg.shape[0] if arg.shape else 0 for arg in taken]
    if not first or any(isinstance(size, int) for size in first):
        return False
    if len({size for size in first if size is not None}) > 1:
        return False
    # An output's shape is often not declared at all; a run shows it.
    return all(not arg.shape or not isinstance(arg.shape[0], int) for arg in given)


def reason(error: Exception) -> str:
    """What the engine says, without its codes and in one line."""
    text = str(error).split(" : ", 3)[-1]
    return " ".join(text.split())[:MAX_REASON] or type(error).__name__


def _spec(what: str, arg: Any) -> TensorSpec:
    datatype = DATATYPES.get(arg.type)
    if datatype is None:
        hint = " (export scikit-learn classifiers with zipmap off)" if "map" in arg.type else ""
        raise LoadFailed(f"{what} '{arg.name}' is {arg.type}, which can't be served{hint}")
    shape = tuple(size if isinstance(size, int) and size >= 0 else ANY for size in arg.shape)
    return TensorSpec(name=arg.name, datatype=datatype, shape=shape)


def _failure(error: Exception) -> InvalidRequest | RunFailed:
    if isinstance(error, InvalidRequest):
        return error
    if type(error).__name__ == "InvalidArgument":
        return SchemaViolation(f"the model refuses these inputs: {reason(error)}", param="inputs")
    return RunFailed(f"onnxruntime failed: {reason(error)}")


def _text(name: str, array: NDArray[Any]) -> NDArray[Any]:
    texts = np.empty(array.size, object)
    try:
        texts[:] = [item.decode() for item in array.ravel()]
    except UnicodeDecodeError:
        raise SchemaViolation(
            f"input '{name}' has bytes that aren't UTF-8", param="inputs"
        ) from None
    return texts.reshape(array.shape)


def _bytes(array: NDArray[Any]) -> NDArray[Any]:
    items = np.empty(array.size, object)
    items[:] = [item.encode() for item in array.ravel()]
    return items.reshape(array.shape)
