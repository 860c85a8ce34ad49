"""Waiting for what another process, thread or clock brings about: by looking, up to a deadline."""

import asyncio
import time
from collections.abc import Callable


def until(true: Callable[[], object], deadline_s: float = 10.0) -> None:
    """Return once `true` is; fail the test at the deadline."""
    end = time.monotonic() + deadline_s
    while not true():
        assert time.monotonic() < end, "it didn't come about in time"
        time.sleep(0.002)


async def eventually(true: Callable[[], object], deadline_s: float = 10.0) -> None:
    """The same on an event loop."""
    async with asyncio.timeout(deadline_s):
        while not true():  # noqa: ASYNC110 - what is waited for has no event to give
            await asyncio.sleep(0.002)
