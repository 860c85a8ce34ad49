from hypothesis import given
from hypothesis import strategies as st

from tiffin.control.fleet.restart import (
    FORGIVE_ALL_S,
    MAX_DELAY_S,
    PERMANENT_DELAY_S,
    Restarts,
    delay_s,
)

healths = st.floats(min_value=0.0, max_value=1e6, allow_nan=False)


def test_the_first_end_is_followed_by_a_start_at_once() -> None:
    assert Restarts().after_end(healthy_s=0.0, permanent=False).delay_s == 0.0


def test_a_crash_loop_slows_down_to_the_longest_delay_and_no_further() -> None:
    restarts, delays = Restarts(), []
    for _ in range(15):
        restarts = restarts.after_end(healthy_s=0.0, permanent=False)
        delays.append(restarts.delay_s)
    assert delays[:4] == [0.0, 0.1, 0.2, 0.4]
    assert delays == sorted(delays)
    assert delays[-1] == MAX_DELAY_S


@given(st.integers(min_value=0, max_value=10**6))
def test_a_delay_is_never_negative_nor_above_the_cap(failures: int) -> None:
    assert 0.0 <= delay_s(failures) <= MAX_DELAY_S
    assert delay_s(failures) <= delay_s(failures + 1)


@given(st.lists(healths, max_size=30))
def test_a_minute_of_health_forgives_everything(lives: list[float]) -> None:
    restarts = Restarts()
    for healthy_s in lives:
        restarts = restarts.after_end(healthy_s=healthy_s, permanent=False)
    assert restarts.after_end(healthy_s=FORGIVE_ALL_S, permanent=False).delay_s == 0.0


@given(st.lists(st.floats(min_value=4.0, max_value=1e6), max_size=60))
def test_a_process_that_serves_between_its_ends_is_always_back_at_once(lives: list[float]) -> None:
    restarts = Restarts()
    for healthy_s in lives:
        restarts = restarts.after_end(healthy_s=healthy_s, permanent=False)
        assert restarts.delay_s == 0.0


@given(st.lists(healths, max_size=60), st.floats(min_value=0.001, max_value=1e6))
def test_a_process_that_became_ready_is_back_within_a_second(
    lives: list[float], last: float
) -> None:
    restarts = Restarts()
    for healthy_s in lives:
        restarts = restarts.after_end(healthy_s=healthy_s, permanent=False)
    assert restarts.after_end(healthy_s=last, permanent=False).delay_s <= 1.0


@given(healths)
def test_what_cant_mend_itself_is_tried_once_a_minute(healthy_s: float) -> None:
    restarts = Restarts().after_end(healthy_s=healthy_s, permanent=True)
    assert restarts.delay_s == PERMANENT_DELAY_S
    assert restarts.after_end(healthy_s=0.0, permanent=False).delay_s < PERMANENT_DELAY_S
