"""The account journal: what one process writes before and after each request, line by line.

A line is `<crc32 of the JSON as 8 hex digits> <JSON of an event>\\n`, appended by one `write`, so
that it survives the process's death at any moment (not the machine's: nothing is synced). Files of
an epoch are `<epoch>.<number of the segment>.journal` beside `<epoch>.lock`, which is held for the
writer's life. A line that couldn't be written whole is cut off by `~` and a newline.
"""

import contextlib
import os
import struct
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Generic, TypeVar
from zlib import crc32

import msgspec

from tiffin.errors import JournalUnavailable
from tiffin.telemetry import epochs
from tiffin.telemetry.events import Closed, Event, Opened

SUFFIX = ".journal"
LOCK_SUFFIX = ".lock"
MAX_SEGMENT_BYTES = 64 << 20
MAX_TOTAL_BYTES = 1 << 30

_CUT = b"~\n"
_MARK = b"~"
_HEADROOM_BYTES = 1 << 20
_LOOK_S = 0.1
_SENSELESS = (ValueError, struct.error, msgspec.MsgspecError)

Write = Callable[[int, bytes], int]
E = TypeVar("E")


class Journal:
    """One process's journal. Use it from one thread; call `retry` a few times a second.

    Openings are refused while they can't be written, or while all journals of the folder together
    have reached `max_total_bytes`. Closings are never refused: they wait in memory, no more of them
    than there are open accounts, until they can be written.
    """

    def __init__(
        self,
        folder: Path,
        epoch: str,
        *,
        max_segment_bytes: int = MAX_SEGMENT_BYTES,
        max_total_bytes: int = MAX_TOTAL_BYTES,
        write: Write = os.write,
    ) -> None:
        self._folder = folder
        self._epoch = epoch
        self._segment_bytes = min(max_segment_bytes, max(max_total_bytes // 4, 1))
        self._total_bytes = max_total_bytes
        self._write = write
        self._encode = msgspec.json.Encoder().encode
        self._pending: deque[bytes] = deque()
        self._lock = self._fd = -1
        self._segment = 0
        self._size = 0
        self._turn_at = 0
        self._torn = False
        self._fault = "not begun"
        self._looked = 0.0
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
        if self._fault or not self._append(self._line(event)):
            raise JournalUnavailable(
                f"accounts can't be written ({self._fault}), so no work is taken", retry_after=1.0
            )

    def close(self, event: Closed) -> None:
        """Write the closing, now or as soon as it can be; never raises."""
        line = self._line(event)
        if self._pending or self._fd < 0:
            self._pending.append(line)
            self.retry()
        elif not self._append(line):
            self._pending.append(line)

    def retry(self) -> None:
        """Try again what failed: waiting closings first, then whether openings can be taken."""
        if self._fd >= 0:
            while self._pending and self._append(self._pending[0]):
                self._pending.popleft()
        if self._fault:
            self._mend()

    def shut(self) -> None:
        """Write what waits, if it can be, and let go of the lock; nothing may be written after."""
        self.retry()
        for fd in (self._fd, self._lock):
            if fd >= 0:
                os.close(fd)
        self._fd = self._lock = -1
        self._fault = "shut"
        self._looked = float("inf")  # so that it is never mended

    def _line(self, event: Event) -> bytes:
        body = self._encode(event)
        return b"%08x %b\n" % (crc32(body), body)

    def _append(self, line: bytes) -> bool:
        if self._torn:
            line = _CUT + line
        try:
            written = self._write(self._fd, line)
        except OSError as cause:
            self._fail(cause)
            return False
        self._size += written
        if written != len(line):
            self._fail("the disk took only a part of a line")
            return False
        self._torn = False
        if self._size >= self._turn_at:
            self._turn()
        return True

    def _fail(self, cause: OSError | str) -> None:
        self._fault = cause if isinstance(cause, str) else cause.strerror or type(cause).__name__
        self._torn = True

    def _turn(self) -> None:
        """Go on in a new segment when this one is long, and look at what all journals come to."""
        self._turn_at = self._size + _HEADROOM_BYTES
        # Where that can't be done now (too many open files), the old segment goes on taking lines.
        with contextlib.suppress(OSError):
            if self._size >= self._segment_bytes:
                self._begin_segment()
            self._weigh()

    def _begin_segment(self) -> None:
        path = segment_path(self._folder, self._epoch, self._segment + 1)
        fd = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        if self._fd >= 0:
            os.close(self._fd)
        self._fd, self._size, self._torn = fd, 0, False
        self._segment += 1

    def _weigh(self) -> None:
        """Compare all journals with the bound; say at which size of the segment to look again."""
        total = total_bytes(self._folder)
        room = self._total_bytes - total
        if room <= 0:
            self._fault = f"{total} bytes of journals wait for control, the bound is reached"
        self._turn_at = self._size + max(min(room, _HEADROOM_BYTES), 1)
        if self._size < self._segment_bytes:
            self._turn_at = min(self._turn_at, self._segment_bytes)

    def _mend(self) -> None:
        """Clear the fault where its cause is gone; looks no more than ten times a second."""
        now = time.monotonic()
        if now - self._looked < _LOOK_S:
            return
        self._looked = now
        try:
            self._probe()
        except OSError as cause:
            self._fault = cause.strerror or type(cause).__name__

    def _probe(self) -> None:
        if self._lock < 0:
            self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            self._lock = epochs.hold(self._folder / (self._epoch + LOCK_SUFFIX))
        if self._fd < 0:
            self._segment = max(segments(self._folder).get(self._epoch, []), default=0)
            self._begin_segment()
        if self._torn and not self._append(b""):
            return
        disk = os.fstatvfs(self._fd)
        if disk.f_bavail * disk.f_frsize < _HEADROOM_BYTES:
            self._fault = "the disk is full"
            return
        self._fault = ""
        self._weigh()


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
        # No line of ours is that long: garbage, passed over piece by piece.
        too_long = len(chunk) == max_bytes
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
    """The events of the lines that are sound, and how many others were no mere marks."""
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
        torn += line != _MARK
    return events, torn
