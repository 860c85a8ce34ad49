"""`file:/path`: a file of this machine, hard-linked into the store or copied, never changed."""

from pathlib import Path

from tiffin.errors import ArtifactError, ConfigInvalid
from tiffin.ports.artifacts import Landing

CHUNK_BYTES = 1 << 20


class FileSource:
    """Absolute paths, `file:/path` or `file:///path`, taken as they are written (no `%20`)."""

    def check(self, uri: str) -> None:
        """Refuse a relative path: it would mean another file in every process."""
        _path(uri)

    def fetch(self, uri: str, landing: Landing) -> None:
        """Link where the file system can, else copy."""
        path = _path(uri)
        try:
            path = path.resolve(strict=True)
            if not path.is_file():
                raise ArtifactError(f"{path} is not a regular file")
            if landing.adopt(path):
                return
            landing.restart()
            landing.expect(path.stat().st_size, last=True)
            with path.open("rb") as file:
                while chunk := file.read(CHUNK_BYTES):
                    landing.write(chunk)
        except OSError as failure:
            raise ArtifactError(f"{path}: {failure.strerror or failure}") from failure


def _path(uri: str) -> Path:
    address = uri.removeprefix("file:")
    if address.startswith("//"):
        address = address.removeprefix("//")
    if not address.startswith("/"):
        raise ConfigInvalid(
            "file: needs an absolute path on this machine, as file:/path", where=uri
        )
    return Path(address)
