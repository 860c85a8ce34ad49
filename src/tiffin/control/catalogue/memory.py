"""How much memory a replica is thought to take, before it has ever run."""

import functools
from collections.abc import Mapping
from pathlib import Path

from tiffin.config.models import (
    GGUF,
    EchoModel,
    LaunchedModel,
    LlamacppModel,
    LocalModel,
    OnnxModel,
    PipelineModel,
    PythonModel,
    RulesModel,
    WhisperModel,
)
from tiffin.control.catalogue.gguf_shape import GgufShape, gguf_shape

MIB = 1 << 20

# A process with its libraries and nothing loaded, as measured with each runtime.
_PROCESS_MIB = {
    LlamacppModel: 90,
    OnnxModel: 110,
    PythonModel: 120,
    PipelineModel: 110,
    WhisperModel: 180,
    LaunchedModel: 120,
    RulesModel: 60,
    EchoModel: 60,
}
_CACHE_BYTES = 2  # of each number that the engine remembers, as float16
_COMPUTED_AT_ONCE = 256
_NUMBER_BYTES = 4
_WIDTHS = 24  # numbers of the embedding's width that are alive for each token in work
# onnxruntime keeps weights, a copy in the layout that it computes in, and an arena that grows with
# the batch.
_ONNX_FACTOR = 1.6
_ONNX_ARENA_MIB = 64
_PYTHON_FACTOR = 2.0
_WHISPER_FACTOR = 1.4
_OTHER_FACTOR = 1.2


def estimate(model: LocalModel, files: Mapping[str, Path]) -> int:
    """Bytes for one replica of `model`, whose files are here: what its section says, or a guess.

    A file that has gone counts for nothing.
    """
    if model.memory_mb:
        return model.memory_mb * MIB
    sizes = sum(map(_size, files.values()))
    around = _PROCESS_MIB.get(type(model), 100) * MIB
    match model:
        case LlamacppModel():
            return around + sizes + _engine(model, files.get(GGUF), sizes)
        case OnnxModel():
            sessions = 2 if model.parallel_runs and model.threads != 1 else 1
            return around + sessions * (_ONNX_ARENA_MIB * MIB + int(sizes * _ONNX_FACTOR))
        case PythonModel():
            return around + int(sizes * _PYTHON_FACTOR)
        case WhisperModel():
            return around + int(sizes * _WHISPER_FACTOR)
    return around + int(sizes * _OTHER_FACTOR)


def _engine(model: LlamacppModel, file: Path | None, size: int) -> int:
    """What llama.cpp needs beside the mapped file: remembered tokens, and room to compute in."""
    shape = _shape(file, size) if file else None
    if shape is None:
        return size // 4
    tokens = model.context * model.slots
    cache = tokens * shape.layers * shape.kv_width * _CACHE_BYTES
    widths = shape.vocabulary + _WIDTHS * shape.embedding
    at_once = _COMPUTED_AT_ONCE if model.task == "generate" else model.context
    return cache + min(tokens, at_once) * widths * _NUMBER_BYTES


@functools.lru_cache(maxsize=64)
def _shape(path: Path, size: int) -> GgufShape | None:
    """Kept by size too: another file may come to lie there."""
    del size
    return gguf_shape(path)


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError:
        return 0
