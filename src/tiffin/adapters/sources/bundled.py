"""`package:path`: a file that is part of Tiffin itself, there without any network."""

from importlib import resources
from pathlib import PurePosixPath

from tiffin.errors import ArtifactError, ConfigInvalid
from tiffin.ports.artifacts import Landing


class BundledSource:
    """Files below the installed package, by their path in it: `package:starter/model.onnx`."""

    def check(self, uri: str) -> None:
        """Refuse a path that leads out of the package."""
        _path(uri)

    def fetch(self, uri: str, landing: Landing) -> None:
        """Copy it: an upgrade of Tiffin must not change what the store holds."""
        found = resources.files("tiffin").joinpath(*_path(uri).parts)
        try:
            content = found.read_bytes()
        except OSError as failure:
            raise ArtifactError(f"this Tiffin has no file {_path(uri)}") from failure
        landing.restart()
        landing.expect(len(content), last=True)
        landing.write(content)


def _path(uri: str) -> PurePosixPath:
    path = PurePosixPath(uri.removeprefix("package:"))
    if path.is_absolute() or not path.parts or ".." in path.parts:
        raise ConfigInvalid("expected a path inside Tiffin, as package:starter/x.onnx", where=uri)
    return path
