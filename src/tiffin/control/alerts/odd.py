"""Whose requests gateways find odd, as they last said it."""

from collections.abc import Iterator
from pathlib import Path

import msgspec

from tiffin.types.anomalies import Oddities, Oddity
from tiffin.types.json_file import read_json


def odd_in(run: Path) -> Iterator[Oddity]:
    """All of them, by the files of a run folder; what can't be read is told another time."""
    for path in sorted(run.glob("*.odd.json")):
        try:
            found = read_json(path, Oddities)
        except (OSError, msgspec.MsgspecError):
            continue
        yield from found.keys
