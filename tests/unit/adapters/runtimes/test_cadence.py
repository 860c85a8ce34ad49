"""How long a reader of tokens rests: never long enough to hold back an answer's end."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tiffin.adapters.runtimes.cadence import Cadence, interval_s

LIMIT = 64
gaps = st.floats(min_value=0.0005, max_value=0.2)


def read_all(cadence: Cadence, gap_s: float) -> tuple[int, float, float]:
    """Reads of an answer whose tokens come evenly: how many, the longest wait of one, the end."""
    now, read, reads, longest = 0.0, 0, 0, 0.0
    while read < LIMIT:
        now = max(now, (read + 1) * gap_s)
        longest = max(longest, now - (read + 1) * gap_s)
        # One that comes at this very moment is rounded either way.
        read = min(LIMIT, int(now / gap_s + 1e-9))
        reads += 1
        now += cadence.rest_s(now, read)
    return reads, longest, max(now, LIMIT * gap_s)


@given(gap_s=gaps)
def test_no_token_waits_longer_than_the_interval_and_the_last_one_hardly(gap_s: float) -> None:
    _, longest, end = read_all(Cadence(0.02, LIMIT), gap_s)
    assert longest <= 0.02 + 1e-9
    assert end <= (LIMIT + 1) * gap_s, "less than one more token would take"


def test_fast_tokens_are_read_several_at_once() -> None:
    reads, _, _ = read_all(Cadence(0.02, LIMIT), 0.005)
    assert reads <= LIMIT / 3


@pytest.mark.parametrize("interval_s", [0.0, 0.02], ids=["off", "slow tokens"])
def test_otherwise_each_is_read_as_it_comes(interval_s: float) -> None:
    cadence = Cadence(interval_s, LIMIT)
    rests = [cadence.rest_s(0.05 * number, number) for number in range(1, LIMIT)]
    assert set(rests) == {0.0}


@given(st.floats(0, 1000), st.floats(0, 60))
def test_a_rest_is_no_silence_of_the_model(wanted_ms: float, patience_s: float) -> None:
    longest_s = interval_s(wanted_ms, patience_s)
    assert longest_s <= wanted_ms / 1000
    assert longest_s < patience_s or not patience_s
    assert interval_s(wanted_ms, 0.0) == wanted_ms / 1000


def test_a_rest_before_any_token_is_none() -> None:
    assert Cadence(0.02, LIMIT).rest_s(1.0, 0) == 0.0
