"""How large batches are, and how wide they run: by what was learnt, never by a fixed number."""

import math
from collections import Counter
from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.unit.serving.tensors.machine import Machine, a_machine, an_item, between, steep
from tiffin.errors import Overloaded
from tiffin.serving.tensors.measures import TensorMeasures
from tiffin.serving.tensors.schedule import DISPATCHES, REASONS, TRIAL_EVERY
from tiffin.telemetry.metrics import Meter


def flood(machine: Machine, requests: int) -> list[int]:
    """Rows of the batches that so many requests at once make."""
    made = len(machine.batches)
    for _ in range(requests):
        machine.ask(an_item(machine.now))
    machine.until(math.inf)
    return [batch.rows for batch in machine.batches[made:]]


def test_a_batch_that_gains_nothing_turns_itself_off_and_comes_back_by_trial() -> None:
    machine = a_machine(steep)
    rows = flood(machine, 600)
    assert sorted(rows)[len(rows) // 2] <= 6
    assert {"enough", "trial"} <= {batch.reason for batch in machine.batches}
    machine.run_s = lambda rows: 0.1 + 0.0001 * rows  # now a larger one gains
    rows = flood(machine, 100 * TRIAL_EVERY)
    assert rows[-2] == 32


def test_a_batch_is_as_large_as_gains() -> None:
    machine = a_machine(between)
    assert sorted(flood(machine, 321))[2] >= 24


def half(rows: int) -> float:
    """What a run takes of whom two lanes help: less, and not half."""
    return 0.6 * steep(rows)


def test_who_is_alone_has_all_lanes_and_many_have_a_part_each() -> None:
    machine = a_machine(steep, lanes=2, wide_s=half)
    before = len(machine.batches)
    for _ in range(3):
        machine.ask(an_item(machine.now))
        machine.until(math.inf)
    assert [batch.wide for batch in machine.batches[before:]] == [True] * 3
    before = len(machine.batches)
    flood(machine, 401)
    wide = [batch.wide for batch in machine.batches[before:]]
    assert wide[0]
    assert sum(wide) <= 1 + 2 * len(wide) / TRIAL_EVERY


def test_lanes_that_are_slower_together_than_all_of_them_at_one_run_are_not_used() -> None:
    machine = a_machine(steep, lanes=2, wide_s=lambda rows: 0.4 * steep(rows))
    flood(machine, 200)
    before = len(machine.batches)
    flood(machine, 200)
    narrow = sum(not batch.wide for batch in machine.batches[before:])
    assert narrow <= 2 * (1 + (len(machine.batches) - before) / TRIAL_EVERY)


@given(
    st.lists(st.tuples(st.floats(0.0, 0.02), st.integers(1, 40)), max_size=60),
    st.sampled_from([half, steep, between]),
)
@settings(max_examples=60, deadline=None)
def test_no_two_runs_have_the_same_lane(
    events: list[tuple[float, int]], wide_s: Callable[[int], float]
) -> None:
    machine = a_machine(steep, lanes=3, wide_s=wide_s)
    for passes, rows in events:
        machine.until(machine.now + passes)
        machine.ask(an_item(machine.now, rows=rows))
        lanes = sum(3 if batch.wide else 1 for _, batch in machine.running)
        assert lanes == 3 - machine.schedule.free <= 3
        assert machine.schedule.running == len(machine.running)
        assert not machine.schedule.waiting or not machine.schedule.free
    machine.until(math.inf)
    assert machine.schedule.free == 3
    assert {batch.reason for batch in machine.batches} <= set(DISPATCHES)


def test_tenants_share_by_their_weights() -> None:
    machine = a_machine(between, queue=10_000)
    for number in range(4000):
        heavy = number < 2000
        machine.ask(
            an_item(machine.now, tenant="a" if heavy else "b", weight=3.0 if heavy else 1.0)
        )
    machine.until(machine.now + 3.0)
    counts = Counter(item.tenant for _, item in machine.answered)
    assert counts["a"] == pytest.approx(3 * counts["b"], rel=0.1)


def test_a_weight_counts_for_what_is_ahead_too() -> None:
    def taken(weight: float) -> int:
        machine = a_machine(between, queue=10_000)
        for _ in range(500):
            machine.ask(an_item(machine.now, tenant="flood"))
        return sum(
            machine.ask(an_item(machine.now, 1.0, tenant="b", weight=weight)) for _ in range(500)
        )

    assert taken(4.0) > 1.3 * taken(1.0) > 0


def test_nobody_waits_for_longer_than_the_queues_own_timeout() -> None:
    machine = a_machine(between, queue_s=0.5)
    for _ in range(2000):
        machine.until(machine.now + 0.001)
        machine.ask(an_item(machine.now))
    machine.until(math.inf)
    starts = {id(item): batch.started for batch in machine.batches for item in batch.items}
    assert all(starts[id(item)] - item.asked <= 0.5 + 1e-9 for _, item in machine.answered)
    assert machine.schedule.refusals["waited"] == len(machine.refused) > 0
    assert set(machine.schedule.refusals) == set(REASONS)


def test_a_refusal_says_for_how_long_its_like_needn_t_ask_and_the_queue_never_runs_dry() -> None:
    machine = a_machine(between)
    silent = machine.now
    while machine.now < 10.0:
        machine.until(machine.now + 0.001)
        if machine.now >= silent and not machine.ask(an_item(machine.now, 0.5)):
            error = machine.refused[-1][1]
            assert isinstance(error, Overloaded)
            assert error.full_s > 0
            silent = machine.now + error.full_s
        assert machine.running
    assert len(machine.refused) < 0.1 * len(machine.answered)


def test_batches_that_lanes_share_arent_taken_for_full_ones() -> None:
    machine = a_machine(between, lanes=2, wide_s=lambda rows: 0.9 * between(rows))
    for _ in range(200):
        machine.schedule.admit(an_item(machine.now), machine.now)
        machine.ask(an_item(machine.now))
        machine.until(math.inf)
    assert machine.batches[-2].reason == "shared"
    for _ in range(2):
        machine.schedule.admit(an_item(machine.now), machine.now)
    machine.start("idle")
    assert machine.ask(an_item(machine.now, 0.1))


def test_every_reason_is_told_with_its_metric() -> None:
    meter = Meter("replica", "epoch")
    TensorMeasures(meter, "m", "1")
    told = meter.state().decode()
    assert all(f"{name} (" in told or f'{name}"' in told for name in (*DISPATCHES, *REASONS))
