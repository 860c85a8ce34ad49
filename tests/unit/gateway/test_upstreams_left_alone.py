"""An upstream that fails is left alone, though it is the only one, and tried by one request."""

import asyncio

import pytest

from tests.faulty_walk import Walking, now, walking
from tiffin.gateway.placement.circuit import PATIENCE, TRIAL_S
from tiffin.telemetry.events import Outcome
from tiffin.testing.exchange import json_of
from tiffin.testing.plays import Play, Seen

OUTAGE_S = 60
PROBES = 7
"""After half a second, then after twice as long each time: so many in a minute."""
DOWN = [Play(status=503), Play(fault="reset"), Play(fault="error")]


async def every(seconds: float, for_s: float, walk: Walking) -> list[float]:
    """Requests that come at a pace, however the ones before them do; how long each took, sorted."""
    took: list[float] = []

    async def one(number: int) -> None:
        await asyncio.sleep(number * seconds)
        asked = now()
        await walk.ask(("acme", "bolt")[number % 2])
        took.append(now() - asked)

    async with asyncio.TaskGroup() as group:
        for number in range(round(for_s / seconds)):
            group.create_task(one(number))
    return sorted(took)


@pytest.mark.parametrize("play", DOWN, ids=str)
def test_one_that_is_dead_for_a_minute_is_hit_by_few_and_the_only_one_there_is(play: Play) -> None:
    async def work(walk: Walking) -> None:
        await every(0.1, OUTAGE_S, walk)
        assert walk.a.hits <= PATIENCE + PROBES
        refused = walk.ledger.closed[-1]
        assert (refused.outcome, refused.error, refused.attempts) == (
            Outcome.FAILED,
            "upstream_unavailable",
            [],
        )
        walk.a.script = [Play()]
        await asyncio.sleep(30)
        assert {(await walk.ask()).status for _ in range(20)} == {200}

    walking(work, [play], attempts=1)


def test_one_that_refuses_connections_is_asked_as_seldom() -> None:
    async def work(walk: Walking) -> None:
        walk.a.down = True
        await every(0.1, OUTAGE_S, walk)
        assert len(walk.attempts) <= PATIENCE + PROBES

    walking(work, [Play()], attempts=1, settled=False)


def test_a_fallback_answers_as_fast_as_it_does_alone() -> None:
    async def work(walk: Walking) -> None:
        took = await every(0.05, OUTAGE_S, walk)
        assert walk.a.hits <= 2.0 / 0.05 + OUTAGE_S / TRIAL_S, "those of the first two seconds"
        assert took[int(0.95 * len(took))] == pytest.approx(0.2, abs=0.05)
        assert {one.outcome for one in walk.ledger.closed} == {Outcome.OK}

    silent = {"first_byte_timeout_s": 2.0}
    walking(work, [Play(fault="stall")], [Play(head_s=0.2)], targets=[silent])


def test_a_refusal_says_when_to_come_again() -> None:
    async def work(walk: Walking) -> None:
        await every(0.01, 0.2, walk)
        got = await walk.ask()
        assert (got.status, got.answer_headers[b"retry-after"]) == (503, b"1")
        assert "failed again and again" in json_of(got)["error"]["message"]

    walking(work, [Play(status=500)], attempts=1)


def test_whoever_sends_what_breaks_it_keeps_nobody_else_out() -> None:
    def by_tenant(seen: Seen) -> Play:
        return Play(status=500) if "poison" in str(seen.json) else Play()

    async def work(walk: Walking) -> None:
        for _ in range(3 * PATIENCE):
            await walk.ask(messages=[{"role": "user", "content": "poison"}])
        assert walk.a.hits == PATIENCE
        assert (await walk.ask("bolt")).status == 200

    walking(work, by_tenant, attempts=1)


def test_a_request_in_trial_holds_up_no_other_once_it_is_answered() -> None:
    async def work(walk: Walking) -> None:
        await every(0.01, 0.2, walk)
        walk.a.script = [Play(words=100, word_s=1)]
        await asyncio.sleep(1)
        long = walk.request(stream=True)
        long.start(walk.handler)
        await asyncio.sleep(0.5)
        walk.a.script = [Play()]
        assert (await walk.ask("bolt")).status == 200
        await long.leave()

    walking(work, [Play(status=500)], attempts=1)


def test_what_says_nothing_about_it_leaves_it_be() -> None:
    async def work(walk: Walking) -> None:
        for _ in range(20):
            assert (await walk.ask()).status in (400, 502, 503)
        assert walk.a.hits == 20
        for _ in range(20):
            assert (await walk.ask(within_ms=100)).status == 504
        assert walk.a.hits == 40

    others = [Play(status=status) for status in (400, 403, 404, 409, 429)] * 4
    walking(work, [*others, Play(fault="stall")], attempts=1)


def test_a_restart_forgets_nothing_and_holds_nobody_longer() -> None:
    async def work(walk: Walking) -> None:
        await every(0.01, 0.2, walk)
        for _ in range(4):
            await asyncio.sleep(10)
            await walk.ask()
        held = walk.pool.held()
        [[one]] = [list(each.values()) for each in held.values()]
        assert one.left_s == pytest.approx(8, abs=0.1)
        await asyncio.sleep(1)
        again = Walking([Play()], attempts=1, held=held)
        assert (await again.ask()).status == 503
        await asyncio.sleep(7.5)
        assert (await again.ask("bolt")).status == 503
        assert again.a.hits == 0
        await asyncio.sleep(1)
        assert (await again.ask("bolt")).status == 200
        again.pool.close()

    walking(work, [Play(status=500)], attempts=1)
