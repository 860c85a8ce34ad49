"""A JSON file that somebody else wrote, or an earlier life of this process: read as a value."""

from pathlib import Path
from typing import TypeVar

import msgspec

T = TypeVar("T")


def read_json(path: Path, kind: type[T]) -> T:
    """The file's value; raises `OSError`, and `msgspec.DecodeError` for whatever else it holds.

    Unknown fields are ignored, but one that is nested without end must not end who reads.
    """
    try:
        return msgspec.json.decode(path.read_bytes(), type=kind)
    except RecursionError as error:
        raise msgspec.DecodeError("nested too deeply") from error
