"""Engines are measured one after another, and no more of them than the choice needs."""

import asyncio
import tempfile
import time
from pathlib import Path

import msgspec
import pytest

from tests.polling import eventually
from tiffin.app.calibrate import (
    LEAN,
    OUT_OF_TIME,
    TRUTH,
    Effort,
    Found,
    Order,
    calibrate,
    in_a_process,
    is_whole,
    table,
)
from tiffin.config.models import LlamacppModel
from tiffin.control.catalogue.revision import revision_of
from tiffin.control.engines.calibrations import measured_as
from tiffin.types.calibration import Calibration, Measured

MODEL = LlamacppModel(sources=["file:x"], sha256="0" * 64, slots=4)
FIRSTS = [([97], -0.5), ([98], -1.0)]
OTHERS = [([99], -0.5), ([98], -1.0)]
SLOW, FAST = {1: 10.0, 4: 20.0}, {1: 20.0, 4: 60.0}


def found(engine: str, rates: dict[int, float], firsts: list[tuple[list[int], float]]) -> Found:
    return Found(measured=Measured(engine=engine, tokens_per_s=rates), firsts=firsts)


class Bench:
    """Gives figures instead of measuring, and remembers what was ordered."""

    def __init__(self, **differently: Found) -> None:
        self.found = {
            TRUTH: found(TRUTH, {}, FIRSTS),
            "llamacpp": found("llamacpp", SLOW, FIRSTS),
            "openvino": found("openvino", FAST, FIRSTS),
            **differently,
        }
        self.orders: list[Order] = []

    async def measure(self, order: Order, until: float) -> Found:
        assert until > time.monotonic()
        self.orders.append(order)
        return self.found[order.engine]

    async def calibrate(self, effort: Effort) -> Calibration:
        return await calibrate(MODEL, Path("x"), 2, effort, self.measure)

    @property
    def engines(self) -> list[str]:
        return [order.engine for order in self.orders]


def files_of(folder: Path) -> list[Path]:
    return list(folder.iterdir())


def failed(engine: str, why: str = "no") -> Found:
    return Found(measured=Measured(engine=engine, failed=why))


@pytest.mark.parametrize("effort", [LEAN, Effort()], ids=["lean", "whole"])
async def test_the_faster_engine_that_chooses_alike_is_chosen(effort: Effort) -> None:
    bench = Bench()
    told = await bench.calibrate(effort)
    assert told.engine == "openvino"
    assert [one.engine for one in told.measured] == ["llamacpp", "openvino"]
    assert sorted(bench.engines) == ["llamacpp", "openvino", TRUTH]
    assert bench.engines[0] == TRUTH


async def test_figures_count_whichever_engine_the_section_named_meanwhile() -> None:
    told = await Bench().calibrate(LEAN)
    auto = msgspec.structs.replace(MODEL, engine="auto")
    assert told.revision == measured_as(auto) == measured_as(MODEL) == revision_of(auto)


async def test_a_lean_one_measures_no_speeds_that_can_t_matter() -> None:
    bench = Bench(openvino=found("openvino", {}, OTHERS))
    told = await bench.calibrate(LEAN)
    assert bench.engines == [TRUTH, "openvino"]
    assert bench.orders[1].firsts == FIRSTS
    assert {order.effort.slots for order in bench.orders} == {MODEL.slots}
    assert told.engine == "llamacpp"
    assert "answers differently" in told.why
    assert told.measured[1].same == 0.5
    assert is_whole(told)


async def test_a_whole_one_measures_all_of_them() -> None:
    bench = Bench(openvino=found("openvino", FAST, OTHERS))
    told = await bench.calibrate(Effort())
    assert sorted(bench.engines) == ["llamacpp", "openvino", TRUTH]
    assert bench.orders[1].firsts == []
    assert told.engine == "llamacpp"
    assert told.measured[0].tokens_per_s == SLOW


async def test_an_engine_that_can_t_read_the_file_says_why() -> None:
    bench = Bench(openvino=failed("openvino", "it has no such type"))
    told = await bench.calibrate(LEAN)
    assert told.engine == "llamacpp"
    assert told.why == "openvino can't run it: it has no such type"
    lines = table(told)
    assert lines[-2:] == ["openvino: it has no such type", f"llamacpp is the one: {told.why}"]


async def test_without_a_reference_nobody_is_compared() -> None:
    bench = Bench(**{TRUTH: failed(TRUTH)})
    told = await bench.calibrate(LEAN)
    assert sorted(bench.engines) == ["llamacpp", "openvino", TRUTH]
    assert told.engine == "llamacpp"


async def test_what_had_no_time_makes_it_less_than_whole() -> None:
    order = Order(engine="llamacpp", model=MODEL, path="x", threads=1)
    told = await in_a_process(order, time.monotonic() - 1)
    assert told.measured.failed == OUT_OF_TIME
    assert not is_whole(await Bench(openvino=told).calibrate(LEAN))
    began = time.monotonic()
    told = await in_a_process(order, time.monotonic() + 0.05)
    assert told.measured.failed == OUT_OF_TIME
    assert time.monotonic() - began < 5


async def test_a_process_tells_why_its_engine_can_t(tmp_path: Path) -> None:
    path = tmp_path / "m.gguf"
    path.write_bytes(b"no model")
    order = Order(engine="llamacpp", model=MODEL, path=str(path), threads=1)
    told = await in_a_process(order, time.monotonic() + 60)
    assert "can't be read as GGUF" in told.measured.failed


def test_figures_are_shown_where_there_are_any() -> None:
    own = Measured(engine="llamacpp", tokens_per_s=SLOW, ttft_ms=7.0, load_ms=1500)
    calibration = Calibration(
        revision="r",
        machine="m",
        taken_ns=1,
        versions={},
        measured=[own, msgspec.structs.replace(own, engine="openvino", tokens_per_s={})],
        engine="llamacpp",
        why="so",
    )
    head, first, second, last = table(calibration)
    assert head.split()[:4] == ["engine", "tok/s", "at", "1"]
    assert first.split()[:5] == ["llamacpp", "10", "20", "7", "ms"]
    assert second.split()[:3] == ["openvino", "7", "ms"]
    assert last == "llamacpp is the one: so"


async def test_one_that_is_ended_midway_leaves_no_process_and_no_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    order = Order(engine="llamacpp", model=MODEL, path="x", threads=1)
    measuring = asyncio.ensure_future(in_a_process(order, time.monotonic() + 60))
    await eventually(lambda: files_of(tmp_path))
    measuring.cancel()
    with pytest.raises(asyncio.CancelledError):
        await measuring
    assert files_of(tmp_path) == []
