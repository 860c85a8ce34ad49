"""By when a request is due: the client's word, else the objectives, never past the limit."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tiffin.gateway.due import PATIENCE, Due, due
from tiffin.types.snapshot import Plan


def plan(**settings: float) -> Plan:
    return Plan(name="m", identity="i", targets=(), timeout_s=30.0, **settings)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("said", "asked_s", "settings", "expected"),
    [
        (None, 0.0, {}, Due(130.0)),
        (b"1500", 0.0, {}, Due(101.5, named=True)),
        (b"1500", 9.0, {"p95_ms": 10.0}, Due(101.5, named=True)),
        (None, 9.0, {"p95_ms": 10.0}, Due(109.0, named=True)),
        (None, 90.0, {}, Due(130.0, named=True)),
        (None, 0.0, {"p95_ms": 500.0}, Due(100.0 + 0.5 * PATIENCE, 100.45)),
        (None, 0.0, {"p95_ms": 20_000.0}, Due(130.0, 118.0)),
        (None, 0.0, {"ttft_p95_ms": 250.0}, Due(130.0, math.inf, 100.225)),
    ],
)
def test_who_speaks_first_counts(
    said: bytes | None, asked_s: float, settings: dict[str, float], expected: Due
) -> None:
    assert due(said, asked_s, plan(**settings), 100.0) == pytest.approx(expected)


@given(st.floats(0, 1e5), st.floats(0, 1e6), st.integers(1, 86_400_000) | st.none())
def test_nothing_outlasts_the_limit(asked_s: float, p95_ms: float, said: int | None) -> None:
    header = None if said is None else b"%d" % said
    assert 100.0 <= due(header, asked_s, plan(p95_ms=p95_ms), 100.0).deadline <= 130.0


def test_objectives_are_for_who_waits_for_an_answer() -> None:
    strict = plan(p95_ms=50.0, ttft_p95_ms=20.0)
    assert due(None, 0.0, strict, 100.0, batch=True) == Due(130.0)
    assert due(b"1500", 0.0, strict, 100.0, batch=True) == Due(101.5, named=True)


def test_waking_a_model_is_time_of_its_own_for_who_named_none() -> None:
    assert Due(130.0, 118.0).after(5.0) == Due(135.0, 123.0)
    assert Due(130.0, named=True).after(5.0) == Due(130.0, named=True)
