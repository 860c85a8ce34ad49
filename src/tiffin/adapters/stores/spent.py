"""What was spent, in files mapped into memory: no system call a request, and `kill -9` loses none.

Each gateway has a file of its own in the folder, `<epoch>.spent`, locked for its life; all others'
are read. A record is 64 bytes: the sha256 of its name cut to 16, the period's beginning and what
was charged in it; zeros are free. When a gateway begins, it sums up what the dead left behind in
its own file, whose head names them, and only then deletes theirs: whoever dies in between leaves
files that are named already, and count for nothing. (As with journals nothing is synced: the
machine's death may take the last seconds.)
"""

import contextlib
import fcntl
import hashlib
import mmap
import os
import struct
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import msgspec

from tiffin.errors import JournalUnavailable
from tiffin.telemetry import log

SUFFIX: Final = ".spent"
HEAD_BYTES: Final = 4096
RECORD: Final = struct.Struct("<16sq16s24x")
CHUNK_BYTES: Final = 65_536
# No period is longer; what began before has ended.
LONGEST_NS: Final = 32 * 86_400 * 10**9
MAX_NAMED: Final = 40
RETRY_S: Final = 0.5

_CHARGED_BYTES: Final = 16
_BEGINS_AT: Final = 16
_CHARGED_AT: Final = 24

Name = bytes
Sums = dict[tuple[Name, int], int]
Allocate = Callable[[int, int, int], None]


class Head(msgspec.Struct, frozen=True, kw_only=True):
    """The beginning of a file: whose files are summed up in this one."""

    format: int = 1
    holds: tuple[str, ...] = ()


@dataclass(slots=True)
class Left:
    """One file as it was found: its head, its records' sums, and whether its process lives."""

    head: Head
    sums: Sums
    alive: bool


