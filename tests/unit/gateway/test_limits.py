"""The rate algorithm keeps its law for any arrivals; admission gives back whatever it took."""

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tiffin.errors import ConcurrencyExceeded, Draining, Overloaded, RateLimited, TiffinError
from tiffin.gateway.admit import Admission
from tiffin.gateway.limits.gcra import Gcra
from tiffin.testing.clock import FakeClock
from tiffin.types.snapshot import Limits, Principal, Snapshot


def snapshot(**tenants: Limits) -> Snapshot:
    return Snapshot(
        number=1, config_hash="", published_ns=0, keys={}, tenant_limits=tenants, plans={}
    )


@given(
    gaps=st.lists(st.floats(0, 5), min_size=1, max_size=200),
    per_minute=st.integers(1, 6000),
    burst=st.integers(1, 50),
)
def test_no_window_admits_more_than_burst_plus_rate_times_time(
    gaps: list[float], per_minute: int, burst: int
) -> None:
    rate, now = Gcra(), 0.0
    rate.set(60 / per_minute, burst)
    admitted: list[float] = []
    for gap in gaps:
        now += gap
        assert (rate.remaining(now) > 0) or rate.wait(now) > -1e-6
        if rate.wait(now) <= 0:
            rate.spend(now)
            admitted.append(now)
    for first, start in enumerate(admitted):
        for last in range(first, len(admitted)):
            allowed = burst + (admitted[last] - start) / rate.interval_s
            assert last - first + 1 <= allowed + 1e-6


@given(per_minute=st.integers(1, 6000), burst=st.integers(1, 50))
def test_waiting_as_long_as_it_says_is_enough(per_minute: int, burst: int) -> None:
    rate = Gcra()
    rate.set(60 / per_minute, burst)
    for left in range(burst, 0, -1):
        assert rate.remaining(0.0) == left
        assert rate.wait(0.0) <= 1e-9
        rate.spend(0.0)
    wait = rate.wait(0.0)
    assert wait > 0
    assert rate.wait(wait + 1e-9) <= 1e-9


def test_a_new_snapshot_keeps_what_was_spent_and_forgets_who_is_gone() -> None:
    clock = FakeClock()
    admission = Admission(clock, 10)
    principal = Principal(tenant="t", key="k")
    with admission.admit(principal, snapshot(t=Limits(requests_per_minute=1, burst=1))):
        pass
    later = msgspec.structs.replace(
        snapshot(t=Limits(requests_per_minute=1, burst=1, concurrency=5)), number=2
    )
    with pytest.raises(RateLimited):
        admission.admit(principal, later)
    gone = msgspec.structs.replace(snapshot(), number=3)
    with admission.admit(principal, gone):
        pass
    assert not admission._scopes


def test_a_refusal_spends_nothing_and_says_when() -> None:
    clock = FakeClock()
    admission = Admission(clock, 10)
    limits = Limits(requests_per_minute=60, burst=1)
    principal = Principal(tenant="t", key="k", limits=Limits(requests_per_minute=600, burst=1))
    shot = snapshot(t=limits)
    with admission.admit(principal, shot):
        pass
    with pytest.raises(RateLimited) as refused:
        admission.admit(principal, shot)
    assert refused.value.retry_after == pytest.approx(1.0)
    clock.advance(1.0)
    with admission.admit(principal, shot):
        pass


def test_concurrency_is_counted_by_tenant_over_all_its_keys() -> None:
    admission = Admission(FakeClock(), 10)
    shot = snapshot(t=Limits(concurrency=2))
    one, two = Principal(tenant="t", key="a"), Principal(tenant="t", key="b")
    with admission.admit(one, shot), admission.admit(two, shot):
        with pytest.raises(ConcurrencyExceeded):
            admission.admit(one, shot)
        with admission.admit(Principal(tenant="other", key="a"), shot):
            pass
    assert not admission.running


def test_a_full_or_stopping_server_refuses_before_any_limit() -> None:
    admission = Admission(FakeClock(), 1)
    principal = Principal(tenant="t", key="k")
    with admission.admit(principal, snapshot()), pytest.raises(Overloaded):
        admission.admit(principal, snapshot())
    admission.draining = True
    with pytest.raises(Draining):
        admission.admit(principal, snapshot())


@given(
    steps=st.lists(st.tuples(st.sampled_from("abc"), st.integers(0, 3)), max_size=80),
    limit=st.integers(1, 4),
)
def test_every_permit_comes_back(steps: list[tuple[str, int]], limit: int) -> None:
    clock = FakeClock()
    admission = Admission(clock, 8)
    shot = snapshot(
        a=Limits(concurrency=limit), b=Limits(requests_per_minute=600, burst=2, concurrency=limit)
    )
    held = []
    for tenant, drop in steps:
        try:
            permit = admission.admit(Principal(tenant=tenant, key="k"), shot)
        except TiffinError:
            pass
        else:
            permit.__enter__()
            held.append(permit)
        for _ in range(min(drop, len(held))):
            held.pop(0).__exit__(None, None, None)
        assert admission.in_flight == len(held)
        assert all(count <= limit for count in admission.running.values())
        clock.advance(0.01)
    for permit in held:
        permit.__exit__(None, None, None)
    assert admission.in_flight == 0
    assert not admission.running
