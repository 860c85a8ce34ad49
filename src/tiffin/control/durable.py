"""Files that are replaced whole and are there after the machine's death too."""

import os
from pathlib import Path


def replace_durably(path: Path, *parts: bytes) -> None:
    """Replace a file by these parts, private to this user; raises `OSError`, and it is as before.

    Its name leads to the new one after a crash too.
    """
    fresh = path.with_name(path.name + ".tmp")
    fd = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
    with os.fdopen(fd, "wb") as file:
        for part in parts:
            file.write(part)
        file.flush()
        os.fsync(fd)
    fresh.replace(path)
    folder = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)
