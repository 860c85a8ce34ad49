"""A second try beside a slow first one: sooner, inside one budget, and nothing unaccounted."""

import asyncio
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.faulty_walk import Walking, now, walking
from tiffin.config.load import load_text
from tiffin.errors import ConfigInvalid
from tiffin.gateway.hedged import MOST_SAVED, HedgeShares
from tiffin.telemetry.events import Outcome
from tiffin.telemetry.metrics import Meter
from tiffin.testing.exchange import json_of
from tiffin.testing.plays import Play
from tiffin.types.price import Price
from tiffin.types.snapshot import Plan

STREAMING = pytest.mark.parametrize("streaming", [False, True], ids=["whole", "stream"])
HEDGED: dict[str, Any] = {"hedge_s": 0.5, "hedge_most": 1.0}
SLOW = Play(first_s=20)


@STREAMING
def test_a_slow_first_is_overtaken_and_stopped(streaming: bool) -> None:
    async def work(walk: Walking) -> None:
        got = await walk.ask(stream=streaming)
        assert got.status == 200
        assert now() == pytest.approx(0.5, abs=0.1)
        assert walk.last.outcome is Outcome.OK
        tries = [(one.n, one.target, one.error) for one in walk.last.attempts]
        assert tries == [(1, "a", "cancelled"), (2, "b", "")]
        assert walk.last.target == "b"

    walk = walking(work, [SLOW], [Play()], **HEDGED)
    assert walk.accounts.hedges.labels(("m", "won")).value == 1


@STREAMING
def test_a_quick_first_has_no_second(streaming: bool) -> None:
    async def work(walk: Walking) -> None:
        assert (await walk.ask(stream=streaming)).status == 200
        assert [one.target for one in walk.last.attempts] == ["a"]

    walking(work, [Play(first_s=0.3)], [Play()], **HEDGED)


def test_the_first_may_still_be_sooner() -> None:
    async def work(walk: Walking) -> None:
        assert (await walk.ask()).status == 200
        assert now() == pytest.approx(1, abs=0.1)
        assert walk.last.target == "a"
        assert {(one.target, one.error) for one in walk.last.attempts} == {
            ("a", ""),
            ("b", "cancelled"),
        }

    walk = walking(work, [Play(first_s=1)], [SLOW], **HEDGED)
    assert walk.accounts.hedges.labels(("m", "lost")).value == 1


def test_one_that_fails_leaves_the_other_to_answer() -> None:
    async def work(walk: Walking) -> None:
        assert (await walk.ask()).status == 200
        assert now() == pytest.approx(1, abs=0.1)

    walking(work, [Play(first_s=1)], [Play(status=500)], **HEDGED)
    walking(work, [Play(head_s=0.8, status=400 + 18)], [Play(first_s=0.5)], attempts=2, **HEDGED)


def test_what_is_wrong_with_the_request_is_said_at_once() -> None:
    async def work(walk: Walking) -> None:
        assert (await walk.ask()).status == 400
        assert now() == pytest.approx(1, abs=0.1)

    walking(work, [Play(head_s=1, status=400)], [SLOW], **HEDGED)


def test_both_fail_within_the_budget_and_the_deadline() -> None:
    async def work(walk: Walking) -> None:
        got = await walk.ask(within_ms=4000)
        assert now() <= 4.1
        assert json_of(got)["error"]["code"]
        assert walk.last.outcome is Outcome.FAILED

    walking(work, [SLOW], [SLOW], **HEDGED)


def test_a_client_that_leaves_stops_both() -> None:
    async def work(walk: Walking) -> None:
        exchange = walk.request()
        exchange.start(walk.handler)
        await asyncio.sleep(1)
        await exchange.leave()
        await exchange.over()
        assert {one.error for one in walk.last.attempts} == {"cancelled"}
        assert len(walk.last.attempts) == 2
        assert walk.last.outcome is Outcome.CANCELLED

    walking(work, [SLOW], [SLOW], **HEDGED)


