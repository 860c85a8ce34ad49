"""The keyring's file, which control alone writes: each change is on disk before it is told.

Gateways follow it: a change that is appended is in force on all of them a moment later.
"""

import os
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path

import msgspec

from tiffin.errors import SchemaViolation, Unavailable
from tiffin.telemetry import log
from tiffin.types.ids import new_id
from tiffin.types.keyring import MAX_LINE_BYTES, Damaged, Head, Line, read_head, read_line, spelled
from tiffin.types.whole_file import replace_file

SPARE_LINES = 2_000
"""Lines of the past that a file may have beside as many as there are things."""


class RingFile:
    """One file. `fault` says why nothing can be changed, or is empty."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._epoch = ""
        self._serial = 0
        self._lines = 0
        self._doubtful = False
        self.fault = ""

    def load(self) -> Iterator[Line]:
        """All lines, up to one that is broken; then `fault` says so.

        What a crash left behind the last whole line is cut off: nobody was told that it was done.
        """
        try:
            yield from self._load()
        except (OSError, Damaged) as failure:
            self.fault = (
                f"the keyring {self._path} can't be read ({failure}); put back a copy of it,"
                " or move it away to begin without the keys that were made through the API"
            )
            log.error("keyring unreadable", reason=self.fault)

    def append(self, lines: Iterable[Line]) -> None:
        """Write changes, numbered; raises `Unavailable`, and none of them is there then.

        One that is longer than anybody reads is a `SchemaViolation`.
        """
        if self.fault:
            raise Unavailable(self.fault)
        if self._doubtful or not self._epoch:
            raise Unavailable("the keyring has to be written anew first", retry_after=1.0)
        numbered = [
            msgspec.structs.replace(line, n=self._serial + 1 + at) for at, line in enumerate(lines)
        ]
        content = [spelled(line) for line in numbered]
        if max(map(len, content), default=0) > MAX_LINE_BYTES:
            raise SchemaViolation(
                f"that is more than {MAX_LINE_BYTES} bytes; have fewer limits, budgets or models"
            )
        try:
            self._write(b"".join(content))
        except OSError as cause:
            # Somebody may have read what was there for a moment; the next file begins anew.
            self._doubtful = True
            raise Unavailable(f"the keyring can't be written: {cause}", retry_after=1.0) from cause
        self._serial += len(numbered)
        self._lines += len(numbered)

    def needs_rewriting(self, things: int) -> bool:
        """Whether it has to be written anew, or has far more lines than there are things."""
        doubtful = self._doubtful or not self._epoch
        return not self.fault and (doubtful or self._lines > 2 * things + SPARE_LINES)

    def rewrite(self, lines: Iterable[Line]) -> None:
        """Replace the file by one that says all that there is; raises `Unavailable`."""
        if self.fault:
            raise Unavailable(self.fault)
        if self._doubtful or not self._epoch:
            self._epoch = new_id("ring")
        past = [
            spelled(msgspec.structs.replace(line, n=at)) for at, line in enumerate(lines, start=1)
        ]
        content = b"".join(past)
        head = Head(epoch=self._epoch, serial=self._serial, lines=len(past), bytes=len(content))
        try:
            replace_file(self._path, spelled(head), content)
        except OSError as cause:
            self._doubtful = True
            raise Unavailable(f"the keyring can't be written: {cause}", retry_after=1.0) from cause
        self._lines = len(past)
        self._doubtful = False

    def _load(self) -> Iterator[Line]:
        try:
            file = self._path.open("rb")
        except FileNotFoundError:
            return
        with file:
            head_line = file.readline()
            if not head_line.endswith(b"\n"):
                raise Damaged("it has no head")
            head = read_head(head_line[:-1])
            good = len(head_line)
            self._serial, left = head.serial, head.lines
            for raw in file:
                if not raw.endswith(b"\n"):
                    break
                line = read_line(raw[:-1])
                left -= 1
                if left < 0:
                    if line.n != self._serial + 1:
                        raise Damaged(f"line {self._serial + 1} is missing")
                    self._serial = line.n
                good += len(raw)
                self._lines += 1
                yield line
        if left > 0:
            raise Damaged("it ends too early")
        self._epoch = head.epoch
        if self._path.stat().st_size > good:
            os.truncate(self._path, good)
            log.warning("a keyring's line that was never whole was cut off", path=str(self._path))

    def _write(self, content: bytes) -> None:
        fd = os.open(self._path, os.O_WRONLY | os.O_APPEND | os.O_CLOEXEC)
        size = os.fstat(fd).st_size
        try:
            if os.write(fd, content) != len(content):
                raise OSError("it was written in part; is the disk full?")
            os.fsync(fd)
        except OSError:
            with suppress(OSError):
                os.ftruncate(fd, size)
            raise
        finally:
            os.close(fd)
