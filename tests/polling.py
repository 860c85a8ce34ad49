"""Waiting for what another process, thread or clock brings about: by looking, up to a deadline."""

import time
from collections.abc import Callable


def until(true: Callable[[], object], deadline_s: float = 10.0) -> None:
    """Return once `true` is; fail the test at the deadline."""
    end = time.monotonic() + deadline_s
    while not true():
        assert time.monotonic() < end, "it didn't come about in time"
        time.sleep(0.002)
