"""A runtime is measured through its port alone, in bounded time."""

import time

import msgspec
import pytest

from tiffin.app.clock import SystemClock
from tiffin.config.models import EchoModel
from tiffin.serving.engines.measure import First, choices, drift, speeds
from tiffin.testing.echo import EchoRuntime
from tiffin.types.snapshot import Deployment


async def echo(**given: float) -> EchoRuntime:
    raw = msgspec.Raw(msgspec.json.encode(EchoModel(context=512, slots=8, **given)))  # type: ignore[arg-type]
    runtime = EchoRuntime(Deployment(model="m", revision="r", socket="", spec=raw))
    await runtime.load()
    return runtime


async def test_speeds_come_for_each_number_that_the_slots_allow() -> None:
    runtime = await echo(token_ms=1.0)
    began = time.monotonic()
    figures = await speeds(runtime, SystemClock(), 8, 0.05)
    assert list(figures.tokens_per_s) == [1, 4, 8]
    assert min(figures.tokens_per_s.values()) > 0
    assert figures.ttft_ms > 0
    assert runtime.running == 0
    assert time.monotonic() - began < 5


async def test_the_same_engine_chooses_the_same() -> None:
    runtime = await echo()
    one, other = await choices(runtime, 4), await choices(runtime, 4)
    assert len(one) == 4
    assert drift(one, other) == (0.0, 1.0)


def test_drift_is_the_mean_distance_and_the_share_of_equal_choices() -> None:
    one = [First(b"a", -0.5), First(b"b", -1.0)]
    other = [First(b"a", -0.75), First(b"c", -1.25)]
    assert drift(one, other) == (0.25, 0.5)
    assert drift([], []) == (0.0, 1.0)
    with pytest.raises(ValueError, match="zip"):
        drift(one, other[:1])
