"""The log of idempotency keys as a folder; satisfies `ports.key_log.KeyLog`.

Every gateway's life writes files of its own, `<epoch>.<number>.keys`, and reads those of the
others. It holds `<epoch>.lock` for as long as it lives, and `turn.lock` while it has the turn.
"""

import contextlib
import fcntl
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import msgspec

from tiffin.adapters.stores.segments import MANY, Record, SegmentWriter, records
from tiffin.errors import Unavailable
from tiffin.ports.key_log import Damage, Fact, Place, Standing, Told
from tiffin.telemetry import epochs
from tiffin.telemetry.mapped import Allocate

SUFFIX: Final = ".keys"
LOCK_SUFFIX: Final = ".lock"
TURN: Final = "turn.lock"
SEGMENT_BYTES: Final = 8 << 20
# What claims and answers leave free in a file, so that facts without content find room there when
# the disk has none.
RESERVE_BYTES: Final = 1 << 20
# A folder that was changed more lately may change again without its time saying so.
_SETTLED_NS: Final = 100_000_000
# What is stored through memory may change a file's time that much later.
_WRITTEN_BACK_NS: Final = 60_000_000_000

_ENCODE = msgspec.msgpack.Encoder().encode
_DECODE = msgspec.msgpack.Decoder(Fact).decode


@dataclass(slots=True)
class Reading:
    """How far another epoch's files were read."""

    numbers: list[int] = field(default_factory=list)
    at: int = 0
    offset: int = 0
    fd: int = -1

    def close(self) -> None:
        """Let go of the file."""
        if self.fd >= 0:
            os.close(self.fd)
            self.fd = -1