def test_only_a_share_of_requests_is_hedged() -> None:
    plan = Plan(name="m", identity="m", targets=(), hedge_s=1, hedge_most=0.1)
    results = Meter("t", "e").counter("hedges_total", "", ("model", "result"))
    shares = HedgeShares(results)
    taken = 0
    for _ in range(1000):
        shares.count(plan)
        taken += shares.take(plan)
    assert 95 <= taken <= 101
    for _ in range(1000):
        shares.count(plan)
    assert sum(shares.take(plan) for _ in range(50)) == MOST_SAVED


PLAYS = st.sampled_from(
    [
        Play(),
        Play(first_s=0.7),
        SLOW,
        Play(status=500),
        Play(head_s=0.6, status=503),
        Play(status=400),
        Play(fault="cut", after=2),
        Play(fault="reset"),
        Play(fault="stall"),
    ]
)


@settings(deadline=None, max_examples=60)
@given(
    a=st.lists(PLAYS, min_size=1, max_size=3),
    b=st.lists(PLAYS, min_size=1, max_size=3),
    attempts=st.integers(2, 4),
    streaming=st.booleans(),
)
def test_whatever_fails_tries_stay_in_the_budget_and_all_are_in_the_ledger(
    a: list[Play], b: list[Play], attempts: int, streaming: bool
) -> None:
    async def work(walk: Walking) -> None:
        await walk.ask(stream=streaming, within_ms=9000)
        assert now() <= 9.5
        assert len(walk.last.attempts) <= attempts
        numbers = [one.n for one in walk.last.attempts]
        assert numbers == list(range(1, len(numbers) + 1))

    walking(work, a, b, attempts=attempts, **HEDGED)


def test_one_that_refused_took_nothing() -> None:
    async def work(walk: Walking) -> None:
        assert (await walk.ask()).status == 200
        assert {one.error for one in walk.last.attempts} == {"", "upstream_unavailable"}
        assert walk.last.loss_pico == 0

    price = {"price": Price(currency="INR", input_token=2, output_token=5)}
    plays = [Play(first_s=1)], [Play(status=503)]
    walking(work, *plays, targets=[price, price], attempts=2, **HEDGED)


@settings(deadline=None, max_examples=40)
@given(
    a=PLAYS,
    b=PLAYS,
    after_s=st.sampled_from([0.1, 0.3, 0.5, 0.6, 0.7, 1.0]),
    streaming=st.booleans(),
)
def test_whenever_a_client_leaves_both_stop_and_all_is_in_the_ledger(
    a: Play, b: Play, after_s: float, streaming: bool
) -> None:
    async def work(walk: Walking) -> None:
        exchange = walk.request(stream=streaming)
        exchange.start(walk.handler)
        await asyncio.sleep(after_s)
        await exchange.leave()
        await exchange.over()
        assert len(walk.ledger.closed) == 1

    walking(work, [a], [b], **HEDGED)


@STREAMING
def test_what_the_slower_one_took_is_our_loss_and_the_tenant_pays_the_other(
    streaming: bool,
) -> None:
    async def work(walk: Walking) -> None:
        assert (await walk.ask(stream=streaming)).status == 200
        cost = 7 * 2 + 3 * 5
        assert (walk.last.target, walk.last.cost_pico) == ("b", cost)
        assert walk.last.loss_pico > 0

    price = {"price": Price(currency="INR", input_token=2, output_token=5)}
    pings = Play(first_s=20, ping_s=0.2)
    walking(work, [pings], [Play()], targets=[price, price], **HEDGED)


@pytest.mark.parametrize(("models", "attempts"), [('["a"]', 3), ('["a", "b"]', 1)])
def test_a_hedge_without_a_second_model_or_try_is_refused(models: str, attempts: int) -> None:
    section = '[models.{0}]\nruntime = "echo"\n'
    text = section.format("a") + section.format("b")
    text += f"[routes.r]\nmodels = {models}\nattempts = {attempts}\n"
    text += "[routes.r.hedge]\nafter_ms = 300\n"
    with pytest.raises(ConfigInvalid, match=r"300 needs another model and another try"):
        load_text(f"version = 1\n{text}".encode())
