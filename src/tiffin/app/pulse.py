"""Shows the supervisor that the loop of a process turns, and whether it is ready."""

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Final, NoReturn

from tiffin.serving.progress import Phase, ProgressFile

HEARTBEAT_EVERY_S: Final = 0.5
START_LOOK_S: Final = 0.02


async def beat(path: Path, ready: Callable[[], bool]) -> NoReturn:
    """Beat in a progress file until cancelled; then it is removed.

    Where the disk is full the file is there as soon as it isn't: the process serves meanwhile.
    """
    progress = await _made(path)
    try:
        while True:
            progress.beat()
            if ready():
                progress.phase(Phase.READY)
                await asyncio.sleep(HEARTBEAT_EVERY_S)
            else:
                await asyncio.sleep(START_LOOK_S)
    finally:
        progress.close()


async def _made(path: Path) -> ProgressFile:
    while True:
        try:
            return ProgressFile(path)
        except OSError:
            await asyncio.sleep(HEARTBEAT_EVERY_S)
