"""Forecasts of when a budget runs out."""

from hypothesis import given
from hypothesis import strategies as st

from tiffin.control.budgets.forecast import (
    AT_LEAST_HOURS,
    AT_MOST_HOURS,
    Forecast,
    forecast,
    history,
)
from tiffin.ledger.segments import HOUR_NS
from tiffin.ports.ledger import Span

NOW_NS = 500_000 * HOUR_NS
MONTH = Span(NOW_NS - 100 * HOUR_NS, NOW_NS + 400 * HOUR_NS)

costs = st.lists(st.integers(0, 10**15), min_size=AT_LEAST_HOURS, max_size=AT_MOST_HOURS)


def hours_from_now(at_ns: int) -> float:
    return round((at_ns - NOW_NS) / HOUR_NS, 3)


def test_even_spending_runs_out_at_one_moment() -> None:
    told = forecast([10] * 24, 500, 1000, NOW_NS, MONTH)
    moments = (told.expected_ns, told.earliest_ns, told.latest_ns)
    assert [hours_from_now(one) for one in moments] == [50.0, 50.0, 50.0]
    assert told.by_end_pico == 500 + 10 * 400


def test_uneven_spending_has_an_interval() -> None:
    told = forecast([0, 20] * 12, 500, 1000, NOW_NS, MONTH)
    assert hours_from_now(told.expected_ns) == 50.0
    assert 35 < hours_from_now(told.earliest_ns) < 45
    assert 60 < hours_from_now(told.latest_ns) < 85


def test_what_lasts_until_the_period_ends_has_no_moment() -> None:
    told = forecast([1] * 24, 500, 1000, NOW_NS, MONTH)
    assert (told.expected_ns, told.earliest_ns, told.latest_ns) == (0, 0, 0)
    assert told.by_end_pico == 900


def test_too_few_hours_are_no_history() -> None:
    assert forecast([10] * (AT_LEAST_HOURS - 1), 500, 1000, NOW_NS, MONTH) == Forecast()


def test_what_is_spent_is_spent_without_any_history() -> None:
    told = forecast([], 1000, 1000, NOW_NS, MONTH)
    assert (told.known, told.expected_ns) == (True, NOW_NS)


@given(costs, st.integers(1, 10**18), st.integers(0, 100))
def test_the_interval_holds_the_moment(spending: list[int], amount: int, percent: int) -> None:
    told = forecast(spending, amount * percent // 101, amount, NOW_NS, MONTH)
    never = MONTH.until_ns
    earliest, expected, latest = (
        one or never for one in (told.earliest_ns, told.expected_ns, told.latest_ns)
    )
    assert NOW_NS <= earliest <= expected <= latest <= never


@given(costs, st.integers(1, 10**18))
def test_spending_more_never_lasts_longer(spending: list[int], amount: int) -> None:
    spent = amount // 2
    slow = forecast(spending, spent, amount, NOW_NS, MONTH)
    fast = forecast([2 * cost for cost in spending], spent, amount, NOW_NS, MONTH)
    assert (fast.expected_ns or MONTH.until_ns) <= (slow.expected_ns or MONTH.until_ns)


def test_history_begins_with_the_first_hour_that_cost_anything() -> None:
    ends = NOW_NS + 30 * 60 * 10**9
    hours = {NOW_NS - 3 * HOUR_NS: 5, NOW_NS - HOUR_NS: 7, NOW_NS: 9}
    assert history(hours, ends) == [5, 0, 7]
    assert history({NOW_NS: 9}, ends) == []
    old = NOW_NS - (AT_MOST_HOURS + 5) * HOUR_NS
    assert history({old: 5}, ends) == []
    half = HOUR_NS // 2
    assert history({NOW_NS - HOUR_NS - half: 4, NOW_NS - half: 1}, NOW_NS + 10, half) == [4]
