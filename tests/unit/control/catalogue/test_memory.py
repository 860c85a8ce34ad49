"""Estimates of memory: from a head that tells the shape, and from sizes where none does."""

import struct
from pathlib import Path

from tiffin.config.models import GGUF, EchoModel, File, LlamacppModel, OnnxModel
from tiffin.control.catalogue.gguf_shape import GgufShape, gguf_shape
from tiffin.control.catalogue.memory import MIB, estimate

DIGEST = "0" * 64


def text(value: str) -> bytes:
    return struct.pack("<Q", len(value)) + value.encode()


def number(key: str, value: int) -> bytes:
    return text(f"llama.{key}") + struct.pack("<II", 4, value)


def gguf(path: Path, *, heads: bytes = b"", size: int = 4096) -> Path:
    entries = [
        text("general.architecture") + struct.pack("<I", 8) + text("llama"),
        number("block_count", 4),
        number("embedding_length", 64),
        number("attention.head_count", 8),
        heads or number("attention.head_count_kv", 2),
        text("tokenizer.ggml.tokens") + struct.pack("<IIQ", 9, 8, 3) + text("a") * 3,
    ]
    head = b"GGUF" + struct.pack("<IQQ", 3, 0, len(entries)) + b"".join(entries)
    path.write_bytes(head.ljust(size, b"\0"))
    return path


def llama(**more: int) -> LlamacppModel:
    return LlamacppModel(sources=["file:x"], sha256=DIGEST, **more)  # type: ignore[arg-type]


def test_the_shape_is_read_from_the_head(tmp_path: Path) -> None:
    shape = gguf_shape(gguf(tmp_path / "m.gguf"))
    assert shape == GgufShape(layers=4, kv_width=2 * 16, embedding=64, vocabulary=3)


def test_where_layers_differ_the_widest_counts(tmp_path: Path) -> None:
    each = text("llama.attention.head_count_kv") + struct.pack("<IIQIIII", 9, 4, 4, 1, 2, 4, 2)
    shape = gguf_shape(gguf(tmp_path / "m.gguf", heads=each))
    assert shape is not None
    assert shape.kv_width == 4 * 16


def test_what_isnt_gguf_or_is_cut_off_has_no_shape(tmp_path: Path) -> None:
    whole = gguf(tmp_path / "m.gguf").read_bytes()
    for content in (b"", b"PK\x03\x04" + whole, whole[:60]):
        (tmp_path / "bad").write_bytes(content)
        assert gguf_shape(tmp_path / "bad") is None
    assert gguf_shape(tmp_path / "absent") is None


def test_a_language_model_needs_more_with_more_context_and_slots(tmp_path: Path) -> None:
    files = {GGUF: gguf(tmp_path / "m.gguf")}
    small, wide = llama(context=1024, slots=1), llama(context=1024, slots=4)
    remembered = 1024 * 4 * 32 * 2
    assert estimate(wide, files) - estimate(small, files) == 3 * remembered
    assert estimate(small, files) > 4096 + remembered


def test_other_models_by_the_size_of_their_files(tmp_path: Path) -> None:
    path = tmp_path / "model.onnx"
    path.write_bytes(bytes(MIB))
    of_file = {}
    for parallel in (False, True):  # with a second session the weights are there twice
        files = {"model.onnx": File(sources=["file:x"], sha256=DIGEST)}
        model = OnnxModel(files=files, threads=2, parallel_runs=parallel)
        with_file = estimate(model, {"model.onnx": path})
        of_file[parallel] = with_file - estimate(model, {"model.onnx": tmp_path / "gone"})
    assert MIB < of_file[False] < 3 * MIB
    assert abs(of_file[True] - 2 * of_file[False]) <= 2


def test_what_the_section_says_counts_alone(tmp_path: Path) -> None:
    assert estimate(EchoModel(memory_mb=7), {"x": tmp_path}) == 7 * MIB
    assert estimate(EchoModel(), {}) > 0
