"""Ends a blocking wait when somebody asks for it."""

import asyncio
import threading
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

from tiffin.errors import Draining

POLL_S = 0.1
T = TypeVar("T")


@contextmanager
def interrupting(stop: threading.Event, act: Callable[[], None]) -> Iterator[None]:
    """Call `act` once, from another thread, if `stop` is set before the block ends."""
    over = threading.Event()

    def watch() -> None:
        while not over.wait(POLL_S):
            if stop.is_set():
                act()
                return

    watcher = threading.Thread(target=watch, name="interrupting", daemon=True)
    watcher.start()
    try:
        yield
    finally:
        over.set()
        watcher.join()


async def interruptible(work: Coroutine[Any, Any, T], stop: threading.Event) -> T:
    """The work's result, or `Draining` soon after `stop` is set."""
    task = asyncio.ensure_future(work)
    while not task.done():
        if stop.is_set():
            task.cancel()
            raise Draining("stopped while a model was fetched")
        await asyncio.wait({task}, timeout=POLL_S)
    return task.result()
