"""Budgets by the calendar: exact in each period, refunds in the period that they belong to."""

from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tiffin.gateway.limits.calendar import SECOND_NS, Budget, Unrecorded, period

INDIA_NS = 19_800 * SECOND_NS


def ns(text: str) -> int:
    return int(datetime.fromisoformat(text).replace(tzinfo=UTC).timestamp()) * SECOND_NS


def budget(amount: int, per: str = "month") -> Budget:
    return Budget(amount, per, Unrecorded().record("x"))


@pytest.mark.parametrize(
    ("per", "begins", "ends"),
    [
        ("minute", "2026-02-28T23:59:00", "2026-03-01T00:00:00"),
        ("hour", "2026-02-28T23:00:00", "2026-03-01T00:00:00"),
        ("day", "2026-02-28T00:00:00", "2026-03-01T00:00:00"),
        ("month", "2026-02-01T00:00:00", "2026-03-01T00:00:00"),
    ],
)
def test_periods_are_the_calendars(per: str, begins: str, ends: str) -> None:
    assert period(per, ns("2026-02-28T23:59:59")) == (ns(begins), ns(ends))


def test_days_and_months_begin_where_the_operator_is() -> None:
    now = ns("2025-12-31T18:30:00")  # midnight in India
    assert period("month", now, INDIA_NS) == (now, ns("2026-01-31T18:30:00"))
    assert period("day", now - 1, INDIA_NS)[1] == now


@given(st.integers(0, 4_000_000_000 * SECOND_NS), st.sampled_from(["second", "day", "month"]))
def test_every_moment_is_in_its_period_and_periods_follow_each_other(now: int, per: str) -> None:
    begins, ends = period(per, now, INDIA_NS)
    assert begins <= now < ends
    assert period(per, begins, INDIA_NS) == (begins, ends)
    assert period(per, ends, INDIA_NS)[0] == ends


def test_a_new_month_begins_with_everything() -> None:
    own = budget(100)
    now = ns("2026-01-31T23:59:59")
    assert own.wait(100, now) == 0
    own.take(100, now)
    assert own.wait(1, now) == SECOND_NS
    assert own.wait(100, now + SECOND_NS) == 0
    assert own.left(now + SECOND_NS) == 100


def test_what_comes_back_after_its_month_is_not_the_next_months() -> None:
    own = budget(100)
    january, february = ns("2026-01-31T23:59:59"), ns("2026-02-01T00:00:00")
    assert own.wait(60, january) == 0
    mark = own.reserve(60, january)
    assert own.wait(100, february) == 0
    own.take(100, february)
    own.settle(mark, 60, 0, february)
    assert own.left(february) == 0


def test_a_clock_that_steps_back_begins_nothing_again() -> None:
    own = budget(100)
    february = ns("2026-02-01T00:00:00")
    assert own.wait(100, february) == 0
    own.take(100, february)
    assert own.wait(1, february - 3600 * SECOND_NS) > 0


@given(
    amount=st.integers(1, 100),
    steps=st.lists(
        st.tuples(st.integers(0, 30), st.integers(0, 30), st.booleans(), st.integers(0, 400_000)),
        max_size=60,
    ),
)
def test_no_period_spends_more_than_its_amount(
    amount: int, steps: list[tuple[int, int, bool, int]]
) -> None:
    own, now = budget(amount, "day"), 0
    held: list[tuple[int, int, int]] = []
    spent: dict[int, int] = {}
    for wanted, used, ends, gap_s in steps:
        now += gap_s * SECOND_NS
        if own.wait(wanted, now) == 0:
            held.append((own.reserve(wanted, now), wanted, min(used, wanted)))
        if ends and held:
            mark, reserved, came_to = held.pop(0)
            own.settle(mark, reserved, came_to, now)
            spent[mark] = spent.get(mark, 0) + came_to
    for mark, reserved, came_to in held:
        own.settle(mark, reserved, came_to, now)
        spent[mark] = spent.get(mark, 0) + came_to
    assert all(total <= amount for total in spent.values())
    today = period("day", now)[0]
    assert own.left(now) == amount - spent.get(today, 0)
