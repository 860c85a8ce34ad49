"""What tokens take is found again from sums of requests, and is never less than nothing."""

import random
from collections.abc import Callable, Iterable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tiffin.ledger.fit import LEAST_ROWS, Fit, fits_of, fitted
from tiffin.ports.ledger import Moments

Row = tuple[float, float, float, float]


def moments(rows: Iterable[Row]) -> Moments:
    """Of sums of one request each."""
    told = list(rows)
    products = tuple(tuple(sum(r[a] * r[b] for r in told) for b in range(4)) for a in range(4))
    return Moments(target="chat", rows=len(told), products=products)


def requests(count: int, held: Callable[[float, float, float], float], seed: int = 1) -> list[Row]:
    chance = random.Random(seed)
    found = []
    for _ in range(count):
        fresh, cached, made = (float(chance.randrange(most)) for most in (4000, 2000, 800))
        found.append((fresh, cached, made, held(fresh, cached, made)))
    return found


def fit_of(rows: Iterable[Row]) -> Fit:
    found = fitted(moments(rows))
    assert found is not None
    return found


@given(st.integers(0, 10**6), st.integers(0, 10**5), st.integers(1, 10**8), st.integers(8, 60))
def test_exact_weights_are_found_again(prefill: int, cached: int, decode: int, count: int) -> None:
    fit = fit_of(requests(count, lambda a, b, c: prefill * a + cached * b + decode * c))
    scale = max(prefill, cached, decode)
    told = (fit.prefill_ps, fit.cached_ps, fit.decode_ps)
    for found, expected in zip(told, (prefill, cached, decode), strict=True):
        assert abs(found / 1000 - expected) <= 1e-3 * scale + 1
    assert fit.error < 1e-3


def test_noise_is_the_error_and_hardly_moves_the_weights() -> None:
    chance = random.Random(3)
    rows = requests(400, lambda a, b, c: (2e5 * a + 1e4 * b + 3e7 * c) * chance.uniform(0.8, 1.2))
    fit = fit_of(rows)
    assert fit.decode_ps / 1000 == pytest.approx(3e7, rel=0.05)
    assert fit.prefill_ps / 1000 == pytest.approx(2e5, rel=1.5)
    assert 0.05 < fit.error < 0.15


def test_a_weight_below_nothing_is_none() -> None:
    fit = fit_of(requests(50, lambda a, b, c: max(0.0, 3e6 * c - 1e5 * b)))
    assert fit.cached_ps == 0
    assert fit.decode_ps > 0


def test_what_always_comes_together_is_still_explained() -> None:
    fit = fit_of((10.0 * n, 0.0, 5.0 * n, 1e6 * n) for n in range(1, 20))
    assert fit.error < 1e-3
    assert 10 * fit.prefill_ps + 5 * fit.decode_ps == pytest.approx(1e9, rel=1e-3)


@pytest.mark.parametrize(
    "rows",
    [[], requests(LEAST_ROWS - 1, lambda a, b, c: c), [(0.0, 0.0, 0.0, 5.0)] * 20],
    ids=["nothing", "too little", "without tokens"],
)
def test_of_too_little_nothing_is_said(rows: list[Row]) -> None:
    assert fits_of([moments(rows)]) == {}


@given(st.lists(st.tuples(*([st.floats(0, 1e9)] * 3), st.floats(0, 1e15)), min_size=8, max_size=20))
def test_whatever_was_used_a_fit_is_no_less_than_nothing_and_no_worse_than_none(
    rows: list[Row],
) -> None:
    fit = fitted(moments(rows))
    if fit is not None:
        assert min(fit.prefill_ps, fit.cached_ps, fit.decode_ps) >= 0
        assert 0 <= fit.error <= 1
