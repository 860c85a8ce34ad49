"""The rate algorithm keeps its law for any arrivals, any use and any order of ending."""

from dataclasses import dataclass

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tiffin.gateway.limits.gcra import MAX_MARKS, Gcra

MINUTE = 60 * 10**9


@dataclass
class Took:
    """One that was let in: when, how much it reserved, how much of it it used."""

    at: int
    reserved: int
    used: int
    mark: int


@dataclass
class Step:
    """An arrival after a while: how much it wants and will use (in parts of 8), and which of those
    that run ends before it comes."""

    gap: int
    wanted: int
    uses: int
    ends: int | None


STEPS = st.lists(
    st.builds(
        Step,
        gap=st.integers(0, 40),
        wanted=st.integers(1, 12),
        uses=st.integers(0, 8),
        ends=st.none() | st.integers(0, 20),
    ),
    max_size=60,
)
RATES = st.tuples(st.integers(1, 7), st.integers(1, 50), st.integers(1, 40))


def play(rate: Gcra, steps: list[Step]) -> tuple[list[Took], int]:
    """Let them come and go; all that were let in, and when it was over."""
    now = 0
    running: list[Took] = []
    admitted: list[Took] = []
    for step in steps:
        now += step.gap
        if step.ends is not None and running:
            end(rate, running.pop(step.ends % len(running)), now)
        if rate.wait(step.wanted, now) == 0:
            used = step.wanted * step.uses // 8
            took = Took(now, step.wanted, used, rate.reserve(step.wanted, now))
            admitted.append(took)
            running.append(took)
    while running:
        end(rate, running.pop(), now)
    return admitted, now


def end(rate: Gcra, took: Took, now: int) -> None:
    rate.settle(took.mark, took.reserved, took.used, now)


@given(rate=RATES, steps=STEPS)
def test_no_window_uses_more_than_burst_plus_rate_times_time(
    rate: tuple[int, int, int], steps: list[Step]
) -> None:
    amount, period, burst = rate
    admitted, _ = play(Gcra(amount, period, burst), steps)
    for first, start in enumerate(admitted):
        used = 0
        for took in admitted[first:]:
            used += took.used
            assert used * period <= burst * period + (took.at - start.at) * amount


@given(rate=RATES, steps=STEPS)
def test_what_was_not_used_is_as_if_it_had_never_been_reserved(
    rate: tuple[int, int, int], steps: list[Step]
) -> None:
    amount, period, burst = rate
    real, plain = Gcra(amount, period, burst), Gcra(amount, period, burst)
    admitted, now = play(real, steps)
    for took in admitted:
        plain.take(took.used, took.at)
    assert real.recovers_in(now) == plain.recovers_in(now)
    assert real.left(now) == plain.left(now)


def test_a_reservation_that_has_recovered_is_not_given_back_again() -> None:
    rate = Gcra(60, MINUTE, 60)
    first = rate.reserve(60, 0)
    assert rate.left(MINUTE) == 60
    rate.settle(rate.reserve(60, MINUTE), 60, 60, MINUTE)
    rate.settle(first, 60, 0, MINUTE)
    assert rate.left(MINUTE) == 0


def test_a_reservation_of_a_busy_rate_comes_back_however_long_it_took() -> None:
    rate = Gcra(60, MINUTE, 120)
    rate.take(60, 0)
    long = rate.reserve(60, 0)
    for second in range(1, 61):
        rate.take(1, second * 10**9)
    assert rate.left(MINUTE) == 0
    rate.settle(long, 60, 0, MINUTE)
    assert rate.left(MINUTE) == 60


def test_what_is_used_beyond_the_reservation_is_a_debt_that_recovers_first() -> None:
    rate = Gcra(60, MINUTE, 60)
    rate.settle(rate.reserve(10, 0), 10, 120, 0)
    assert rate.left(0) == 0
    assert rate.wait(1, 0) == 61 * 10**9
    assert rate.left(61 * 10**9) == 1


@given(rate=RATES, wanted=st.integers(1, 40))
def test_waiting_exactly_as_long_as_it_says_is_enough(
    rate: tuple[int, int, int], wanted: int
) -> None:
    amount, period, burst = rate
    wanted = min(wanted, burst)
    found = Gcra(amount, period, burst)
    found.take(burst, 0)
    wait = found.wait(wanted, 0)
    assert wait > 0
    assert found.wait(wanted, wait - 1) == 1
    assert found.wait(wanted, wait) == 0


def test_a_third_of_a_second_is_exact_ever_so_often() -> None:
    rate = Gcra(3, 10**9, 2)
    now = 0
    for _ in range(10_000):
        assert rate.wait(1, now) == 0
        rate.take(1, now)
        now += rate.wait(1, now)
    assert now == 9_999 * 10**9 // 3


def test_another_rate_keeps_what_was_taken() -> None:
    rate = Gcra(60, MINUTE, 60)
    mark = rate.reserve(30, 0)
    rate.change(600, MINUTE, 60, 0)
    assert rate.left(0) == 30
    assert rate.recovers_in(0) == 3 * 10**9
    rate.settle(mark, 30, 0, 0)
    assert rate.left(0) == 30  # of another rate nothing is given back
    assert not rate.rests(0)
    assert rate.rests(3 * 10**9)


@pytest.mark.parametrize("used", [0, 1], ids=["nothing", "all"])
def test_ever_so_many_reservations_take_bounded_room_and_never_give_too_much(used: int) -> None:
    rate, plain = Gcra(1000, MINUTE, 10**6), Gcra(1000, MINUTE, 10**6)
    marks = [(at, rate.reserve(1, at)) for at in range(5 * MAX_MARKS)]
    assert len(rate._marks) <= MAX_MARKS
    for _, mark in marks:
        rate.settle(mark, 1, used, 10**6)
    for at, _ in marks:
        plain.take(used, at)
    assert rate.left(10**6) <= plain.left(10**6)
    assert not rate._marks
