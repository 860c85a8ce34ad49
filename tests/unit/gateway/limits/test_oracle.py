"""The rate algorithm admits what another implementation of it admits, arrival by arrival."""

import pytest
import throttled.utils
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from throttled import Throttled, rate_limiter, store

from tiffin.gateway.limits.gcra import Gcra

SECOND = 10**9


# What the other one keeps in floating point is exact in parts of a second that are powers of two.
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    per_second=st.sampled_from([1, 2, 4, 8]),
    burst=st.integers(1, 20),
    arrivals=st.lists(st.tuples(st.integers(0, 256), st.integers(1, 20)), max_size=60),
)
def test_it_admits_and_refuses_as_throttled_does(
    monkeypatch: pytest.MonkeyPatch,
    per_second: int,
    burst: int,
    arrivals: list[tuple[int, int]],
) -> None:
    now_s = 1024.0
    monkeypatch.setattr(throttled.utils, "now_mono_f", lambda: now_s)
    quota = rate_limiter.per_sec(per_second, burst=burst)
    other = Throttled(key="k", using="gcra", quota=quota, store=store.MemoryStore())
    rate = Gcra(per_second, SECOND, burst)
    for gap, wanted in arrivals:
        now_s += gap / 64
        now = int(now_s * SECOND)
        theirs = other.limit(cost=wanted)
        wait = rate.wait(wanted, now)
        assert (wait > 0) is theirs.limited
        if wait:
            assert wait == theirs.state.retry_after * SECOND
        else:
            rate.take(wanted, now)
            assert rate.left(now) == theirs.state.remaining
