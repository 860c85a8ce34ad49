"""Keys of upstreams as gateways find them: those that programs print, as private files.

Whoever reads a key by its file sees by a number whether it is another one, not which.
"""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final

from tiffin.config.remote import RemoteModel, UpstreamKey
from tiffin.config.schema import Config
from tiffin.types.whole_file import replace_file

KeyFile = tuple[str, int]

SUFFIX: Final = ".key"


class KeyFiles:
    """The folder must be there and private. Methods but `seen` raise `OSError`."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._known: dict[str, KeyFile] = {}

    def put(self, config: Config, keys: Mapping[str, str]) -> None:
        """Leave the keys of models whose section names a program, and no others."""
        wanted = {self._path(name): keys[name] for name, key in _keys(config) if key.key_command}
        for path, key in wanted.items():
            if not path.exists() or path.read_text() != key:
                replace_file(path, key.encode(), lasting=False)
        for path in self._folder.glob(f"upstream-*{SUFFIX}"):
            if path not in wanted:
                path.unlink(missing_ok=True)

    def seen(self, config: Config) -> Mapping[str, KeyFile]:
        """Where keys are that lie in files, by the names that `RemoteModel.every_key` gives them,
        and a number that goes with the content.

        Of one that can't be looked at now it is the last that was.
        """
        known, self._known = self._known, {}
        for name, key in _keys(config):
            if not (key.key_file or key.key_command):
                continue
            path = Path(key.key_file).expanduser() if key.key_file else self._path(name)
            before = known.get(name, ("", 0))
            try:
                self._known[name] = str(path), path.stat().st_mtime_ns
            except OSError:
                self._known[name] = before if before[0] == str(path) else (str(path), 0)
        return self._known

    def _path(self, name: str) -> Path:
        return self._folder / f"upstream-{name}{SUFFIX}"


def _keys(config: Config) -> Iterator[tuple[str, RemoteModel | UpstreamKey]]:
    for model_name, model in config.models.items():
        if isinstance(model, RemoteModel):
            for name, _, key in model.every_key(model_name):
                yield name, key
