"""Where models' files come from, and where they are kept under their digest.

Contract:
- Every source of an artifact gives the same bytes; the sha256 decides, never the source.
- A source writes into a `Landing` and raises `ArtifactError` when it can't give the bytes; then the
  next source is tried. `ArtifactUnavailable` means that no source can help (the disk is full).
- What a landing has marked survives a crash and isn't fetched again; what came after the last mark
  is dropped. A landing is nobody's file until the store has accepted it.
- All of this blocks: it runs in a thread, never on an event loop. Setting `stop` ends it soon, with
  `Draining`; what was marked stays.
"""

import re
import threading
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Protocol

import msgspec

Progress = Callable[[str, int, int, str], None]
"""Told of (model, bytes here, bytes in all or 0 where unknown, source) as a pull goes on."""


class Artifact(msgspec.Struct, frozen=True, kw_only=True):
    """A file that a model needs: its sha256 (64 hex digits), and sources in order of preference.

    `size_bytes` 0 means that the size isn't declared; `where` is the setting that lists the
    sources. `chats` says that the model answers conversations, for which people wait first.
    """

    model: str
    sha256: str
    size_bytes: int = 0
    sources: tuple[str, ...] = ()
    where: str = ""
    chats: bool = False


class Landing(Protocol):
    """A growing file that one source fills; `offset` bytes are in it.

    `note` is what the source wrote at the last mark, empty at the start. `scratch` is a folder for
    the source's own files, emptied before and after each use. `size_bytes` is 0 where undeclared.
    """

    offset: int
    note: str
    size_bytes: int
    scratch: Path
    stop: threading.Event

    def expect(self, more_bytes: int, *, last: bool) -> None:
        """Say how many bytes come next, and whether the whole ends with them.

        Raises `ArtifactError` where that contradicts the declared size, `ArtifactUnavailable`
        where the disk has no room for them.
        """
        ...

    def write(self, chunk: bytes | memoryview) -> None:
        """Append; raises `ArtifactError` past the declared size, `Draining` once stopped."""
        ...

    def mark(self, note: str) -> None:
        """Make everything written so far, and the note, survive a crash."""
        ...

    def restart(self) -> None:
        """Forget all bytes and the note."""
        ...

    def adopt(self, path: Path) -> bool:
        """Take a file of this machine as the whole by a hard link; false where that can't be."""
        ...

    def report(self, ahead_bytes: int) -> None:
        """Tell of progress that isn't written yet."""
        ...


class ArtifactSource(Protocol):
    """One way to get bytes, by a URI of its scheme."""

    def check(self, uri: str) -> None:
        """Raise `ConfigInvalid` where the URI can't be right; no I/O."""
        ...

    def fetch(self, uri: str, landing: Landing) -> None:
        """Bring what is missing, from `landing.offset` on."""
        ...


class ArtifactStore(Protocol):
    """Verified files by digest; shared by processes."""

    def find(self, sha256: str) -> Path | None:
        """The file of this digest, or None; it was verified when it came."""
        ...

    def claim(self, artifact: Artifact, stop: threading.Event) -> AbstractContextManager[None]:
        """Hold the sole right to bring this digest; waits while another process has it."""
        ...

    def landing(
        self, artifact: Artifact, source: str, progress: Progress, stop: threading.Event
    ) -> AbstractContextManager[Landing]:
        """Open the landing of a source under a claim, with what an earlier try marked."""
        ...

    def accept(self, artifact: Artifact, source: str) -> Path:
        """Verify the source's landing and make it the file; raises `DigestMismatch`."""
        ...

    def sweep(self) -> None:
        """Delete what interrupted pulls left a week or longer ago and nobody holds."""
        ...


def shown(uri: str) -> str:
    """A URI as people may see it: without user, password and query."""
    return re.sub(r"//[^/]*@", "//", re.split(r"[?#]", uri)[0], count=1)
