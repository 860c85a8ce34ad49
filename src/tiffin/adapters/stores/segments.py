"""Files of records that outlive their writer's death at any moment (not the machine's).

A file is given its blocks before and is mapped into memory, so that storing costs no system call
and can't fail. A record is a head (two lengths and two checksums), a fact, and content; the head is
stored last, so whoever reads behind the writer sees whole records. Zeros follow the last.
"""

import os
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Final, NamedTuple
from zlib import crc32

from tiffin.telemetry.mapped import Allocate, MappedFile

_LENGTHS: Final = struct.Struct("<II")
_SUMS: Final = struct.Struct("<II")
HEAD_BYTES: Final = _LENGTHS.size + _SUMS.size
# Facts are smaller than that nearly always: one read gets a head and its fact.
_GUESS_BYTES: Final = 1024
MAX_FACT_BYTES: Final = 65_536


class Record(NamedTuple):
    """Where a record begins, what it takes, its fact (empty where that is torn), its content."""

    offset: int
    size: int
    fact: bytes
    content_bytes: int


class SegmentWriter:
    """One file being written; raises `OSError` where there is no room for all of it."""

    def __init__(self, path: Path, size: int, allocate: Allocate = os.posix_fallocate) -> None:
        self.name = path.name
        self.used = 0
        self._file = MappedFile(path, size, allocate)
        self._memory = self._file.memory
        self._size = size

    def store(self, fact: bytes, content: bytes, keep: int) -> Record | None:
        """Append a record where `keep` bytes stay free after it; None where they don't."""
        start = self.used
        middle = start + HEAD_BYTES + len(fact)
        end = middle + len(content)
        if end + keep > self._size:
            return None
        lengths = _LENGTHS.pack(len(fact), len(content))
        self._memory[start + HEAD_BYTES : middle] = fact
        self._memory[middle:end] = content
        self._memory[start : start + HEAD_BYTES] = lengths + _SUMS.pack(crc32(fact), crc32(lengths))
        self.used = end
        return Record(start, end - start, fact, len(content))

    def end(self) -> None:
        """Give back the blocks that weren't used; nothing may be stored after."""
        self._file.end(self.used)


def records(fd: int, offset: int) -> Iterator[Record]:
    """The whole records of a file from an offset on; raises `OSError`."""
    while True:
        chunk = os.pread(fd, _GUESS_BYTES, offset)
        if len(chunk) < HEAD_BYTES:
            return
        lengths, sums = chunk[: _LENGTHS.size], chunk[_LENGTHS.size : HEAD_BYTES]
        fact_bytes, content_bytes = _LENGTHS.unpack(lengths)
        fact_sum, lengths_sum = _SUMS.unpack(sums)
        if lengths_sum != crc32(lengths) or not 0 < fact_bytes <= MAX_FACT_BYTES:
            return
        fact = chunk[HEAD_BYTES : HEAD_BYTES + fact_bytes]
        if len(fact) < fact_bytes:
            fact = os.pread(fd, fact_bytes, offset + HEAD_BYTES)
        size = HEAD_BYTES + fact_bytes + content_bytes
        yield Record(offset, size, fact if crc32(fact) == fact_sum else b"", content_bytes)
        offset += size