class SpentFile:
    """The records of one process; satisfies `ports.spent.Spent`. One thread uses it."""

    def __init__(
        self, folder: Path, epoch: str, now_ns: int, *, allocate: Allocate = os.posix_fallocate
    ) -> None:
        self._folder = folder
        self._epoch = epoch
        self._now_ns = now_ns
        self._allocate = allocate
        self._records: dict[Name, MappedRecord] = {}
        self._maps: list[mmap.mmap] = []
        self._free: list[tuple[mmap.mmap, int]] = []
        self._fd = -1
        self._size = 0
        self._again_at = 0.0
        self._found: dict[str, Left] = {}
        self._summed_up: list[str] = []
        self.elsewhere: Sums = {}
        with contextlib.suppress(OSError):
            self._begin()

    def record(self, name: str) -> "MappedRecord":
        """The record of a name, the same one for the same name."""
        digest = hashlib.sha256(name.encode()).digest()[:16]
        found = self._records.get(digest)
        if found is None:
            found = self._records[digest] = MappedRecord(self, digest)
        return found

    def forget(self, name: str) -> None:
        """Give up a record."""
        digest = hashlib.sha256(name.encode()).digest()[:16]
        found = self._records.pop(digest, None)
        if found is not None and found.memory is not None:
            found.memory[found.at : found.at + RECORD.size] = bytes(RECORD.size)
            self._free.append((found.memory, found.at))

    def look(self) -> None:
        """Read again what gateways that run beside this one have charged."""
        with contextlib.suppress(OSError):
            names = {path.stem for path in self._folder.glob("*" + SUFFIX)} - {self._epoch}
            if names - self._found.keys() or any(left.alive for left in self._found.values()):
                self._read_others()

    def place(self) -> tuple[mmap.mmap, int]:
        """Room for a record; raises `JournalUnavailable` where there is none."""
        if not self._free:
            try:
                self._grow()
            except OSError as cause:
                raise JournalUnavailable(
                    f"what is spent can't be written ({cause.strerror}), so nothing that a limit"
                    " by the calendar holds for is taken",
                    retry_after=1.0,
                ) from cause
        return self._free.pop()

    def close(self) -> None:
        """Let go of the file as the end of the process does; nothing may be written after."""
        for memory in self._maps:
            memory.close()
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1

    def _grow(self) -> None:
        """Another chunk of free records; raises `OSError`."""
        now = time.monotonic()
        if now < self._again_at:
            raise OSError(28, "the disk is full")
        self._again_at = now + RETRY_S
        if self._fd < 0:
            self._begin()
        if not self._free:
            self._map(CHUNK_BYTES)
        self._again_at = 0.0

    def _map(self, size: int) -> None:
        self._allocate(self._fd, self._size, size)
        memory = mmap.mmap(self._fd, size, offset=self._size)
        self._maps.append(memory)
        self._size += size
        self._free += [(memory, at) for at in range(size - RECORD.size, -1, -RECORD.size)]

    def _begin(self) -> None:
        """Read what others have charged, and begin a file with what the dead ones had."""
        self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._read_others()
        dead = [epoch for epoch, left in self._found.items() if not left.alive]
        dead = dead[: max(0, MAX_NAMED - len(self._summed_up))]
        carried = _sum(self._found[epoch].sums for epoch in dead)
        done = (*dead, *self._summed_up)
        path = self._folder / (self._epoch + SUFFIX)
        fresh = path.with_suffix(".tmp")
        fd = os.open(fresh, os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            content = _written(Head(holds=done), carried)
            self._allocate(fd, 0, len(content))
            os.pwrite(fd, content, 0)
            fresh.replace(path)
        except BaseException:
            os.close(fd)
            fresh.unlink(missing_ok=True)
            raise
        self._fd, self._size = fd, len(content)
        for epoch in done:
            (self._folder / (epoch + SUFFIX)).unlink(missing_ok=True)

    def _read_others(self) -> None:
        """Everything that is charged in other files, and what this one carries of the dead."""
        found: dict[str, Left] = {}
        for path in sorted(self._folder.glob("*" + SUFFIX)):
            if path.stem != self._epoch and (left := self._left(path)) is not None:
                found[path.stem] = left
        held = {epoch for left in found.values() for epoch in left.head.holds}
        self._summed_up = [epoch for epoch in found if epoch in held]
        known = self._found | found
        self._found = {epoch: left for epoch, left in known.items() if epoch not in held}
        self.elsewhere = _sum(left.sums for left in self._found.values())

    def _left(self, path: Path) -> Left | None:
        try:
            with path.open("rb") as file:
                alive = not _locked(file.fileno())
                content = file.read()
            head = msgspec.json.decode(content[:HEAD_BYTES].rstrip(b"\0"), type=Head)
        except FileNotFoundError:
            return None
        except msgspec.DecodeError:
            log.error("a file of what was spent makes no sense", path=str(path))
            return None
        return Left(head, _read(content, self._now_ns - LONGEST_NS), alive)


@dataclass(slots=True)
class MappedRecord:
    """One record; it takes its place in the file when something is first charged."""

    store: SpentFile
    name: Name
    memory: mmap.mmap | None = field(default=None)
    at: int = 0
    begins_ns: int = -1

    def others(self, begins_ns: int) -> int:
        """What others charged in the period that begins at a moment (UTC nanoseconds)."""
        elsewhere = self.store.elsewhere
        return elsewhere.get((self.name, begins_ns), 0) if elsewhere else 0

    def write(self, begins_ns: int, charged: int) -> None:
        """Say what this process has charged in it."""
        memory = self.memory
        if memory is None or begins_ns != self.begins_ns:
            memory = self._begin(begins_ns)
        at = self.at + _CHARGED_AT
        memory[at : at + _CHARGED_BYTES] = charged.to_bytes(_CHARGED_BYTES, "little")

    def _begin(self, begins_ns: int) -> mmap.mmap:
        if self.memory is None:
            self.memory, self.at = self.store.place()
        memory, at = self.memory, self.at
        memory[at + _CHARGED_AT : at + _CHARGED_AT + _CHARGED_BYTES] = bytes(_CHARGED_BYTES)
        memory[at + _BEGINS_AT : at + _CHARGED_AT] = begins_ns.to_bytes(8, "little")
        memory[at : at + len(self.name)] = self.name
        self.begins_ns = begins_ns
        return memory


def _locked(fd: int) -> bool:
    """Whether a file's lock can be had, so that its process is dead."""
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _written(head: Head, sums: Sums) -> bytes:
    records = b"".join(
        RECORD.pack(name, begins, charged.to_bytes(_CHARGED_BYTES, "little"))
        for (name, begins), charged in sums.items()
    )
    content = msgspec.json.encode(head).ljust(HEAD_BYTES, b"\0") + records
    return content.ljust(-(-len(content) // HEAD_BYTES) * HEAD_BYTES, b"\0")


def _read(content: bytes, since_ns: int) -> Sums:
    """What a file's records say of periods that began since a moment."""
    sums: Sums = {}
    whole = (len(content) - HEAD_BYTES) // RECORD.size * RECORD.size
    for name, begins, charged in RECORD.iter_unpack(content[HEAD_BYTES : HEAD_BYTES + whole]):
        if begins >= since_ns and (amount := int.from_bytes(charged, "little")):
            sums[name, begins] = sums.get((name, begins), 0) + amount
    return sums


def _sum(parts: Iterable[Sums]) -> Sums:
    whole: Sums = {}
    for part in parts:
        for key, amount in part.items():
            whole[key] = whole.get(key, 0) + amount
    return whole
