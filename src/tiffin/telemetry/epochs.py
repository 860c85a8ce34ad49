"""Tells a living process from a dead one: a lock file that the kernel frees when its holder dies.

A holder takes its file by `hold` and keeps it for life; whoever cleans up behind the dead takes it
by `seize`, deletes it last, and so never works on files that somebody living still writes.
"""

import contextlib
import fcntl
import os
from collections.abc import Iterator
from pathlib import Path


def hold(path: Path) -> int:
    """Lock the file for this process's life, creating it; returns the descriptor.

    Raises `BlockingIOError` while somebody else has it, another `OSError` where it can't be made.
    """
    while True:
        fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if _is_still_at(path, fd):
                return fd
        except BaseException:
            os.close(fd)
            raise
        os.close(fd)


@contextlib.contextmanager
def seize(path: Path) -> Iterator[bool]:
    """Take the lock of a dead process: true while held, false where its holder lives.

    A file that doesn't exist counts as held by the dead: there is nothing to lock.
    """
    try:
        fd = os.open(path, os.O_RDWR | os.O_CLOEXEC)
    except FileNotFoundError:
        yield True
        return
    try:
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            yield False
            return
        yield _is_still_at(path, fd)
    finally:
        os.close(fd)


def _is_still_at(path: Path, fd: int) -> bool:
    """Whether the locked file is the one that has the name now, and not one deleted meanwhile."""
    try:
        named, held = path.stat(), os.fstat(fd)
    except FileNotFoundError:
        return False
    return (named.st_ino, named.st_dev) == (held.st_ino, held.st_dev)
