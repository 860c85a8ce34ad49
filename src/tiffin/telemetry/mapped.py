"""A new file that is appended to through memory: storing costs no system call and can't fail."""

import contextlib
import mmap
import os
from collections.abc import Callable
from pathlib import Path

Allocate = Callable[[int, int, int], None]


class MappedFile:
    """A file with all its blocks from the beginning; raises `OSError` without room for them.

    What is stored outlives this process's death at any moment, not the machine's.
    """

    def __init__(self, path: Path, size: int, allocate: Allocate = os.posix_fallocate) -> None:
        self._fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        try:
            allocate(self._fd, 0, size)
            self.memory = mmap.mmap(self._fd, size)
        except OSError:
            os.close(self._fd)
            path.unlink(missing_ok=True)
            raise

    def end(self, used: int) -> None:
        """Give back the blocks after the first `used` bytes; nothing may be stored after."""
        self.memory.close()
        with contextlib.suppress(OSError):
            os.ftruncate(self._fd, used)
        os.close(self._fd)
