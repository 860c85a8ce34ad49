"""Counting, the bounds of labels, and the file that others read."""

import asyncio
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import msgspec
import pytest

from tiffin.telemetry import epochs
from tiffin.telemetry.metrics import (
    OTHER,
    OVERFLOWED,
    FamilyState,
    Meter,
    MeterState,
    SeriesState,
)


def family(meter: Meter, name: str) -> FamilyState:
    state = msgspec.json.decode(meter.state(), type=MeterState)
    return next(family for family in state.families if family.name == name)


def test_a_counter_adds_by_labels() -> None:
    meter = Meter("gateway", "ep")
    counter = meter.counter("requests_total", "Requests", ("model", "outcome"))
    counter.add(("chat", "ok"))
    counter.add(("chat", "ok"), 2)
    counter.labels(("chat", "failed")).add()
    assert family(meter, "requests_total").series == (
        SeriesState(("chat", "ok"), (3,)),
        SeriesState(("chat", "failed"), (1,)),
    )


def test_a_gauge_goes_both_ways() -> None:
    meter = Meter("gateway", "ep")
    gauge = meter.gauge("in_flight", "In flight")
    gauge.inc(5)
    gauge.inc(-2)
    assert family(meter, "in_flight").series[0].numbers == (3,)
    gauge.set(7)
    assert family(meter, "in_flight").series[0].numbers == (7,)


def test_a_histogram_counts_a_bound_in_its_own_bucket() -> None:
    meter = Meter("gateway", "ep")
    histogram = meter.histogram("seconds", "Time", ("model",), (0.1, 1))
    for value in (0.05, 0.1, 0.5, 2.0):
        histogram.observe(("chat",), value)
    (series,) = family(meter, "seconds").series
    assert series.numbers[0] == pytest.approx(2.65)
    assert series.numbers[1:] == (2, 1, 1)


def test_a_number_that_json_cannot_say_hides_no_other() -> None:
    meter = Meter("gateway", "ep")
    gauge = meter.gauge("up", "Up", ("part",))
    gauge.set(float("nan"), ("a",))
    gauge.set(True, ("b",))
    assert family(meter, "up").series == (SeriesState(("a",), (0,)), SeriesState(("b",), (1,)))


def test_labels_over_the_bound_share_one_series_and_are_counted() -> None:
    meter = Meter("gateway", "ep", max_series=3)
    counter = meter.counter("requests_total", "Requests", ("model",))
    for number in range(10):
        counter.add((f"m{number}",))
    series = {s.labels[0]: s.numbers[0] for s in family(meter, "requests_total").series}
    assert series == {"m0": 1, "m1": 1, "m2": 1, OTHER: 7}
    assert SeriesState(("requests_total",), (7,)) in family(meter, OVERFLOWED).series


def test_asking_twice_gives_the_same_and_another_shape_is_refused() -> None:
    meter = Meter("gateway", "ep")
    first = meter.counter("requests_total", "Requests", ("model",))
    assert meter.counter("requests_total", "Requests", ("model",)) is first
    with pytest.raises(ValueError, match="another shape"):
        meter.gauge("requests_total", "Requests", ("model",))
    with pytest.raises(ValueError, match="has the labels"):
        first.add(("a", "b"))


@pytest.mark.parametrize("buckets", [(), (2.0, 1.0), (1.0, 1.0), (1.0, float("inf"))])
def test_buckets_ascend_to_a_finite_end(buckets: tuple[float, ...]) -> None:
    with pytest.raises(ValueError, match="buckets"):
        Meter("gateway", "ep").histogram("seconds", "Time", (), buckets)


def test_the_file_is_whole_and_locked_for_life(tmp_path: Path) -> None:
    path = tmp_path / "gateway.ep.json"
    meter = Meter("gateway", "ep")
    meter.counter("requests_total", "Requests").add()
    assert meter.write(path)
    assert path.read_bytes() == meter.state()
    with epochs.seize(path.with_suffix(".lock")) as dead:
        assert not dead
    meter.close()
    with epochs.seize(path.with_suffix(".lock")) as dead:
        assert dead


def test_nothing_is_written_where_nothing_changed(tmp_path: Path) -> None:
    path = tmp_path / "gateway.ep.json"
    meter = Meter("gateway", "ep")
    counter = meter.counter("requests_total", "Requests")
    meter.write(path)
    path.unlink()
    assert meter.write(path)
    assert not path.exists()
    counter.add()
    meter.write(path)
    assert path.exists()
    meter.close()


async def test_what_is_written_aside_never_replaces_what_is_newer(tmp_path: Path) -> None:
    path = tmp_path / "gateway.ep.json"
    meter = Meter("gateway", "ep")
    counter = meter.counter("requests_total", "Requests")
    executor = ThreadPoolExecutor(1)
    asyncio.get_running_loop().set_default_executor(executor)
    disk = threading.Event()
    executor.submit(disk.wait, 10)
    counter.add()
    aside = asyncio.create_task(meter.write_aside(path))
    await asyncio.sleep(0)
    assert not path.exists(), "the loop goes on while the disk is slow"
    counter.add()
    assert meter.write(path)
    disk.set()
    assert await aside
    assert path.read_bytes() == meter.state()
    meter.close()


def test_a_file_that_cannot_be_written_is_counted_not_raised(tmp_path: Path) -> None:
    meter = Meter("gateway", "ep")
    assert not meter.write(tmp_path / "missing" / "gateway.ep.json")
    assert meter.write_failures == 1
