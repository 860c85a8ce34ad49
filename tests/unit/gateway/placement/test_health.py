"""Places that fail are set aside for a while that grows, and come back by one request."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tiffin.gateway.placement.health import EJECT_AFTER, FIRST_OUT_S, MAX_OUT_S, Health, Verdict


def out_at(now: float, health: Health | None = None) -> Health:
    health = health or Health()
    health.settle(Verdict.GONE, now, now)
    return health


def test_a_place_where_nothing_answers_is_out_at_once() -> None:
    health = Health()
    assert health.settle(Verdict.GONE, 10.0, 10.0)
    assert health.out
    assert not health.may_be_tried(10.0)
    assert health.may_be_tried(10.0 + FIRST_OUT_S)


def test_failures_count_only_in_a_row() -> None:
    health = Health()
    for _ in range(3):
        for _ in range(EJECT_AFTER - 1):
            assert not health.settle(Verdict.FAILED, 1.0, 1.0)
        health.settle(Verdict.GOOD, 1.0, 1.0)
    assert not health.out
    for n in range(EJECT_AFTER):
        assert health.settle(Verdict.FAILED, 1.0, 1.0) is (n == EJECT_AFTER - 1)


def test_refusals_and_clients_that_left_say_nothing() -> None:
    health = Health()
    for _ in range(100):
        health.settle(Verdict.NEITHER, 1.0, 1.0)
    assert not health.out


def test_one_request_tries_it_and_decides() -> None:
    health = out_at(0.0)
    health.try_it()
    assert not health.may_be_tried(1.0)
    assert health.settle(Verdict.GONE, 1.0, 1.1, trial=True)
    assert health.until == pytest.approx(1.1 + 2 * FIRST_OUT_S)
    health.try_it()
    health.settle(Verdict.GOOD, 3.0, 3.1, trial=True)
    assert not health.out


def test_a_trial_that_says_nothing_is_given_to_the_next() -> None:
    health = out_at(0.0)
    health.try_it()
    health.settle(Verdict.NEITHER, 1.0, 1.1, trial=True)
    assert health.may_be_tried(1.2)


def test_what_began_before_it_was_set_aside_says_nothing_about_it_since() -> None:
    health = out_at(10.0)
    for verdict in (Verdict.GONE, Verdict.GOOD, Verdict.FAILED):
        assert not health.settle(verdict, 9.0, 10.1)
    assert health.out
    assert health.ejections == 1


def test_a_place_that_answers_again_may_be_tried_at_once_unless_it_failed_otherwise() -> None:
    gone, failing = out_at(0.0), Health()
    for _ in range(EJECT_AFTER):
        failing.settle(Verdict.FAILED, 0.0, 0.0)
    for health in (gone, failing):
        health.answered(0.1)
    assert gone.may_be_tried(0.1)
    assert not failing.may_be_tried(0.1)


def test_what_was_long_ago_is_forgiven() -> None:
    health = Health()
    for at in range(4):
        out_at(float(at), health)
    assert health.ejections == 4
    out_at(1000.0, health)
    assert health.ejections == 1


@given(st.lists(st.tuples(st.sampled_from(Verdict), st.floats(0, 20)), max_size=80))
def test_it_is_never_out_for_ever_and_never_tried_twice_at_once(
    story: list[tuple[Verdict, float]],
) -> None:
    health, now = Health(), 100.0
    for verdict, later in story:
        trial = health.may_be_tried(now)
        if trial:
            health.try_it()
            assert not health.may_be_tried(now)
        begun, now = now, now + later
        health.settle(verdict, begun, now, trial=trial)
        assert not health.out or health.until - now <= MAX_OUT_S + 1e-6
        assert not health.out or health.may_be_tried(now + MAX_OUT_S + 1e-6)
