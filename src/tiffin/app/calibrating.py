"""Measures, in control's spare time, the engines of models that leave the choice to Tiffin."""

from pathlib import Path
from typing import Final

from tiffin.app.calibrate import calibrate, is_whole
from tiffin.config.models import GGUF, LlamacppModel
from tiffin.control.office import Office
from tiffin.control.publish import Publisher
from tiffin.telemetry import log

ROOM: Final = 3
"""How many times the file's size must be free: for the engine's own form of it, and to spare."""


class Calibrating:
    """One model after another, once each has a replica that serves: nobody waits for this.

    A model that couldn't be measured is tried again after the next start, not before.
    """

    def __init__(self, office: Office, publisher: Publisher) -> None:
        self._office = office
        self._publisher = publisher
        self._tried: set[str] = set()

    async def step(self) -> int:
        """Measure the next model that has to be, if one can be now; how many were."""
        models = self._office.config.models
        for name in self._office.calibrations.undecided(models):
            path, threads = self._running(name)
            model = models[name]
            if name in self._tried or path is None or not isinstance(model, LlamacppModel):
                continue
            if _available_bytes() < ROOM * path.stat().st_size:
                log.warning("too little memory to measure engines", model=name)
                self._tried.add(name)
                continue
            self._tried.add(name)
            log.info("measuring engines", model=name)
            calibration = await calibrate(model, path, threads)
            if not is_whole(calibration):
                log.warning("the machine is too busy to measure engines", model=name)
                continue
            self._office.calibrations.keep(calibration)
            log.info("engine chosen", model=name, engine=calibration.engine, why=calibration.why)
            return 1
        return 0

    def _running(self, model: str) -> tuple[Path | None, int]:
        """The file and the threads of a model's replica that is ready."""
        snapshot = self._publisher.current
        for one in snapshot.deployments if snapshot else ():
            if one.model == model and one.name in self._office.ready:
                return Path(one.files[GGUF].path), one.threads
        return None, 1


def _available_bytes(meminfo: Path = Path("/proc/meminfo")) -> int:
    for line in meminfo.read_text().splitlines():
        name, _, amount = line.partition(":")
        if name == "MemAvailable":
            return int(amount.split()[0]) * 1024
    return 0
