"""A folder to work in, inside the data folder: whoever comes next clears what the dead left.

One that was ended by force can't tidy up, and what it was at may be as large as a model. Its lock
is freed by the kernel, which is how the next run knows.
"""

import contextlib
import os
import shutil
from collections.abc import Iterator
from pathlib import Path

from tiffin.errors import ArtifactUnavailable
from tiffin.telemetry.epochs import hold, seize
from tiffin.types.ids import new_id
from tiffin.types.paths import DataFolder

TRIES = 5
_LOCK = ".lock"


@contextlib.contextmanager
def working_folder(data: DataFolder) -> Iterator[Path]:
    """A fresh folder that is gone afterwards; raises `ArtifactUnavailable` where none can be."""
    root = data.root / "importing"
    path = root / new_id("work")
    lock = path.with_suffix(_LOCK)
    made = [folder for folder in (root, data.root) if folder is root or not folder.exists()]
    try:
        held = _held(root, lock)
    except OSError as cause:
        raise ArtifactUnavailable(f"{root} can't be written: {cause.strerror}") from cause
    try:
        path.mkdir(mode=0o700)
        yield path
    finally:
        shutil.rmtree(path, ignore_errors=True)
        lock.unlink(missing_ok=True)
        os.close(held)
        for folder in made:  # where nothing came of it, nothing is there
            with contextlib.suppress(OSError):
                folder.rmdir()


def _held(root: Path, lock: Path) -> int:
    """The lock of a new folder, in a root that another's end may remove meanwhile."""
    for _ in range(TRIES):
        root.mkdir(mode=0o700, parents=True, exist_ok=True)
        _clear(root)
        with contextlib.suppress(FileNotFoundError):
            return hold(lock)
    return hold(lock)


def _clear(root: Path) -> None:
    """Remove the folders whose makers are dead; each one's lock goes last."""
    for lock in root.glob(f"*{_LOCK}"):
        with seize(lock) as dead:
            if dead:
                shutil.rmtree(lock.with_suffix(""), ignore_errors=True)
                lock.unlink(missing_ok=True)
