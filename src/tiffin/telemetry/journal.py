"""The account journal: what one process writes before and after each request, line by line.

A line is `<crc32 of the JSON as 8 hex digits> <JSON of an event>\n`. It is stored into a file that
was given its blocks before and is mapped into memory: that costs no system call, can't fail, and
outlives the process's death at any moment (not the machine's: nothing is synced). Files of an epoch
are `<epoch>.<number of the segment>.journal` beside `<epoch>.lock`, which is held for the writer's
life. A newline is stored after its line, so who reads behind the writer sees whole lines; what
follows the last one is zeros.
"""

import contextlib
import os
import struct
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Generic, TypeVar
from zlib import crc32

import msgspec

from tiffin.errors import JournalUnavailable
from tiffin.telemetry import epochs
from tiffin.telemetry.events import Closed, Event, Opened
from tiffin.telemetry.mapped import Allocate, MappedFile

SUFFIX: Final = ".journal"
LOCK_SUFFIX: Final = ".lock"
SEGMENT_BYTES: Final = 4 << 20
MAX_TOTAL_BYTES: Final = 1 << 30

_LOOK_S: Final = 0.1
_NEWLINE: Final = 10
_SENSELESS = (ValueError, struct.error, msgspec.DecodeError)

E = TypeVar("E")


class Segment:
    """One file of a journal, with all its blocks from the beginning; raises `OSError` without."""

    def __init__(self, path: Path, size: int, allocate: Allocate) -> None:
        self._file = MappedFile(path, size, allocate)
        self._memory = self._file.memory
        self._size = size
        self._used = 0

    def room(self) -> int:
        """Bytes that are left."""
        return self._size - self._used

    def store(self, line: bytes, keep: int) -> bool:
        """Append a line and its newline where at least `keep` bytes stay free after it."""
        start = self._used
        end = start + len(line)
        if end + 1 + keep > self._size:
            return False
        self._memory[start:end] = line
        self._memory[end] = _NEWLINE
        self._used = end + 1
        return True

    def end(self) -> None:
        """Give back the blocks that weren't used; nothing may be stored after."""
        self._file.end(self._used)


