"""The audit log's file: appended to by control alone, synced before anybody is told that it's done.

Where it ends is written beside it after each line, and into control's own log.
"""

import os
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from threading import Lock
from typing import Final

import msgspec
from msgspec.structs import replace

from tiffin.control.audit.chain import (
    BROKEN,
    Entry,
    Finding,
    Head,
    Verdict,
    linked,
    read,
    verify,
)
from tiffin.errors import Unavailable
from tiffin.ports.clock import Clock
from tiffin.telemetry import log
from tiffin.types.json_file import read_json
from tiffin.types.whole_file import replace_file

MAX_BYTES: Final = 1 << 30
MAX_LINE_BYTES: Final = 65_536


class AuditLog:
    """One installation's audit log. Use `record` from any thread; it blocks until it's on disk.

    `fault` says what was wrong with it when it was first looked at, or is empty.
    """

    def __init__(self, path: Path, head_path: Path, clock: Clock) -> None:
        self.path = path
        self._head_path = head_path
        self._clock = clock
        self._lock = Lock()
        self._head: Head | None = None
        self.fault = ""

    def record(
        self,
        by: tuple[str, str],
        action: str,
        what: str,
        *,
        before: str = "",
        after: str = "",
        outcome: str = "",
    ) -> None:
        """Append what somebody (name, role) does; raises `Unavailable`, and it isn't there then."""
        with self._lock:
            head = self._begun()
            who, role = by
            entry = Entry(
                n=head.n + 1,
                at_ns=self._clock.now_ns(),
                by=who,
                role=role,
                action=action,
                what=what[:512],
                before=before,
                after=after,
                outcome=outcome[:512],
                prev=head.hash,
            )
            self._append(entry)

    def check(self) -> None:
        """Raise `Unavailable` where nothing could be recorded now."""
        with self._lock:
            self._begun()

    def entries(
        self,
        *,
        after: int = 0,
        limit: int = 100,
        wanted: Callable[[Entry], bool] = lambda entry: True,
    ) -> list[Entry]:
        """Entries with higher numbers, the oldest first, as far as they can be read."""
        found: list[Entry] = []
        for line in lines_of(self.path):
            entry = read(line)
            if entry is not None and entry[0].n > after and wanted(entry[0]):
                found.append(entry[0])
                if len(found) == limit:
                    break
        return found

    def verify(self, *noted: Head) -> Verdict:
        """Check all of it, against where it ended, also by what is known here, and by `noted`."""
        with self._lock:
            known = () if self._head is None else (self._head,)
            return verify_files(self.path, self._head_path, *known, *noted)

    def _begun(self) -> Head:
        """Where the log ends; looks for that first, and mends what a crash left."""
        try:
            if self._head is None:
                self._head = self._find_end()
            if self.path.exists() and self.path.stat().st_size > MAX_BYTES:
                raise Unavailable(
                    f"the audit log {self.path} is full; verify it, move it and its head away"
                )
        except OSError as cause:
            raise Unavailable(f"the audit log can't be read: {cause}", retry_after=1.0) from cause
        return self._head

    def _find_end(self) -> Head:
        _cut_torn_line(self.path)
        known = read_head(self._head_path)
        verdict = verify_files(self.path, self._head_path)
        if verdict.intact:
            return verdict.head
        last = verdict.head if verdict.head.hash else Head(n=verdict.head.n)
        finding = verdict.findings[-1]
        self.fault = f"the audit log isn't as it was written: {finding.problem}"
        log.error("the audit log isn't as it was written", line=finding.line, said=finding.problem)
        if finding.line:
            return last
        # What is known of its end is about to be written over: the log itself has to say it.
        entry = Entry(
            n=last.n + 1,
            at_ns=self._clock.now_ns(),
            by="control",
            action=BROKEN,
            what=f"{known.n} {known.hash}" if known else "where it ended",
            prev=last.hash,
        )
        return self._append(entry)

    def _append(self, entry: Entry) -> Head:
        line, head = linked(entry)
        try:
            self._write(line, head)
        except OSError as cause:
            self._head = None  # what is there is looked at again
            raise Unavailable(
                f"the audit log can't be written: {cause}", retry_after=1.0
            ) from cause
        self._head = head
        log.info("audit", n=entry.n, hash=head.hash, by=entry.by, action=entry.action)
        return head

    def _write(self, line: bytes, head: Head) -> None:
        if not self._head_path.exists():  # there is no line without a word of where it ends
            replace_file(self._head_path, msgspec.json.encode(Head()))
        fd = os.open(self.path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)
        size = os.fstat(fd).st_size
        try:
            if os.write(fd, line) != len(line):
                raise OSError("it was written in part; is the disk full?")
            os.fsync(fd)
            replace_file(self._head_path, msgspec.json.encode(head))
        except OSError:
            with suppress(OSError):
                os.ftruncate(fd, size)
            raise
        finally:
            os.close(fd)


def read_head(path: Path) -> Head | None:
    """Where a log ended when it was last written; none where nobody knows."""
    try:
        return read_json(path, Head)
    except (OSError, msgspec.MsgspecError):
        return None


def verify_files(path: Path, head_path: Path, *noted: Head) -> Verdict:
    """Check a log where it lies, whoever runs; raises `OSError`."""
    head = read_head(head_path)
    if head is not None:
        return verify(lines_of(path), head, *noted)
    verdict = verify(lines_of(path), *noted)
    if not verdict.lines:
        return verdict
    problem = f"where it ended isn't told any more: {head_path.name} is gone or makes no sense"
    findings = [*verdict.findings, Finding(line=0, problem=problem)]
    return replace(verdict, intact=False, findings=findings)


def lines_of(path: Path) -> Iterator[bytes]:
    """The lines of a file without their newlines; none where there is no file.

    What follows the last newline isn't one: nobody was told that it was written.
    """
    try:
        file = path.open("rb")
    except FileNotFoundError:
        return
    with file:
        while line := file.readline(MAX_LINE_BYTES):
            if not line.endswith(b"\n") and len(line) < MAX_LINE_BYTES:
                return
            yield line.removesuffix(b"\n")


def _cut_torn_line(path: Path) -> None:
    """Drop what follows the last newline: a line that was never whole, and nobody was told of."""
    try:
        size = path.stat().st_size
    except FileNotFoundError:
        return
    with path.open("r+b") as file:
        start = max(0, size - MAX_LINE_BYTES)
        file.seek(start)
        tail = file.read()
        end = tail.rfind(b"\n")
        if not tail or end == len(tail) - 1:
            return
        if end < 0 and start:
            return  # no line of ours is that long
        file.truncate(start + end + 1)
        log.warning("an audit line that was never whole was cut off", bytes=len(tail) - end - 1)
