"""A file that is being brought: it grows, and what it marked survives `kill -9` and power loss."""

import errno
import os
import shutil
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import msgspec

from tiffin.errors import ArtifactError, ArtifactUnavailable, Draining
from tiffin.ports.artifacts import Artifact, Progress, shown
from tiffin.types.json_file import read_json

REPORT_EVERY_S = 0.1
_FULL = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})


class PartialFile:
    """The landing in one folder, cut back to its last mark when opened."""

    def __init__(
        self,
        folder: Path,
        *,
        size_bytes: int,
        free_bytes: Callable[[Path], int],
        stop: threading.Event,
        report: Callable[[int], None],
    ) -> None:
        self.size_bytes = size_bytes
        self.stop = stop
        self.scratch = folder / "scratch"
        self._adopted = folder / "adopted"
        self._mark = folder / "mark"
        self._free_bytes = free_bytes
        self._report = report
        with disk_errors(folder):
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            self._adopted.unlink(missing_ok=True)
            shutil.rmtree(self.scratch, ignore_errors=True)
            self.scratch.mkdir(mode=0o700)
            content = folder / "content"
            content.touch(mode=0o600)
            self._file = content.open("r+b", buffering=0)
            self.offset, self.note = self._resume()
        self.report(0)

    def expect(self, more_bytes: int, *, last: bool) -> None:
        """Refuse what is too long or too short, and what the disk has no room for."""
        total = self.offset + more_bytes
        if self.size_bytes and (total > self.size_bytes or (last and total != self.size_bytes)):
            raise ArtifactError(f"it has {total} bytes there, expected {self.size_bytes}")
        free = self._free_bytes(self.scratch)
        if more_bytes > free:
            raise ArtifactUnavailable(
                f"the disk of {self.scratch.parent} is full:"
                f" {more_bytes} bytes are needed, {free} are free"
            )

    def write(self, chunk: bytes | memoryview) -> None:
        """Append whole, or raise."""
        if self.stop.is_set():
            raise Draining("stopped while a model was fetched")
        view = memoryview(chunk)
        if self.size_bytes and self.offset + len(view) > self.size_bytes:
            raise ArtifactError(f"it is longer than the expected {self.size_bytes} bytes")
        with disk_errors(self.scratch.parent):
            while view:
                written = self._file.write(view)
                self.offset += written
                view = view[written:]
        self.report(0)

    def mark(self, note: str) -> None:
        """Bytes first, then the mark that vouches for them."""
        with disk_errors(self.scratch.parent):
            os.fdatasync(self._file.fileno())
            new = self._mark.with_suffix(".new")
            new.write_bytes(msgspec.json.encode((self.offset, note)))
            new.replace(self._mark)
        self.note = note

    def restart(self) -> None:
        """Back to nothing."""
        with disk_errors(self.scratch.parent):
            self._mark.unlink(missing_ok=True)
            self._file.truncate(0)
            self._file.seek(0)
        self.offset, self.note = 0, ""

    def adopt(self, path: Path) -> bool:
        """Link the file here; it stays its owner's and is never written to."""
        with suppress(OSError):
            os.link(path, self._adopted)
            self.offset = self._adopted.stat().st_size
            self.report(0)
            return True
        return False

    def report(self, ahead_bytes: int) -> None:
        """Tell the progress callback, at most ten times a second."""
        self._report(self.offset + ahead_bytes)

    def close(self) -> None:
        """Keep what is marked, delete the scratch folder."""
        self._file.close()
        shutil.rmtree(self.scratch, ignore_errors=True)

    def _resume(self) -> tuple[int, str]:
        try:
            offset, note = read_json(self._mark, tuple[int, str])
        except (FileNotFoundError, msgspec.MsgspecError):
            offset, note = 0, ""
        if self._file.seek(0, os.SEEK_END) < offset:
            offset, note = 0, ""
        self._file.truncate(offset)
        self._file.seek(offset)
        return offset, note


class Meter:
    """Turns a count of bytes into calls of a progress callback, ten a second and a last one."""

    def __init__(self, artifact: Artifact, source: str, progress: Progress) -> None:
        self._artifact = artifact
        self._source = shown(source)
        self._progress = progress
        self._next = 0.0

    def __call__(self, done_bytes: int) -> None:
        """Report that so many bytes are here."""
        total = self._artifact.size_bytes
        now = time.monotonic()
        if now >= self._next or done_bytes == total:
            self._next = now + REPORT_EVERY_S
            done = min(done_bytes, total) if total else done_bytes
            self._progress(self._artifact.model, done, total, self._source)


@contextmanager
def disk_errors(folder: Path) -> Iterator[None]:
    """Turns what the disk refuses into `ArtifactUnavailable`, which no other source can mend."""
    try:
        yield
    except OSError as failure:
        what = "the disk is full" if failure.errno in _FULL else failure.strerror or str(failure)
        raise ArtifactUnavailable(f"{folder} can't be written: {what}") from failure