class Journal:
    """One process's journal. Use it from one thread; call `retry` a few times a second.

    Openings are refused while there is no room for them and their closings, or while all journals
    of the folder together have reached `max_total_bytes`. Closings are never refused: where there
    is no room they wait in memory, no more of them than there are open accounts.
    """

    def __init__(
        self,
        folder: Path,
        epoch: str,
        *,
        segment_bytes: int = SEGMENT_BYTES,
        max_total_bytes: int = MAX_TOTAL_BYTES,
        allocate: Allocate = os.posix_fallocate,
    ) -> None:
        self._folder = folder
        self._epoch = epoch
        self._segment_bytes = min(segment_bytes, max(max_total_bytes // 4, 1))
        # What openings leave free, so that closings find room when the disk has none.
        self._reserve = self._segment_bytes // 4
        self._total_bytes = max_total_bytes
        self._allocate = allocate
        self._encode = msgspec.json.Encoder().encode
        self._pending: deque[bytes] = deque()
        self._lock = -1
        self._segment: Segment | None = None
        self._number = 0
        self._fault = "not begun"
        self._look_at = self._blocks_at = 0.0
        self._mend()

    @property
    def writable(self) -> bool:
        """Whether an opening would be taken now, as far as is known."""
        return not (self._fault or self._pending)

    @property
    def fault(self) -> str:
        """Why it isn't writable; empty where it is."""
        return self._fault

    @property
    def pending(self) -> int:
        """How many closings wait in memory."""
        return len(self._pending)

    def open(self, event: Opened) -> None:
        """Write the opening, or raise `JournalUnavailable`: then the account doesn't exist."""
        if self._fault or self._pending:
            self.retry()
        if self._fault or self._pending or not self._opened(self._line(event)):
            raise JournalUnavailable(
                f"accounts can't be written ({self._fault}), so no work is taken", retry_after=1.0
            )

    def close(self, event: Closed) -> None:
        """Write the closing, now or as soon as it can be; never raises."""
        line = self._line(event)
        if self._pending or not self._closed(line):
            self._pending.append(line)

    def retry(self) -> None:
        """Try again what failed: waiting closings first, then whether openings can be taken."""
        while self._pending and self._closed(self._pending[0]):
            self._pending.popleft()
        if self._fault:
            self._mend()

    def shut(self) -> None:
        """Write what waits, if it can be, and let go of the lock; nothing may be written after."""
        self._look_at = self._blocks_at = 0.0
        self.retry()
        if self._segment is not None:
            self._segment.end()
            self._segment = None
        if self._lock >= 0:
            os.close(self._lock)
            self._lock = -1
        self._fault = "shut"
        self._look_at = float("inf")  # so that it is never mended

    def _line(self, event: Event) -> bytes:
        body = self._encode(event)
        return b"%08x %b" % (crc32(body), body)

    def _opened(self, line: bytes) -> bool:
        segment = self._segment
        if segment is not None and segment.store(line, self._reserve):
            return True
        self._look_at = 0.0
        self._mend()
        return not self._fault and self._segment is not None and self._segment.store(line, 0)

    def _closed(self, line: bytes) -> bool:
        segment = self._segment
        if segment is not None and segment.store(line, 0):
            return True
        if self._lock < 0 or time.monotonic() < self._blocks_at:
            return False
        try:
            return self._begin_segment().store(line, 0)
        except OSError as cause:
            self._fail(cause)
            return False

    def _mend(self) -> None:
        """Make room for openings and clear the fault; looks no more than ten times a second."""
        now = time.monotonic()
        if now < self._look_at:
            return
        self._look_at = now + _LOOK_S
        try:
            self._fault = self._make_room()
        except OSError as cause:
            self._fail(cause)

    def _fail(self, cause: OSError) -> None:
        self._fault = cause.strerror or type(cause).__name__
        self._blocks_at = time.monotonic() + _LOOK_S

    def _make_room(self) -> str:
        """Why there is no room for openings, or empty."""
        if self._lock < 0:
            self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            self._lock = epochs.hold(self._folder / (self._epoch + LOCK_SUFFIX))
            self._number = max(segments(self._folder).get(self._epoch, []), default=0)
        if self._segment is not None and self._segment.room() > 2 * self._reserve:
            return ""
        total = total_bytes(self._folder)
        if total + self._segment_bytes > self._total_bytes:
            return f"{total} bytes of journals wait for control, the bound is reached"
        self._begin_segment()
        return ""

    def _begin_segment(self) -> Segment:
        path = segment_path(self._folder, self._epoch, self._number + 1)
        fresh = Segment(path, self._segment_bytes, self._allocate)
        if self._segment is not None:
            self._segment.end()
        self._segment = fresh
        self._number += 1
        return fresh


@dataclass(frozen=True, slots=True)
class Stretch(Generic[E]):
    """Consecutive whole lines of a segment: their events, where the next begins, lines lost."""

    events: list[E]
    offset: int
    torn: int


def segment_path(folder: Path, epoch: str, segment: int) -> Path:
    """Where a segment lies; segments count from 1."""
    return folder / f"{epoch}.{segment:06d}{SUFFIX}"


def segments(folder: Path) -> dict[str, list[int]]:
    """The numbers of all segments by epoch, ascending; an epoch that only has a lock has none."""
    found: dict[str, list[int]] = {}
    for entry in os.scandir(folder):
        if entry.name.endswith(LOCK_SUFFIX):
            found.setdefault(entry.name.removesuffix(LOCK_SUFFIX), [])
        elif entry.name.endswith(SUFFIX):
            epoch, _, number = entry.name.removesuffix(SUFFIX).rpartition(".")
            if epoch and number.isdecimal():
                found.setdefault(epoch, []).append(int(number))
    return {epoch: sorted(numbers) for epoch, numbers in sorted(found.items())}


def total_bytes(folder: Path) -> int:
    """How much all segments of a folder come to."""
    total = 0
    for entry in os.scandir(folder):
        if entry.name.endswith(SUFFIX):
            with contextlib.suppress(FileNotFoundError):
                total += entry.stat().st_size
    return total


def rest(path: Path, offset: int) -> int:
    """How many bytes there are from an offset on, zeros at the end not counted."""
    with path.open("rb") as file:
        file.seek(offset)
        return len(file.read().rstrip(b"\0"))


def read(
    path: Path, offset: int, decode: Callable[[bytes], E], max_bytes: int = 4 << 20
) -> Stretch[E]:
    """The whole lines from an offset on; a line without its newline is left for later.

    `decode` makes an event of a line's JSON. Lines with a wrong checksum or without sense are
    counted and left out. No events and an unchanged offset mean that there is nothing more to read
    now. Raises `OSError`.
    """
    with path.open("rb") as file:
        file.seek(offset)
        chunk = file.read(max_bytes)
    end = chunk.rfind(b"\n") + 1
    if not end:
        # No line of ours is that long: garbage, passed over piece by piece. Nor does one begin
        # with zero: from there on nothing was stored yet.
        too_long = len(chunk) == max_bytes and not chunk.startswith(b"\0")
        return Stretch([], offset + len(chunk) if too_long else offset, int(too_long))
    lines = chunk[: end - 1].split(b"\n")
    events = _sound(lines, decode)
    if events is not None:
        return Stretch(events, offset + end, 0)
    events, torn = _salvage(lines, decode)
    return Stretch(events, offset + end, torn)


def _sound(lines: list[bytes], decode: Callable[[bytes], E]) -> list[E] | None:
    """The events of lines that are all as they were written; None where one isn't.

    The same as `_salvage` on such lines in half the time: control reads behind every request.
    """
    bodies = [line[9:] for line in lines]
    try:
        sums = bytes.fromhex(b"".join([line[:8] for line in lines]).decode())
        if struct.unpack(f">{len(lines)}I", sums) != tuple(map(crc32, bodies)):
            return None
        return list(map(decode, bodies))
    except _SENSELESS:
        return None


def _salvage(lines: list[bytes], decode: Callable[[bytes], E]) -> tuple[list[E], int]:
    """The events of the lines that are sound, and how many others there were."""
    events: list[E] = []
    torn = 0
    for line in lines:
        body = line[9:]
        try:
            if crc32(body) == int(line[:8], 16):
                events.append(decode(body))
                continue
        except _SENSELESS:
            pass
        torn += 1
    return events, torn
