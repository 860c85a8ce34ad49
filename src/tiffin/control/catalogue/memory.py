"""How much memory a replica is thought to take, before it has ever run."""

from collections.abc import Mapping
from pathlib import Path

from tiffin.config.models import LocalModel


def estimate(model: LocalModel, files: Mapping[str, Path]) -> int:
    """Bytes for one replica of `model`, whose files are here: those that the files have.

    A file that has gone counts for nothing.
    """
    total = 0
    for path in files.values():
        try:
            total += path.stat().st_size
        except OSError:
            continue
    return total
