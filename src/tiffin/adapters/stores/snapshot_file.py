"""The published snapshot as a file: read when it changed, kept when it can't be read."""

from pathlib import Path

import msgspec
import structlog

from tiffin.types.snapshot import Snapshot

log = structlog.get_logger("tiffin.snapshot")


class SnapshotFile:
    """Watches one file; `current` is the newest snapshot that could be read, or None."""

    def __init__(self, path: Path) -> None:
        self.current: Snapshot | None = None
        self._path = path
        self._seen: tuple[int, int, int] | None = None
        self._decode = msgspec.json.Decoder(Snapshot).decode

    def poll(self) -> bool:
        """Look whether there's a newer snapshot; true when `current` changed. Costs one stat."""
        try:
            found = self._path.stat()
            seen = (found.st_ino, found.st_mtime_ns, found.st_size)
            if seen == self._seen:
                return False
            self._seen = seen
            fresh = self._decode(self._path.read_bytes())
        except FileNotFoundError:
            return False
        except (OSError, msgspec.MsgspecError) as error:
            log.warning("snapshot_unreadable", error=str(error))
            return False
        if self.current is not None and fresh.number <= self.current.number:
            return False
        self.current = fresh
        return True
