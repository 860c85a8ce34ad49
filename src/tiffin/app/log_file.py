"""Where every process's output ends up: one JSON log, bounded by rotation, nobody waits for it."""

import os
from pathlib import Path
from typing import Any

import msgspec

from tiffin.telemetry.log import Write, render, stamp

FILES = 4


class LogFile:
    """Appends lines to `<folder>/tiffin.jsonl`; its generations together stay under `max_bytes`.

    What can't be written (disk full) is dropped and counted in `dropped`; the log says so itself
    when it can be written again.
    """

    def __init__(self, folder: Path, max_bytes: int) -> None:
        self.dropped = 0
        self._noted = 0
        self._path = folder / "tiffin.jsonl"
        self._each = max(1, max_bytes // FILES)
        self._fd = -1
        self._size = 0

    def write(self, line: bytes) -> None:
        """Append one line, its newline included; never raises."""
        try:
            self._append(line)
        except OSError:
            self.dropped += 1
            self.close()

    def close(self) -> None:
        """Let go of the file; a later write opens it again."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1

    def _append(self, line: bytes) -> None:
        if self._fd < 0:
            self._open()
        if self.dropped != self._noted:
            missed = {"level": "warning", "event": "log lines dropped"}
            self._put(render({"at": stamp(), **missed, "count": self.dropped - self._noted}))
            self._noted = self.dropped
        self._put(line)

    def _put(self, line: bytes) -> None:
        if len(line) > self._each:
            raise OSError("the line is longer than the log may be")
        if self._size + len(line) > self._each:
            self._rotate()
        sent = os.write(self._fd, line)
        if sent < len(line):
            os.ftruncate(self._fd, self._size)
            raise OSError("the disk took only a part of the line")
        self._size += sent

    def _open(self) -> None:
        flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC
        self._fd = os.open(self._path, flags, 0o600)
        self._size = os.fstat(self._fd).st_size

    def _rotate(self) -> None:
        self.close()
        generations = [
            self._path,
            *(self._path.with_suffix(f".jsonl.{n}") for n in range(1, FILES)),
        ]
        for older, newer in reversed(list(zip(generations[1:], generations[:-1], strict=True))):
            if newer.exists():
                newer.replace(older)
        self._open()


class Voice:
    """Takes what one process prints, line by line, and writes it as log lines that name it.

    `last` is the last thing said that may explain an end, redacted.
    """

    def __init__(self, process: str, write: Write) -> None:
        self.last = ""
        self._process = process
        self._write = write

    def __call__(self, line: bytes) -> None:
        event = _parse(line)
        if event is None:
            text = line.decode("utf-8", "replace").rstrip()
            event = {"at": stamp(), "level": "info", "event": text}
        written = render({**event, "process": self._process})
        self.last = _gist(written)
        self._write(written)


def _parse(line: bytes) -> dict[str, Any] | None:
    """The line as one of our own log lines, or nothing."""
    if not line.startswith(b"{"):
        return None
    try:
        event = msgspec.json.decode(line)
    except (msgspec.DecodeError, RecursionError):
        return None
    return event if isinstance(event, dict) and "event" in event else None


def _gist(line: bytes) -> str:
    event: dict[str, Any] = msgspec.json.decode(line)
    return str(event.get("error") or event.get("event", ""))[:500]
