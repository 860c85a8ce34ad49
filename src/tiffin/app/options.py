"""What a supervisor is to serve."""

from dataclasses import dataclass
from pathlib import Path

from tiffin.app.handover import Handover
from tiffin.config.schema import Server, Telemetry


@dataclass(frozen=True, slots=True)
class Options:
    """What to serve: `data` is absolute, `config_path` is empty where there is no file.

    `taken` is what the program left that this process was before, `lost` why that couldn't be had.
    """

    data: Path
    server: Server
    telemetry: Telemetry
    config_path: str = ""
    taken: Handover | None = None
    lost: str = ""
