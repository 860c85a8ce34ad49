"""A JSON file that another process replaces now and then, read again only when it changed."""

from pathlib import Path
from typing import Generic, TypeVar

import msgspec

T = TypeVar("T")


class PolledFile(Generic[T]):
    """Decodes `path` as `kind`, whose unknown fields are ignored."""

    def __init__(self, path: Path, kind: type[T]) -> None:
        self._path = path
        self._decoder = msgspec.json.Decoder(kind)
        self._seen = (0, 0, 0)

    def changed(self) -> T | None:
        """The file's value if it is another file than last time and can be read, else nothing."""
        try:
            stat = self._path.stat()
            seen = (stat.st_ino, stat.st_mtime_ns, stat.st_size)
            if seen == self._seen:
                return None
            self._seen = seen
            return self._decoder.decode(self._path.read_bytes())
        except (OSError, msgspec.DecodeError):
            return None
