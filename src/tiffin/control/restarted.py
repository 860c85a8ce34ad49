"""How often an operator had a model start anew; kept in the data folder, so that it stays done."""

from collections.abc import Collection, Mapping
from pathlib import Path

import msgspec

from tiffin.telemetry import log
from tiffin.types.json_file import read_json
from tiffin.types.whole_file import replace_file


class Restarted:
    """The number of restarts of each model that had any, by name; on disk before it counts."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self.counts: Mapping[str, int] = {}
        try:
            self.counts = read_json(path, dict[str, int])
        except FileNotFoundError:
            return
        except (OSError, msgspec.MsgspecError) as failure:
            log.error("what was restarted can't be read; it starts anew", error=str(failure))

    def add(self, model: str, known: Collection[str]) -> None:
        """Once more for one of the `known` models; the others' are forgotten. Raises `OSError`."""
        counts = {name: count for name, count in self.counts.items() if name in known}
        counts[model] = counts.get(model, 0) + 1
        replace_file(self._path, msgspec.json.encode(counts))
        self.counts = counts
