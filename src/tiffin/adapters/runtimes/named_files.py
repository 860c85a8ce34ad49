"""A model's files under their own names in one folder, where the store knows them by digest."""

import os
import shutil
import tempfile
from collections.abc import Mapping
from pathlib import Path, PurePosixPath

from tiffin.errors import LoadFailed


class NamedFiles:
    """Links to files, by name, in a folder within `beside`, which is made where there is none.

    `close` removes what was made. Raises `LoadFailed` for a bad name.
    """

    def __init__(self, files: Mapping[str, Path], beside: Path) -> None:
        for name in files:
            parts = PurePosixPath(name).parts
            if not parts or parts[0] == "/" or ".." in parts:
                raise LoadFailed(f"a file of a model can't be called '{name}'")
        self._made = None if beside.exists() else beside
        try:
            beside.mkdir(mode=0o700, exist_ok=True)
            self.folder = Path(tempfile.mkdtemp(prefix="files-", dir=beside))
            self.paths = {name: self._place(name, path) for name, path in files.items()}
        except OSError as error:
            raise LoadFailed(f"the model's files can't be laid out: {error}") from error

    def close(self) -> None:
        """Remove the folder; idempotent."""
        shutil.rmtree(self._made or self.folder, ignore_errors=True)

    def _place(self, name: str, path: Path) -> Path:
        place = self.folder / name
        place.parent.mkdir(parents=True, exist_ok=True)
        try:
            # Engines follow no symbolic link out of a model's folder.
            os.link(path.resolve(), place)
        except OSError:
            shutil.copyfile(path, place)
        return place
