"""A replica's counters in shared memory: what a supervisor can read while an engine holds the GIL.

The file has 64 bytes: four unsigned 64-bit little-endian numbers (heartbeats, steps, outstanding
requests, phase), then zeros. Each number is written at once, so a reader never sees half of one.
"""

import contextlib
import mmap
import os
import struct
from collections.abc import Callable
from dataclasses import dataclass
from enum import IntEnum
from pathlib import Path

SIZE = 64

_LAYOUT = struct.Struct("<QQQQ")


class Phase(IntEnum):
    """Where a replica is in its life."""

    LOADING = 0
    WARMING = 1
    READY = 2
    DRAINING = 3


@dataclass(frozen=True, slots=True)
class Progress:
    """One reading: `heartbeat` and `steps` only grow, `outstanding` is requests inside."""

    heartbeat: int = 0
    steps: int = 0
    outstanding: int = 0
    phase: int = Phase.LOADING


class ProgressFile:
    """The writer: a fresh file for this process's life, removed by `close`; raises `OSError`."""

    def __init__(
        self, path: Path, *, allocate: Callable[[int, int, int], None] = os.posix_fallocate
    ) -> None:
        self._path = path
        path.unlink(missing_ok=True)
        fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600)
        try:
            # Storing into a file that got no block, on a full disk, ends the process.
            allocate(fd, 0, SIZE)
            self._memory = mmap.mmap(fd, SIZE)
        except OSError:
            path.unlink()
            raise
        finally:
            os.close(fd)
        self._numbers = memoryview(self._memory).cast("Q")

    def beat(self) -> None:
        """The event loop turns."""
        self._numbers[0] += 1

    def step(self, count: int = 1) -> None:
        """The engine produced something."""
        self._numbers[1] += count

    def outstanding(self, count: int) -> None:
        """This many requests are inside."""
        self._numbers[2] = count

    def phase(self, phase: Phase) -> None:
        """The replica is in this phase now."""
        self._numbers[3] = phase

    def close(self) -> None:
        """Give the memory back and remove the file; idempotent."""
        if not self._memory.closed:
            self._numbers.release()
            self._memory.close()
            self._path.unlink(missing_ok=True)


def read_progress(path: Path) -> Progress:
    """What the file says now; all zero where there is no such file yet."""
    with contextlib.suppress(OSError, struct.error):
        return Progress(*_LAYOUT.unpack_from(path.read_bytes()))
    return Progress()
