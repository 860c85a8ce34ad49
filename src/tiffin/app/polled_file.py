"""A JSON file that another process replaces now and then, read again only when it changed."""

from pathlib import Path
from typing import Generic, TypeVar

import msgspec

from tiffin.types.json_file import read_json

T = TypeVar("T")


class PolledFile(Generic[T]):
    """Reads `path` as `kind`, whose unknown fields are ignored."""

    def __init__(self, path: Path, kind: type[T]) -> None:
        self._path = path
        self._kind = kind
        self._seen = (0, 0, 0)

    def changed(self) -> T | None:
        """The file's value if it is another file than last time and makes sense, else nothing.

        One that can't be opened now is tried again at the next look.
        """
        try:
            stat = self._path.stat()
            seen = (stat.st_ino, stat.st_mtime_ns, stat.st_size)
            if seen == self._seen:
                return None
            value = read_json(self._path, self._kind)
        except OSError:
            return None
        except msgspec.DecodeError:
            value = None
        self._seen = seen
        return value
