"""Several keys of one upstream: requests go on with another where one is refused, and only then."""

import asyncio
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest

from tests.faulty_walk import Walking, now, walking
from tiffin.testing.plays import Play, Seen
from tiffin.types.snapshot import KeyAt

KEYS: dict[str, Any] = {"keys": (KeyAt(env="ONE"), KeyAt(env="TWO"), KeyAt(env="THREE"))}


def refusing(*bad: str, play: Play) -> Callable[[Seen], Play]:
    return lambda seen: play if seen.key in bad else Play()


def hits(walk: Walking) -> Counter[str]:
    return Counter(seen.key for seen in walk.a.seen)


def test_requests_are_spread_over_the_keys() -> None:
    async def work(walk: Walking) -> None:
        for _ in range(9):
            assert (await walk.ask()).status == 200
        assert hits(walk) == {"ONE": 3, "TWO": 3, "THREE": 3}

    walking(work, [Play()], targets=[KEYS])


@pytest.mark.parametrize("status", [401, 402, 403, 429])
def test_another_key_takes_over_at_once(status: int) -> None:
    async def work(walk: Walking) -> None:
        for _ in range(6):
            assert (await walk.ask()).status == 200
        assert now() < 0.1
        assert walk.b.hits == 0
        statuses = [[one.status for one in closed.attempts] for closed in walk.ledger.closed]
        assert [status, 200] in statuses
        if status != 403:
            assert hits(walk)["TWO"] == 1, "it is left alone"

    script = refusing("TWO", play=Play(status=status))
    walking(work, script, [Play()], targets=[KEYS])


@pytest.mark.parametrize("status", [500, 503])
def test_a_server_that_fails_is_not_asked_with_every_key(status: int) -> None:
    async def work(walk: Walking) -> None:
        assert (await walk.ask()).status == 200
        assert [one.target for one in walk.last.attempts] == ["a", "b"]

    walking(work, [Play(status=status)], [Play()], targets=[KEYS])


def test_where_every_key_is_refused_the_next_target_answers_and_the_keys_are_left_alone() -> None:
    async def work(walk: Walking) -> None:
        assert (await walk.ask()).status == 200
        assert [one.target for one in walk.last.attempts] == ["a", "a", "a", "b"]
        assert (await walk.ask()).status == 200
        assert [one.target for one in walk.last.attempts] == ["b"]

    walking(work, [Play(status=401)], [Play()], targets=[KEYS], attempts=4)


def test_the_budget_holds_over_keys() -> None:
    async def work(walk: Walking) -> None:
        got = await walk.ask()
        assert (got.status, walk.a.hits) == (502, 2)

    walking(work, [Play(status=401)], targets=[KEYS], attempts=2)


def test_the_next_target_has_its_turn_before_another_key_has_the_last_one() -> None:
    async def work(walk: Walking) -> None:
        assert (await walk.ask()).status == 200
        assert [one.target for one in walk.last.attempts] == ["a", "a", "b"]

    walking(work, [Play(status=401)], [Play()], targets=[KEYS], attempts=3)


def test_a_key_is_used_again_when_its_time_is_over() -> None:
    async def work(walk: Walking) -> None:
        for _ in range(6):
            await walk.ask()
        assert hits(walk)["ONE"] == 1
        await asyncio.sleep(19)
        await walk.ask()
        assert hits(walk)["ONE"] == 1
        walk.a.script = [Play()]
        await asyncio.sleep(2)
        for _ in range(3):
            await walk.ask()
        assert hits(walk)["ONE"] >= 2

    script = refusing("ONE", play=Play(status=429, retry_after=20))
    walking(work, script, targets=[KEYS])


def test_one_key_alone_waits_as_it_is_told_and_costs_no_calls_meanwhile() -> None:
    async def work(walk: Walking) -> None:
        for _ in range(5):
            assert (await walk.ask(within_ms=1000)).status == 503
        assert walk.a.hits == 1
        await asyncio.sleep(20)
        walk.a.script = [Play()]
        assert (await walk.ask()).status == 200

    walking(work, [Play(status=429, retry_after=20)])


def test_as_many_run_at_once_as_with_one_key() -> None:
    async def work(walk: Walking) -> None:
        got = await asyncio.gather(*(walk.ask() for _ in range(3)))
        assert sorted(one.status for one in got) == [200, 200, 503]

    walking(work, [Play(head_s=1)], targets=[{**KEYS, "max_concurrency": 2, "queue": 0}])
