"""The numbers in a GGUF file's head that say how much memory its model will take.

The format: https://github.com/ggml-org/ggml/blob/master/docs/gguf.md
"""

import mmap
import struct
from dataclasses import dataclass
from pathlib import Path
from typing import Any

_TEXT, _LIST = 8, 9
_FORMS = ("B", "b", "H", "h", "I", "i", "f", "?", "", "", "Q", "q", "d")
_TOKENS = "tokenizer.ggml.tokens"
_MAX_ENTRIES = 100_000
_FALLBACK_VOCABULARY = 32_000


@dataclass(frozen=True, slots=True)
class GgufShape:
    """A transformer's shape: `kv_width` is how many numbers a token leaves in a layer's cache."""

    layers: int
    kv_width: int
    embedding: int
    vocabulary: int


def gguf_shape(path: Path) -> GgufShape | None:
    """The shape that a file's head tells; nothing where it can't be read or tells none."""
    try:
        with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as view:
            return _shape(_Head(view).numbers())
    except (OSError, ValueError, struct.error, IndexError, OverflowError):
        return None


def _shape(known: dict[str, int]) -> GgufShape | None:
    def of(name: str, default: int = 0) -> int:
        return next((value for key, value in known.items() if key.endswith(name)), default)

    layers, embedding = of(".block_count"), of(".embedding_length")
    heads = of(".attention.head_count")
    if not (layers and embedding and heads):
        return None
    kv_heads = of(".attention.head_count_kv", heads)
    key = of(".attention.key_length", embedding // heads)
    value = of(".attention.value_length", embedding // heads)
    vocabulary = known.get(_TOKENS, 0) or of(".vocab_size", _FALLBACK_VOCABULARY)
    return GgufShape(layers, kv_heads * (key + value), embedding, vocabulary)


class _Head:
    """Reads whole numbers, and the lengths of lists, in their order; never beyond the end."""

    def __init__(self, view: mmap.mmap) -> None:
        self._view = view
        self._at = 0

    def numbers(self) -> dict[str, int]:
        if self._take(4) != b"GGUF":
            raise ValueError("it doesn't begin with GGUF")
        self._number("I")
        self._number("Q")
        found: dict[str, int] = {}
        for _ in range(min(self._number("Q"), _MAX_ENTRIES)):
            name = self._take(self._number("Q")).decode("utf-8", "replace")
            value = self._value(self._number("I"))
            if isinstance(value, int):
                found[name] = value
            # What follows are long lists of texts; the shape stands before them.
            if name == _TOKENS and _shape(found):
                break
        return found

    def _value(self, kind: int) -> Any:
        if kind == _TEXT:
            self._take(self._number("Q"))
            return None
        if kind != _LIST:
            return self._number(_FORMS[kind])
        kind, count = self._number("I"), self._number("Q")
        if kind == _TEXT:
            for _ in range(count):
                self._take(self._number("Q"))
            return count
        return self._numbers(kind, count)

    def _numbers(self, kind: int, count: int) -> int:
        """The largest, where a list has a number for each layer; else how many."""
        start = self._at
        self._skip(count * struct.calcsize(_FORMS[kind]))
        if 0 < count <= _MOST_LAYERS and _FORMS[kind] in "BbHhIiQq":
            return int(max(struct.unpack(f"<{count}{_FORMS[kind]}", self._view[start : self._at])))
        return count

    def _number(self, form: str) -> Any:
        form = f"<{form}"
        return struct.unpack(form, self._take(struct.calcsize(form)))[0]

    def _take(self, size: int) -> bytes:
        start = self._at
        self._skip(size)
        return self._view[start : self._at]

    def _skip(self, size: int) -> None:
        if self._at + size > len(self._view):
            raise ValueError("it is cut off")
        self._at += size


_MOST_LAYERS = 1024
