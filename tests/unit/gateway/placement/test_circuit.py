"""A circuit opens by what fails, is tried by one request, and is nobody's to close for others."""

from hypothesis import given
from hypothesis import strategies as st

from tiffin.gateway.placement.circuit import (
    MAX_OPEN_S,
    MAX_REST_S,
    PATIENCE,
    TRIAL_S,
    Circuit,
    Held,
    State,
)


def opened(now: float = 0.0, tenants: tuple[str, ...] = ("a", "b")) -> Circuit:
    circuit = Circuit()
    for turn in range(PATIENCE):
        circuit.failed(tenants[turn % len(tenants)], now, now)
    assert circuit.state(now) is State.OPEN
    return circuit


def test_it_opens_after_failures_in_a_row_alone() -> None:
    circuit = Circuit()
    for _ in range(PATIENCE - 1):
        assert not circuit.failed("a", 0, 0)
    circuit.went_well(0)
    for _ in range(PATIENCE - 1):
        assert not circuit.failed("a", 0, 0)
    assert circuit.left_s("a", 0) == 0
    assert circuit.failed("a", 0, 0)
    assert circuit.left_s("a", 0) > 0


def test_one_request_tries_it_and_others_wait_for_what_comes_of_that() -> None:
    circuit = opened()
    assert circuit.left_s("a", 0.5) == 0
    assert circuit.state(0.5) is State.HALF_OPEN
    circuit.enter(0.5)
    assert circuit.left_s("a", 0.6) > 0
    assert circuit.went_well(0.5)
    assert (circuit.left_s("a", 0.6), circuit.state(0.6)) == (0, State.CLOSED)


def test_a_trial_that_tells_nothing_holds_up_the_next_for_a_while_alone() -> None:
    circuit = opened()
    circuit.enter(1.0)
    assert 0 < circuit.left_s("a", 1.1) <= TRIAL_S
    assert circuit.left_s("a", 1.0 + TRIAL_S) == 0


def test_it_stays_open_longer_each_time_up_to_a_bound() -> None:
    circuit, now, waits = opened(), 0.0, []
    for _ in range(10):
        waits.append(circuit.left_s("a", now))
        now += waits[-1]
        circuit.enter(now)
        circuit.failed("a", now, now)
    assert waits == sorted(waits)
    assert (waits[:4], waits[-1]) == ([0.5, 1, 2, 4], MAX_OPEN_S)


def test_what_began_before_it_opened_says_nothing_about_it_since() -> None:
    circuit = opened(10.0)
    assert not circuit.went_well(9.0)
    assert not circuit.failed("a", 9.0, 12.0)
    assert circuit.left_s("a", 10.0) == 0.5


def test_whoever_alone_fails_is_alone_kept_out() -> None:
    circuit = opened(tenants=("poison",))
    assert circuit.left_s("poison", 0) > 0
    assert circuit.left_s("other", 0) == 0
    circuit.failed("other", 0.1, 0.1)
    assert circuit.left_s("other", 0.1) > 0, "it wasn't the one tenant's fault"


def test_resting_is_over_when_it_is_over_and_tries_nothing() -> None:
    circuit = Circuit()
    circuit.rest(7, 100)
    assert (circuit.left_s("a", 100), circuit.state(100)) == (7, State.OPEN)
    circuit.rest(2, 101)
    assert circuit.left_s("a", 101) == 6
    circuit.enter(107)
    assert (circuit.left_s("b", 107), circuit.state(107)) == (0, State.CLOSED)
    circuit.rest(1e9, 107)
    assert circuit.left_s("a", 107) == MAX_REST_S


EVENTS = st.tuples(
    st.sampled_from(["well", "failed", "enter", "rest"]),
    st.sampled_from(["a", "b"]),
    st.floats(0, 20),
)


@given(events=st.lists(EVENTS, max_size=40), tenant=st.sampled_from(["a", "b"]))
def test_nobody_is_ever_kept_out_for_longer_than_is_said(
    events: list[tuple[str, str, float]], tenant: str
) -> None:
    circuit, now = Circuit(), 0.0
    for kind, whose, passed in events:
        now += passed
        match kind:
            case "well":
                circuit.went_well(now)
            case "failed":
                circuit.failed(whose, now, now)
            case "enter":
                circuit.enter(now)
            case _:
                circuit.rest(passed, now)
        left = circuit.left_s(tenant, now)
        assert 0 <= left <= max(MAX_OPEN_S, MAX_REST_S)
        assert circuit.left_s(tenant, now + left) == 0


@given(
    failures=st.integers(0, 12),
    resting=st.floats(0, 100),
    passed=st.floats(0, 100),
    at=st.floats(0, 1e6),
)
def test_what_is_held_goes_on_elsewhere_with_what_is_left(
    failures: int, resting: float, passed: float, at: float
) -> None:
    circuit = Circuit()
    for _ in range(failures):
        circuit.failed("a", 0, 0)
        circuit.failed("b", 0, 0)
    if resting:
        circuit.rest(resting, 0)
    held, again = circuit.held(passed), Circuit()
    if held is not None:
        again.resume(held, at)
    assert abs(again.left_s("a", at) - circuit.left_s("a", passed)) < 1e-6 * (1 + at)
    assert again.openings == circuit.openings


def test_a_clock_that_went_back_holds_nobody_for_ever() -> None:
    circuit = Circuit()
    circuit.resume(Held(3, 1e9), 5)
    assert circuit.left_s("a", 5) == MAX_OPEN_S
