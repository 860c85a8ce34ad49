"""Files of records that outlive their writer's death at any moment (not the machine's).

A file is given its blocks before and is mapped into memory, so that storing costs no system call
and can't fail. A record is a head (two lengths and two checksums), a fact, and content; the head is
stored last, so whoever reads behind the writer sees whole records. Zeros follow the last. Behind
what was damaged the next whole record is found, and how many facts are missing is told.
"""

import os
import re
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
MANY: Final = 1 << 16
"""So many facts are lost as nobody can count."""

# How a head begins: a length that a fact may have. A look-ahead, since heads may overlap garbage.
_BEGINS: Final = re.compile(rb"(?s)(?!\0\0)(?=..[\0\1]\0)")


class Record(NamedTuple):
    """Where a record begins, what it takes, its fact, its content; or what was damaged: then the
    fact is empty, and so many are `lost`."""

    offset: int
    size: int
    fact: bytes
    content_bytes: int
    lost: int = 0


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


def records(fd: int, offset: int, *, ended: bool = False) -> Iterator[Record]:
    """The records of a file from an offset on; raises `OSError`.

    Until it has `ended`, what makes no sense at its end may be a head that is just being stored.
    """
    while True:
        chunk = os.pread(fd, _GUESS_BYTES, offset)
        record = _record(fd, offset, chunk)
        if record is None and (ended or chunk[:HEAD_BYTES].strip(b"\0")):
            record = _damaged(fd, offset, ended=ended)
        if record is None:
            return
        yield record
        offset += record.size


def _record(fd: int, offset: int, chunk: bytes) -> Record | None:
    """The record whose head can be believed; `chunk` is how it begins."""
    if len(chunk) < HEAD_BYTES:
        return None
    lengths, sums = chunk[: _LENGTHS.size], chunk[_LENGTHS.size : HEAD_BYTES]
    fact_bytes, content_bytes = _LENGTHS.unpack(lengths)
    fact_sum, lengths_sum = _SUMS.unpack(sums)
    if lengths_sum != crc32(lengths) or not 0 < fact_bytes <= MAX_FACT_BYTES:
        return None
    fact = chunk[HEAD_BYTES : HEAD_BYTES + fact_bytes]
    if len(fact) < fact_bytes:
        fact = os.pread(fd, fact_bytes, offset + HEAD_BYTES)
    size = HEAD_BYTES + fact_bytes + content_bytes
    if crc32(fact) != fact_sum:
        return Record(offset, size, b"", content_bytes, lost=1)
    return Record(offset, size, fact, content_bytes)


def _damaged(fd: int, offset: int, *, ended: bool) -> Record | None:
    """Everything until the next whole record as one; None where nothing is there, or may be yet."""
    found = os.pread(fd, os.fstat(fd).st_size - offset, offset)
    rest = found.rstrip(b"\0")
    size = _next_whole(fd, offset, rest)
    # Without a head there was no record yet, and without what follows it no fact.
    begun = rest[:HEAD_BYTES].strip(b"\0") and len(rest) > HEAD_BYTES
    if not size and not (ended and begun):
        return None
    fact = _fact_by_sum(found[:size] if size else found)
    size = size or len(rest)
    if fact:
        size = max(size, HEAD_BYTES + len(fact))
        return Record(offset, size, fact, size - HEAD_BYTES - len(fact))
    told = sum(_LENGTHS.unpack_from(rest)) if size >= HEAD_BYTES else 0
    return Record(offset, size, b"", 0, lost=1 if HEAD_BYTES + told == size else MANY)


def _next_whole(fd: int, offset: int, rest: bytes) -> int:
    """How far behind an offset the next whole record begins, 0 where none does."""
    for found in _BEGINS.finditer(rest, 1):
        at = found.start()
        record = _record(fd, offset + at, rest[at : at + _GUESS_BYTES])
        if record is not None and record.fact:
            return at
    return 0


def _fact_by_sum(damaged: bytes) -> bytes:
    """The fact of a record of which but a length, or its checksum, is wrong; else empty."""
    if len(damaged) < HEAD_BYTES:
        return b""
    wanted, found = _SUMS.unpack_from(damaged, _LENGTHS.size)[0], 0
    body = damaged[HEAD_BYTES : HEAD_BYTES + MAX_FACT_BYTES]
    for at in range(len(body)):
        found = crc32(body[at : at + 1], found)
        if found == wanted:
            return body[: at + 1]
    return b""