class FolderKeyLog:
    """One gateway's end, from one thread. All files together stay below about `max_bytes`."""

    def __init__(
        self,
        folder: Path,
        epoch: str,
        *,
        max_bytes: int,
        segment_bytes: int = SEGMENT_BYTES,
        allocate: Allocate = os.posix_fallocate,
    ) -> None:
        self.epoch = epoch
        self.damage: dict[str, Damage] = {}
        self._folder = folder
        self._max_bytes = max_bytes
        self._segment_bytes = segment_bytes
        self._reserve = min(RESERVE_BYTES, segment_bytes // 4)
        self._allocate = allocate
        self._lock = self._turn = -1
        self._writer: SegmentWriter | None = None
        self._number = 0
        self._others: dict[str, Reading] = {}
        self._ended: set[str] = set()
        self._listed_ns = -1

    @contextmanager
    def turn(self) -> Iterator[bool]:
        """Have the turn while inside, unless it is false."""
        try:
            if self._turn < 0:
                self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
                flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC
                self._turn = os.open(self._folder / TURN, flags, 0o600)
            fcntl.flock(self._turn, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            yield False
            return
        except OSError as cause:
            raise _unavailable(cause) from cause
        try:
            yield True
        finally:
            fcntl.flock(self._turn, fcntl.LOCK_UN)

    def read(self, most: int) -> list[Told]:
        """The next facts that others wrote."""
        told: list[Told] = []
        try:
            self._look()
            for epoch, reading in self._others.items():
                if len(told) >= most:
                    break
                told += self._read(epoch, reading, most - len(told))
        except OSError as cause:
            raise _unavailable(cause) from cause
        return told

    def ended(self) -> set[str]:
        """The epochs with facts here whose process has ended."""
        for epoch in self._others.keys() - self._ended:
            try:
                with epochs.seize(self._folder / (epoch + LOCK_SUFFIX)) as free:
                    if free:
                        self._ended.add(epoch)
            except OSError as cause:
                raise _unavailable(cause) from cause
        return set(self._ended)

    def append(self, fact: Fact, content: bytes = b"") -> Place:
        """Write a fact, and content with it."""
        body = _ENCODE(fact)
        begins = fact.standing is Standing.RUNNING
        keep = self._reserve if begins or content else 0
        writer = self._writer
        record = writer.store(body, content, keep) if writer is not None else None
        if writer is None or record is None:
            try:
                writer = self._begin_segment(bounded=begins)
            except OSError as cause:
                raise _unavailable(cause) from cause
            record = writer.store(body, content, 0)
            if record is None:
                raise Unavailable(f"an answer of {len(content)} bytes is too large for the log")
        return _place(writer.name, record)

    def content(self, place: Place) -> bytes:
        """The content there."""
        try:
            fd = os.open(self._folder / place.segment, os.O_RDONLY | os.O_CLOEXEC)
            try:
                at = place.offset + place.bytes - place.content_bytes
                return os.pread(fd, place.content_bytes, at)
            finally:
                os.close(fd)
        except OSError as cause:
            raise _unavailable(cause) from cause

    def movable(self) -> list[list[tuple[str, int]]]:
        """Segments that nobody writes any more, with their bytes; a list for each epoch."""
        found = []
        for epoch, numbers in sorted(self._list().items()):
            if epoch == self.epoch:
                numbers = [number for number in numbers if number < self._number]
            elif epoch not in self._ended:
                continue
            names = [_name(epoch, number) for number in numbers]
            with contextlib.suppress(OSError):
                found.append([(name, (self._folder / name).stat().st_size) for name in names])
        return [queue for queue in found if queue]

    def drop(self, segment: str) -> None:
        """Remove a segment, and its epoch's lock with the last."""
        (self._folder / segment).unlink(missing_ok=True)
        epoch = _parse(segment)[0]
        if epoch != self.epoch and epoch not in self._list():
            self._others[epoch].close()
            self.damage.pop(epoch, None)
            (self._folder / (epoch + LOCK_SUFFIX)).unlink(missing_ok=True)

    def shut(self) -> None:
        """This epoch ends; nothing may be appended after."""
        if self._writer is not None:
            self._writer.end()
            self._writer = None
        for reading in self._others.values():
            reading.close()
        for fd in (self._lock, self._turn):
            if fd >= 0:
                os.close(fd)
        self._lock = self._turn = -1

    def _look(self) -> None:
        """See which files there are, where that may have changed."""
        try:
            changed_ns = self._folder.stat().st_mtime_ns
        except FileNotFoundError:
            return
        if changed_ns == self._listed_ns:
            return
        for epoch, numbers in self._list().items():
            if epoch != self.epoch:
                self._others.setdefault(epoch, Reading()).numbers = numbers
        settled = time.time_ns() - changed_ns > _SETTLED_NS
        self._listed_ns = changed_ns if settled else -1

    def _list(self) -> dict[str, list[int]]:
        """The numbers of all segments by epoch, ascending."""
        found: dict[str, list[int]] = {}
        with contextlib.suppress(FileNotFoundError):
            for path in self._folder.iterdir():
                epoch, number = _parse(path.name)
                if epoch:
                    found.setdefault(epoch, []).append(number)
        return {epoch: sorted(numbers) for epoch, numbers in found.items()}

    def _read(self, epoch: str, reading: Reading, most: int) -> list[Told]:
        told: list[Told] = []
        while len(told) < most:
            if reading.fd >= 0:
                name = _name(epoch, reading.at)
                ended = epoch in self._ended or reading.at < reading.numbers[-1]
                for record in records(reading.fd, reading.offset, ended=ended):
                    reading.offset += record.size
                    fact = _fact(record)
                    if fact is not None:
                        told.append((fact, _place(name, record)))
                    else:
                        self._note(epoch, reading.fd, name, record)
                    if len(told) >= most:
                        return told
            if not self._next(epoch, reading):
                return told
        return told

    def _note(self, epoch: str, fd: int, segment: str, record: Record) -> None:
        """Facts are lost: when they were written at the latest is when their file was, if it is."""
        written_ns = os.fstat(fd).st_mtime_ns + _WRITTEN_BACK_NS
        at_ns = written_ns if epoch in self._ended else max(written_ns, time.time_ns())
        known = self.damage.get(epoch, Damage(segment, record.offset, 0, at_ns))
        lost = known.lost + (record.lost or MANY)
        self.damage[epoch] = known._replace(lost=lost, at_ns=max(at_ns, known.at_ns))

    def _next(self, epoch: str, reading: Reading) -> bool:
        """Go on to the next segment, if there is one: then nothing is added to this one."""
        for number in reading.numbers:
            if number > reading.at:
                with contextlib.suppress(FileNotFoundError):
                    path = self._folder / _name(epoch, number)
                    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
                    reading.close()
                    reading.fd, reading.at, reading.offset = fd, number, 0
                    return True
        return False

    def _begin_segment(self, *, bounded: bool) -> SegmentWriter:
        if self._lock < 0:
            self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            self._lock = epochs.hold(self._folder / (self.epoch + LOCK_SUFFIX))
        if bounded:
            total = sum(entry.stat().st_size for entry in os.scandir(self._folder))
            if total + self._segment_bytes > self._max_bytes:
                raise Unavailable(
                    f"the log of idempotency keys has {total} bytes, which is its bound",
                    retry_after=5.0,
                )
        path = self._folder / _name(self.epoch, self._number + 1)
        fresh = SegmentWriter(path, self._segment_bytes, self._allocate)
        if self._writer is not None:
            self._writer.end()
        self._writer = fresh
        self._number += 1
        return fresh


def _name(epoch: str, number: int) -> str:
    return f"{epoch}.{number:06d}{SUFFIX}"


def _parse(name: str) -> tuple[str, int]:
    """Epoch and number of a segment by its file's name; an empty epoch is none."""
    if not name.endswith(SUFFIX):
        return "", 0
    epoch, _, number = name.removesuffix(SUFFIX).rpartition(".")
    return (epoch, int(number)) if epoch and number.isdecimal() else ("", 0)


def _fact(record: Record) -> Fact | None:
    """What a record says; None where it was damaged, if only by chance with a right checksum."""
    try:
        return _DECODE(record.fact) if record.fact else None
    except msgspec.DecodeError:
        return None


def _place(segment: str, record: Record) -> Place:
    return Place(segment, record.offset, record.size, record.content_bytes)


def _unavailable(cause: OSError) -> Unavailable:
    reason = cause.strerror or type(cause).__name__
    return Unavailable(f"idempotency keys can't be kept now ({reason})", retry_after=1.0)
