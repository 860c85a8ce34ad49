"""Which models an operator took off this machine; kept in the data folder until they come back."""

from collections.abc import Mapping
from pathlib import Path

import msgspec

from tiffin.telemetry import log
from tiffin.types.json_file import read_json
from tiffin.types.whole_file import replace_file


class Unloaded:
    """The reason for each model that isn't to run, by name; every change is on disk first."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self.reasons: Mapping[str, str] = {}
        try:
            self.reasons = read_json(path, dict[str, str])
        except FileNotFoundError:
            return
        except (OSError, msgspec.MsgspecError) as failure:
            log.error("what was unloaded can't be read; every model is loaded", error=str(failure))

    def add(self, model: str, reason: str) -> None:
        """From now on this model isn't to run; raises `OSError`."""
        self._keep({**self.reasons, model: reason})

    def remove(self, model: str) -> None:
        """From now on it is again; raises `OSError`."""
        self._keep({name: reason for name, reason in self.reasons.items() if name != model})

    def _keep(self, reasons: dict[str, str]) -> None:
        if reasons != self.reasons:
            replace_file(self._path, msgspec.json.encode(reasons))
            self.reasons = reasons
