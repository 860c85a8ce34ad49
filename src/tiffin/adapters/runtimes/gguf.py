"""What a GGUF file says about its vocabulary that the engine doesn't tell.

The format: https://github.com/ggml-org/ggml/blob/master/docs/gguf.md
"""

import mmap
import struct
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tiffin.errors import LoadFailed

_MAGIC = b"GGUF"
_VERSIONS = (2, 3)
_NUMBERS = "BbHhIif?"
_TEXT, _ARRAY = 8, 9
_WIDE = {10: "Q", 11: "q", 12: "d"}
_UNKNOWN, _CONTROL = 2, 3


@dataclass(slots=True, frozen=True)
class Vocabulary:
    """A model's tokens: how many, the longest in bytes, and the texts that steer the model.

    `chat` is whether the file brings a chat template.
    """

    size: int
    longest: int
    control: frozenset[str]
    chat: bool


def read_vocabulary(path: str) -> Vocabulary:
    """The vocabulary of a file; raises `LoadFailed` where it isn't GGUF or is cut off."""
    found = read_fields(path)
    tokens: list[bytes] = found.get("tokenizer.ggml.tokens", [])
    kinds = found.get("tokenizer.ggml.token_type", ())
    steering = [text for text, kind in zip(tokens, kinds, strict=False) if _steers(kind)]
    return Vocabulary(
        size=len(tokens),
        longest=max(map(len, tokens), default=1) or 1,
        control=frozenset(text.decode("utf-8", "replace") for text in steering if text),
        chat="tokenizer.chat_template" in found,
    )


def read_tensors(path: str) -> frozenset[str]:
    """The names of a file's tensors; raises `LoadFailed` as `read_fields` does."""
    with _opened(path) as reader:
        count, fields = _counts(reader)
        for _ in _fields(reader, fields):
            pass
        return frozenset(_tensor(reader) for _ in range(count))


def read_fields(path: str) -> dict[str, Any]:
    """All that the file's head says; raises `LoadFailed` where it isn't GGUF or is cut off."""
    with _opened(path) as reader:
        _, fields = _counts(reader)
        return dict(_fields(reader, fields))


@contextmanager
def _opened(path: str) -> Iterator["_Reader"]:
    try:
        with (
            Path(path).open("rb") as file,
            mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as view,
        ):
            yield _Reader(view)
    except (OSError, ValueError, struct.error) as error:
        raise LoadFailed(f"the model's file can't be read as GGUF: {error}") from error


def _steers(kind: int) -> bool:
    return kind in (_UNKNOWN, _CONTROL)


def _counts(reader: "_Reader") -> tuple[int, int]:
    """How many tensors there are, and how many fields."""
    if reader.take(4) != _MAGIC:
        raise ValueError("it doesn't begin with GGUF")
    if (version := reader.number("I")) not in _VERSIONS:
        raise ValueError(f"its version is {version}")
    return reader.number("Q"), reader.number("Q")


def _tensor(reader: "_Reader") -> str:
    name = reader.text().decode("utf-8", "replace")
    dimensions = reader.number("I")
    reader.take(8 * dimensions + struct.calcsize("<IQ"))  # its shape, type and place
    return name


def _fields(reader: "_Reader", count: int) -> Iterator[tuple[str, Any]]:
    for _ in range(count):
        name = reader.text().decode("utf-8", "replace")
        yield name, reader.value(reader.number("I"))


class _Reader:
    """Reads one value after another and never beyond the end."""

    def __init__(self, view: mmap.mmap) -> None:
        self._view = view
        self._at = 0

    def take(self, size: int) -> bytes:
        end = self._at + size
        if end > len(self._view):
            raise ValueError("it is cut off")
        data = self._view[self._at : end]
        self._at = end
        return data

    def number(self, form: str) -> Any:
        form = f"<{form}"
        return struct.unpack(form, self.take(struct.calcsize(form)))[0]

    def text(self) -> bytes:
        return self.take(self.number("Q"))

    def value(self, kind: int) -> Any:
        if kind == _TEXT:
            return self.text()
        if kind != _ARRAY:
            return self.number(_form(kind))
        kind, count = self.number("I"), self.number("Q")
        if kind == _TEXT:
            return [self.text() for _ in range(count)]
        form = _form(kind)
        return struct.unpack(f"<{count}{form}", self.take(count * struct.calcsize(f"<{form}")))


def _form(kind: int) -> str:
    form = _NUMBERS[kind] if kind < len(_NUMBERS) else _WIDE.get(kind)
    if form is None:
        raise ValueError(f"it has a value of unknown type {kind}")
    return form
