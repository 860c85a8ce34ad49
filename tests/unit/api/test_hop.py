"""What the gateway tells a replica of a request's time: believed where the clock is the same."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tiffin.api.hop import LONGEST_HOP_S, context_of
from tiffin.errors import InvalidRequest
from tiffin.gateway.attempt import times
from tiffin.gateway.due import Due
from tiffin.serving.context import Context
from tiffin.testing.clock import FakeClock
from tiffin.testing.exchange import FakeExchange

NOW = 50_000.0
MICROSECOND = 1e-6


def context(clock: bytes | None, **times: int) -> Context:
    headers = [(b"x-tiffin-clock", clock)] if clock is not None else []
    headers += [(f"x-tiffin-{name}-ms".encode(), b"%d" % ms) for name, ms in times.items()]
    return context_of(FakeExchange(b"POST", b"/", headers=headers), FakeClock(at_s=NOW))


def said(opened_s: float, sent_s: float) -> bytes:
    return b"%d %d" % (opened_s * 1e6, sent_s * 1e6)


def test_the_time_on_the_way_is_gone_and_the_request_began_when_it_was_opened() -> None:
    found = context(said(NOW - 0.5, NOW - 0.2), timeout=1000, aim=400, first=300)
    assert found.opened == NOW - 0.5
    assert found.deadline == pytest.approx(NOW + 0.8)
    assert found.aim == pytest.approx(NOW + 0.2)
    assert found.first == pytest.approx(NOW + 0.1)


@pytest.mark.parametrize(
    "clock",
    [
        None,
        said(NOW + 1, NOW + 2),
        said(NOW - 1, NOW + 1),
        said(NOW - 1, NOW - 2),
        said(NOW - LONGEST_HOP_S - 1, NOW - 1),
        said(0, 0),
    ],
    ids=["nothing", "future", "sent in the future", "swapped", "far past", "since boot"],
)
def test_what_another_clock_may_have_told_is_as_if_nothing_was(clock: bytes | None) -> None:
    found = context(clock, timeout=1000)
    assert (found.opened, found.deadline) == (NOW, NOW + 1.0)
    assert (found.aim, found.first) == (math.inf, math.inf)


@pytest.mark.parametrize(
    "clock", [b"", b"5", b"5 ", b" 5", b"-5 5", b"5 five", b"1.5 2", b"5 5 5", b"9" * 5000 + b" 1"]
)
def test_what_is_no_two_moments_is_refused(clock: bytes) -> None:
    with pytest.raises(InvalidRequest, match="x-tiffin-clock"):
        context(clock)


@pytest.mark.parametrize("left", [b"", b"-1", b"soon", b"1.5", b"9" * 400])
def test_time_that_is_no_number_is_refused_by_name(left: bytes) -> None:
    exchange = FakeExchange(b"POST", b"/", headers=[(b"x-tiffin-timeout-ms", left)])
    with pytest.raises(InvalidRequest, match="x-tiffin-timeout-ms"):
        context_of(exchange, FakeClock())


@given(
    way_s=st.floats(0, 5), held_s=st.floats(0, 60), left_s=st.floats(0.001, 600), at=st.floats(1, 9)
)
def test_what_the_gateway_says_is_what_the_replica_hears(
    way_s: float, held_s: float, left_s: float, at: float
) -> None:
    """Whatever the way takes, the deadline is the same moment on both sides, to a millisecond."""
    sent = 10_000 * at
    due = Due(sent + left_s, sent + left_s / 2)
    lines = times(due, sent, sent - held_s).split(b"\r\n")[:-1]
    headers = [(name, value) for name, _, value in (line.partition(b": ") for line in lines)]
    clock = FakeClock(at_s=sent + way_s)
    found = context_of(FakeExchange(b"POST", b"/", headers=headers), clock)
    assert found.opened == pytest.approx(sent - held_s, abs=2 * MICROSECOND)
    assert due.deadline - 0.0011 <= found.deadline <= due.deadline + 0.0011
    assert due.aim - 0.0011 <= found.aim <= due.aim + 0.0011
