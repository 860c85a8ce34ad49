"""Waiting for what another process, thread or clock brings about: by looking, up to a deadline."""

import asyncio
import time
from collections.abc import Callable


def pause_s(waited_s: float) -> float:
    """How long to wait before the next look: looking costs what is waited for its processor."""
    return min(0.03, max(0.002, waited_s / 20))


def until(true: Callable[[], object], deadline_s: float = 10.0) -> None:
    """Return once `true` is; fail the test at the deadline."""
    began = time.monotonic()
    while not true():
        waited_s = time.monotonic() - began
        assert waited_s < deadline_s, "it didn't come about in time"
        time.sleep(pause_s(waited_s))


async def eventually(true: Callable[[], object], deadline_s: float = 10.0) -> None:
    """The same on an event loop."""
    async with asyncio.timeout(deadline_s):
        while not true():  # noqa: ASYNC110 - what is waited for has no event to give
            await asyncio.sleep(0.002)
