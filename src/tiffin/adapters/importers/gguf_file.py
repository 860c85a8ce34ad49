"""GGUF files: the head is read and checked against the file's size, nothing is converted.

The format: github.com/ggml-org/ggml, docs/gguf.md.
"""

import struct
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, BinaryIO

from tiffin.adapters.importers.order import Imported, Order
from tiffin.config.models import GGUF
from tiffin.errors import ArtifactError

CONTEXT = 4096
MAX_ENTRIES = 1_000_000
MAX_TEXT_BYTES = 16 << 20

_NUMBERS: Mapping[int, str] = MappingProxyType(
    {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"}
)
_TEXT, _LIST = 8, 9
_ENCODERS = ("bert", "nomic-bert", "jina-bert-v2", "t5encoder", "clip", "whisper")


def bring(order: Order) -> Imported:
    """The file as it is, with what its head says; raises `ArtifactError`."""
    try:
        with order.path.open("rb") as file:
            head = _Head(file)
            known, tensors, last = head.entries(), head.tensors, head.last_offset()
            alignment = int(known.get("general.alignment", 32))
            start = -(-file.tell() // alignment) * alignment
    except (OSError, struct.error, UnicodeDecodeError, OverflowError, MemoryError) as cause:
        raise ArtifactError(f"{order.path} is no whole GGUF file: {cause}") from cause
    if tensors == 0 or start + last >= order.path.stat().st_size:
        raise ArtifactError(
            f"{order.path} has {order.path.stat().st_size} bytes and its tensors begin behind its"
            " end: it was cut off"
        )
    if int(known.get("split.count", 1)) > 1:
        raise ArtifactError(
            f"{order.path} is one part of several: join them with llama-gguf-split --merge"
        )
    family = str(known.get("general.architecture", ""))
    if not family or family in _ENCODERS:
        raise ArtifactError(
            f"{order.path} holds a {family or 'model without an architecture'}, and GGUF files are"
            " served as language models alone"
        )
    longest = int(known.get(f"{family}.context_length", CONTEXT))
    template = str(known.get("tokenizer.chat_template", ""))
    name = known.get("general.name") or order.path.stem
    notes = [f"its head tells of {tensors} tensors and {longest} tokens of context"]
    if not template:
        notes.append(
            "it has no chat template of its own: chats get the engine's, which may not fit"
        )
    return Imported(
        runtime="llamacpp",
        what=f"{name} ({family}, GGUF)",
        files={GGUF: order.path},
        settings={"context": min(CONTEXT, longest), "tools": "tools" in template},
        notes=tuple(notes),
    )


class _Head:
    """A reader of one file's head, in order: magic, entries, tensors."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        magic, version, self.tensors, self._entries = self._numbers("4sIQQ")
        if magic != b"GGUF" or not 2 <= version <= 3:
            raise ArtifactError(
                f"it is no GGUF file of version 2 or 3 (found {magic!r}, {version})"
            )
        if max(self.tensors, self._entries) > MAX_ENTRIES:
            raise ArtifactError("its head tells of more than a million parts: it is damaged")

    def entries(self) -> dict[str, Any]:
        """Every entry; long lists are read over and left out."""
        found = {}
        for _ in range(self._entries):
            key = self._text()
            [kind] = self._numbers("I")
            found[key] = self._value(kind)
        return found

    def last_offset(self) -> int:
        """Where the last tensor begins, counted from the first."""
        last = 0
        for _ in range(self.tensors):
            self._text()
            [dimensions] = self._numbers("I")
            *_, offset = self._numbers(f"{min(dimensions, 8)}QIQ")
            last = max(last, offset)
        return last

    def _value(self, kind: int) -> Any:
        if kind == _TEXT:
            return self._text()
        if kind != _LIST:
            return self._numbers(self._letter(kind))[0]
        inner, count = self._numbers("IQ")
        if count > 64 * MAX_ENTRIES:
            raise ArtifactError("its head has a list of impossible length: it is damaged")
        if inner == _TEXT:
            for _ in range(count):
                self._text()
        else:
            self._file.seek(struct.calcsize("<" + self._letter(inner)) * count, 1)
        return None

    def _letter(self, kind: int) -> str:
        if kind not in _NUMBERS:
            raise ArtifactError(f"its head has a value of the unknown kind {kind}: it is damaged")
        return _NUMBERS[kind]

    def _text(self) -> str:
        [length] = self._numbers("Q")
        if length > MAX_TEXT_BYTES:
            raise ArtifactError("its head has a text of impossible length: it is damaged")
        text = self._file.read(length)
        if len(text) < length:
            raise ArtifactError("it ends inside its head: it was cut off")
        return text.decode("utf-8", "replace")

    def _numbers(self, letters: str) -> tuple[Any, ...]:
        size = struct.calcsize("<" + letters)
        return struct.unpack("<" + letters, self._file.read(size))
