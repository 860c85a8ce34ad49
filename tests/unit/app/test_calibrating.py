"""Control measures engines while nobody asks anything, and gives way at once."""

import asyncio
import hashlib
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.polling import eventually
from tests.unit.control.installation import Installation
from tiffin.app.calibrate import LEAN, OUT_OF_TIME, Effort
from tiffin.app.calibrating import PAUSE_S, QUIET_S, Activity, Calibrating
from tiffin.config.models import LlamacppModel
from tiffin.control.catalogue.revision import revision_of
from tiffin.control.engines.calibrations import engine_versions, machine_id
from tiffin.control.observed import Observed
from tiffin.control.publish import Publisher
from tiffin.serving.progress import Phase, ProgressFile
from tiffin.testing.clock import FakeClock
from tiffin.types.calibration import Calibration, Measured

CONTENT = b"GGUF"
DIGEST = hashlib.sha256(CONTENT).hexdigest()


class Bench:
    """An installation whose model waits to be measured, and what measuring it does."""

    def __init__(self, root: Path) -> None:
        self.site = Installation(root)
        self.site.file.write_text(
            f'[models.m]\nruntime = "llamacpp"\nengine = "auto"\nsources = ["file:/x"]\n'
            f'sha256 = "{DIGEST}"\n'
        )
        file = self.site.folder.artifacts / "sha256" / DIGEST
        file.parent.mkdir(parents=True)
        file.write_bytes(CONTENT)
        self.office = self.site.opened()
        publisher = Publisher(self.site.folder.snapshot)
        assert publisher.current is not None
        [deployment] = publisher.current.deployments
        self.site.observed = Observed(ready=frozenset((deployment.name,)))
        self.office.observe()
        self.progress = ProgressFile(self.site.folder.run / f"{deployment.name}.progress")
        self.progress.phase(Phase.READY)
        self.clock = FakeClock()
        self.begun = 0
        self.ended = False
        self.whole = True
        self.going = asyncio.Event()
        self.going.set()
        self.calibrating = Calibrating(
            self.office, publisher, self.clock, self.site.folder.run, self.calibrate
        )

    async def calibrate(
        self, model: LlamacppModel, path: Path, threads: int, effort: Effort
    ) -> Calibration:
        assert (path.name, effort) == (DIGEST, LEAN)
        assert threads > 0
        self.begun += 1
        try:
            await self.going.wait()
        finally:
            self.ended = True
        failed = "" if self.whole else OUT_OF_TIME
        return Calibration(
            revision=revision_of(model),
            machine=machine_id(),
            taken_ns=1,
            versions=engine_versions(),
            measured=[Measured(engine="openvino", failed=failed)],
            engine="openvino",
            why="it is faster",
        )

    async def after(self, seconds: float) -> int:
        self.clock.advance(seconds)
        return await self.calibrating.step()


@pytest.fixture
async def bench(tmp_path: Path) -> AsyncIterator[Bench]:
    made = Bench(tmp_path / "data")
    yield made
    made.progress.close()


async def test_it_measures_once_nobody_has_asked_anything_for_a_while(bench: Bench) -> None:
    assert await bench.after(QUIET_S / 2) == 0
    bench.progress.step()
    assert await bench.after(QUIET_S) == 0
    assert bench.begun == 0
    assert await bench.after(QUIET_S) == 1
    assert bench.office.calibrations.undecided(bench.office.config.models) == []
    assert await bench.after(QUIET_S) == 0
    assert bench.begun == 1


async def test_a_request_ends_it_at_once_and_it_begins_again_later(bench: Bench) -> None:
    bench.going.clear()
    step = asyncio.ensure_future(bench.after(QUIET_S))
    await eventually(lambda: bench.begun == 1)
    bench.progress.outstanding(1)
    assert await step == 0
    assert bench.ended
    bench.progress.outstanding(0)
    bench.going.set()
    assert await bench.after(PAUSE_S / 2) == 0
    assert bench.begun == 1
    assert await bench.after(PAUSE_S) == 1


async def test_ending_it_ends_what_measures(bench: Bench) -> None:
    bench.going.clear()
    step = asyncio.ensure_future(bench.after(QUIET_S))
    await eventually(lambda: bench.begun == 1)
    step.cancel()
    with pytest.raises(asyncio.CancelledError):
        await step
    assert bench.ended


async def test_what_was_too_slow_isn_t_kept_and_isn_t_tried_again(bench: Bench) -> None:
    bench.whole = False
    assert await bench.after(QUIET_S) == 0
    assert await bench.after(QUIET_S) == 0
    assert bench.begun == 1
    assert bench.office.calibrations.undecided(bench.office.config.models) == ["m"]


async def test_a_model_that_doesn_t_serve_yet_isn_t_measured(bench: Bench) -> None:
    bench.site.observed = Observed()
    bench.office.observe()
    assert await bench.after(QUIET_S) == 0
    assert bench.begun == 0


def test_work_is_seen_by_what_is_inside_and_by_what_was_done(tmp_path: Path) -> None:
    clock = FakeClock()
    activity = Activity(tmp_path, clock)
    progress = ProgressFile(tmp_path / "r.progress")
    clock.advance(5)
    activity.look(["r", "gone"])
    assert activity.quiet_s() == 5
    progress.beat()
    progress.step(2)
    activity.look(["r"])
    assert (activity.quiet_s(), activity.asked) == (0, False)  # it starts, and warms up
    clock.advance(1)
    progress.phase(Phase.READY)
    activity.look(["r"])
    assert activity.quiet_s() == 1
    progress.step(3)
    activity.look(["r"])
    assert (activity.quiet_s(), activity.asked) == (0, True)
    clock.advance(2)
    activity.look(["r"])
    assert activity.quiet_s() == 2
    progress.outstanding(1)
    activity.look(["r"])
    assert activity.quiet_s() == 0
    progress.close()
