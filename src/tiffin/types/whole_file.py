"""Files that are replaced whole: whoever reads one finds what there was, or what there is."""

import contextlib
import os
from collections.abc import Iterable
from pathlib import Path


def replace_file(path: Path, *parts: bytes, lasting: bool = True) -> None:
    """Replace a file by these parts, private to this user; raises `OSError`, and it is as before.

    `lasting` is whether it must be there after the machine's death too. One process at a time
    replaces a file.
    """
    fresh = path.with_name(path.name + ".tmp")
    try:
        _write(fresh, parts, lasting=lasting)
        fresh.replace(path)
    except BaseException:
        # On a full disk the part that was written would take the room that others wait for.
        with contextlib.suppress(OSError):
            fresh.unlink()
        raise
    if lasting:
        _sync(path.parent)


def _write(path: Path, parts: Iterable[bytes], *, lasting: bool) -> None:
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
    with os.fdopen(fd, "wb") as file:
        for part in parts:
            file.write(part)
        if lasting:
            file.flush()
            os.fsync(fd)


def _sync(folder: Path) -> None:
    """Have the names in a folder lead where they lead now after a crash too.

    It is replaced already, so a disk that can't even do this is no reason to say that it isn't.
    """
    with contextlib.suppress(OSError):
        fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(fd)
        finally:
            os.close(fd)
