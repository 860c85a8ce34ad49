"""Measures, in control's spare time, the engines of models that leave the choice to Tiffin."""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from pathlib import Path
from typing import Any, Final

from tiffin.app.calibrate import LEAN, Effort, calibrate, is_whole
from tiffin.config.models import GGUF, LlamacppModel
from tiffin.control.office import Office
from tiffin.control.publish import Publisher
from tiffin.ports.clock import Clock
from tiffin.serving.progress import Phase, read_progress
from tiffin.telemetry import log
from tiffin.types.calibration import Calibration

ROOM: Final = 3
"""How many times the file's size must be free: for the engine's own form of it, and to spare."""
LOOK_EVERY_S: Final = 0.25
QUIET_S: Final = 10.0
"""How long nobody must have asked anything before measuring begins."""
PAUSE_S: Final = 300.0
"""How long a measurement that gave way to requests isn't begun again."""

Calibrate = Callable[[LlamacppModel, Path, int, Effort], Coroutine[Any, Any, Calibration]]


class Calibrating:
    """One model after another, once each has a replica that serves: nobody waits for this.

    Whoever asks something meanwhile goes before: what measures ends at once, and begins again
    later. A model that couldn't be measured is tried again after the next start, not before.
    """

    def __init__(
        self,
        office: Office,
        publisher: Publisher,
        clock: Clock,
        run: Path,
        calibrate: Calibrate = calibrate,
    ) -> None:
        self._office = office
        self._publisher = publisher
        self._clock = clock
        self._calibrate = calibrate
        self._activity = Activity(run, clock)
        self._tried: set[str] = set()
        self._again = 0.0

    async def step(self) -> int:
        """Measure the next model that has to be, if one can be now; how many were."""
        self._activity.look(self._replicas())
        if self._clock.monotonic() < self._again or self._activity.quiet_s() < QUIET_S:
            return 0
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
            log.info("measuring engines", model=name)
            return self._keep(name, await self._undisturbed(model, path, threads))
        return 0

    def _keep(self, name: str, calibration: Calibration | None) -> int:
        if calibration is None:
            self._again = self._clock.monotonic() + PAUSE_S
            log.info("engines are measured later: requests go before", model=name)
            return 0
        self._tried.add(name)
        if not is_whole(calibration):
            log.warning("the machine is too busy to measure engines", model=name)
            return 0
        self._office.calibrations.keep(calibration)
        log.info("engine chosen", model=name, engine=calibration.engine, why=calibration.why)
        return 1

    async def _undisturbed(
        self, model: LlamacppModel, path: Path, threads: int
    ) -> Calibration | None:
        """What was measured, or nothing as soon as somebody asked something."""
        measuring = asyncio.ensure_future(self._calibrate(model, path, threads, LEAN))
        try:
            while not measuring.done():
                await asyncio.wait({measuring}, timeout=LOOK_EVERY_S)
                self._activity.look(self._replicas())
                if not measuring.done() and self._activity.asked:
                    return None
            return measuring.result()
        finally:
            measuring.cancel()
            await _ended(measuring)

    def _replicas(self) -> list[str]:
        snapshot = self._publisher.current
        return [one.name for one in snapshot.deployments] if snapshot else []

    def _running(self, model: str) -> tuple[Path | None, int]:
        """The file and the threads of a model's replica that is ready."""
        snapshot = self._publisher.current
        for one in snapshot.deployments if snapshot else ():
            if one.model == model and one.name in self._office.ready:
                return Path(one.files[GGUF].path), one.threads
        return None, 1


class Activity:
    """When replicas last had something to do, by the counters that they keep in `run`.

    `asked` is whether it was somebody's request, and no start of a replica.
    """

    def __init__(self, run: Path, clock: Clock) -> None:
        self._run = run
        self._clock = clock
        self._steps: dict[str, int] = {}
        self._busy_at = clock.monotonic()
        self._looked_at = self._busy_at
        self.asked = False

    def look(self, names: list[str]) -> None:
        """Compare what the replicas of these names have done with the last look."""
        self._looked_at = self._clock.monotonic()
        steps: dict[str, int] = {}
        self.asked = starting = False
        for name in names:
            progress = read_progress(self._run / f"{name}.progress")
            if progress.phase < Phase.READY:
                # One that has no file yet doesn't beat: it may never come.
                starting |= progress.heartbeat > 0
                continue
            steps[name] = progress.steps
            if progress.outstanding or progress.steps != self._steps.get(name, progress.steps):
                self.asked = True
        if self.asked or starting:
            self._busy_at = self._looked_at
        self._steps = steps

    def quiet_s(self) -> float:
        """For how long nothing was to be done, as of the last look."""
        return self._looked_at - self._busy_at


async def _ended(task: Awaitable[Any]) -> None:
    """Wait for the end of what was cancelled: its process is gone then."""
    await asyncio.gather(task, return_exceptions=True)


def _available_bytes(meminfo: Path = Path("/proc/meminfo")) -> int:
    for line in meminfo.read_text().splitlines():
        name, _, amount = line.partition(":")
        if name == "MemAvailable":
            return int(amount.split()[0]) * 1024
    return 0
