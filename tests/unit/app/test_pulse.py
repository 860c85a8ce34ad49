"""What a process shows of itself, also where the disk had no room for that at first."""

import asyncio
from pathlib import Path

from tests.virtual_time import in_virtual_time
from tiffin.app.pulse import HEARTBEAT_EVERY_S, beat
from tiffin.serving.progress import Phase, read_progress


def test_it_beats_until_it_is_cancelled_and_is_ready_when_it_says_so(tmp_path: Path) -> None:
    path, ready = tmp_path / "control.progress", [False]

    async def main() -> None:
        beating = asyncio.create_task(beat(path, lambda: ready[0]))
        await asyncio.sleep(1)
        assert read_progress(path).phase == Phase.LOADING
        before = read_progress(path).heartbeat
        ready[0] = True
        await asyncio.sleep(1)
        assert read_progress(path).phase == Phase.READY
        assert read_progress(path).heartbeat > before
        beating.cancel()
        await asyncio.wait([beating])
        assert not path.exists()

    in_virtual_time(main)


def test_where_there_is_no_room_it_waits_for_some(tmp_path: Path) -> None:
    path = tmp_path / "control.progress"
    path.mkdir()  # nothing can be made there

    async def main() -> None:
        beating = asyncio.create_task(beat(path, lambda: True))
        await asyncio.sleep(60)
        path.rmdir()
        await asyncio.sleep(2 * HEARTBEAT_EVERY_S)
        assert read_progress(path).phase == Phase.READY
        beating.cancel()
        await asyncio.wait([beating])

    in_virtual_time(main)
