"""Model files on disk under their sha256: whole and verified, or not there.

`sha256/<hex>` is a finished file. `partial/<hex>/<source>/` holds what a source has brought so far
(`content`, `mark`, `scratch/`); `partial/<hex>.lock` is locked while somebody brings it.
"""

import fcntl
import hashlib
import os
import shutil
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from tiffin.adapters.stores.landing import Meter, PartialFile, disk_errors
from tiffin.errors import ArtifactUnavailable, DigestMismatch, Draining
from tiffin.ports.artifacts import Artifact, Progress, shown

STALE_S = 7 * 86_400.0
LOCK_POLL_S = 0.1


def verify(path: Path, sha256: str) -> None:
    """Raise unless the file's bytes have this digest; reads the whole file, so in a thread.

    One that the store keeps under a digest which it no longer has is deleted, to be fetched again:
    the disk rotted, or somebody wrote to the file that it was linked to.
    """
    try:
        got, size = _digest(path)
    except OSError as failure:
        raise ArtifactUnavailable(f"{path} can't be read: {failure.strerror}") from failure
    if got != sha256:
        if path.name == sha256:
            path.unlink(missing_ok=True)
        raise DigestMismatch(f"{path} has sha256 {got} ({size} bytes), expected {sha256}")


def free_bytes(folder: Path) -> int:
    """What the folder's disk can still take."""
    return shutil.disk_usage(folder).free


class LocalArtifactStore:
    """The store below one folder, made when first used."""

    def __init__(self, root: Path, *, free_bytes: Callable[[Path], int] = free_bytes) -> None:
        self._root = root
        self._finished = root / "sha256"
        self._partial = root / "partial"
        self._free_bytes = free_bytes

    def find(self, sha256: str) -> Path | None:
        """The file of this digest, or None."""
        path = self._finished / sha256
        return path if path.is_file() else None

    @contextmanager
    def claim(self, artifact: Artifact, stop: threading.Event) -> Iterator[None]:
        """Hold the digest's lock; leftovers of sources that are no longer listed are deleted."""
        lock = self._partial / f"{artifact.sha256}.lock"
        with disk_errors(self._partial):
            for folder in (self._root, self._finished, self._partial):
                folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            while (held := _lock(lock)) is None:
                if stop.wait(LOCK_POLL_S):
                    raise Draining(f"stopped while another process fetched {artifact.model}")
        try:
            self._drop_strangers(artifact)
            yield
        finally:
            _unlock(lock, held)

    @contextmanager
    def landing(
        self, artifact: Artifact, source: str, progress: Progress, stop: threading.Event
    ) -> Iterator[PartialFile]:
        """The source's landing, cut back to its last mark."""
        landing = PartialFile(
            self._folder(artifact, source),
            size_bytes=artifact.size_bytes,
            free_bytes=self._free_bytes,
            stop=stop,
            report=Meter(artifact, source, progress),
        )
        try:
            yield landing
        finally:
            landing.close()

    def accept(self, artifact: Artifact, source: str) -> Path:
        """Verify and publish; a landing with another digest is deleted."""
        folder = self._folder(artifact, source)
        adopted, content = folder / "adopted", folder / "content"
        final = self._finished / artifact.sha256
        with disk_errors(folder):
            arrived = adopted if adopted.exists() else content
            got, size = _digest(arrived)
            if got != artifact.sha256 or artifact.size_bytes not in (0, size):
                shutil.rmtree(folder)
                raise DigestMismatch(
                    f"{shown(source)} gave sha256 {got} ({size} bytes),"
                    f" expected {artifact.sha256} ({artifact.size_bytes or 'any number of'} bytes)"
                )
            if arrived is content:
                content.chmod(0o400)
            _sync(arrived)
            arrived.replace(final)
            _sync(self._finished)
            shutil.rmtree(folder.parent)
        return final

    def sweep(self) -> None:
        """Delete what has lain untouched for a week or has arrived; what somebody holds stays."""
        entries = sorted(self._partial.iterdir()) if self._partial.is_dir() else []
        for entry in entries:
            digest = entry.name.removesuffix(".lock")
            if not self.find(digest) and time.time() - _last_change(entry) < STALE_S:
                continue
            lock = self._partial / f"{digest}.lock"
            if (held := _lock(lock)) is None:
                continue
            if entry.is_dir():
                shutil.rmtree(entry, ignore_errors=True)
            else:
                entry.unlink(missing_ok=True)
            _unlock(lock, held)

    def _folder(self, artifact: Artifact, source: str) -> Path:
        return self._partial / artifact.sha256 / hashlib.sha256(source.encode()).hexdigest()[:16]

    def _drop_strangers(self, artifact: Artifact) -> None:
        listed = {self._folder(artifact, source) for source in artifact.sources}
        for folder in (self._partial / artifact.sha256).glob("*"):
            if folder not in listed:
                shutil.rmtree(folder, ignore_errors=True)


def _digest(path: Path) -> tuple[str, int]:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest(), file.tell()


def _lock(path: Path) -> int | None:
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        # The last holder deletes the file: a lock on a file without its name locks out nobody.
        if os.path.samestat(os.fstat(descriptor), path.stat()):
            return descriptor
    except (BlockingIOError, FileNotFoundError):
        pass
    os.close(descriptor)
    return None


def _unlock(path: Path, descriptor: int) -> None:
    path.unlink(missing_ok=True)
    os.close(descriptor)


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _last_change(entry: Path) -> float:
    try:
        return max(path.stat().st_mtime for path in (entry, *entry.rglob("*")))
    except FileNotFoundError:
        return time.time()
