"""Who answers where a route's first model doesn't, and that clients are told who did."""

from typing import Any

import msgspec
import pytest

from tests.faulty_walk import Walking, now, walking
from tiffin.telemetry.events import Outcome
from tiffin.testing.exchange import FakeExchange, json_of
from tiffin.testing.plays import Play
from tiffin.types.caching import Caching

STREAMING = pytest.mark.parametrize("streaming", [False, True], ids=["whole", "stream"])
TOO_LONG = Play(status=400, code="context_length_exceeded")
BUSY = Play(status=503)


def who(got: FakeExchange) -> bytes | None:
    """Which model the client is told of."""
    return got.answer_headers.get(b"x-tiffin-fallback")


@STREAMING
@pytest.mark.parametrize("play", [BUSY, Play(fault="reset"), Play(status=401)], ids=str)
def test_a_client_is_told_that_another_model_answered(play: Play, streaming: bool) -> None:
    async def work(walk: Walking) -> None:
        got = await walk.ask(stream=streaming)
        assert (got.status, who(got)) == (200, b"b")
        assert (walk.last.outcome, walk.last.target) == (Outcome.OK, "b")

    walking(work, [play], [Play()])


@STREAMING
def test_of_the_first_model_nothing_is_said(streaming: bool) -> None:
    async def work(walk: Walking) -> None:
        assert who(await walk.ask(stream=streaming)) is None

    walking(work, [BUSY, Play()])


@STREAMING
def test_a_second_that_was_sooner_is_told_of(streaming: bool) -> None:
    async def work(walk: Walking) -> None:
        assert who(await walk.ask(stream=streaming)) == b"b"

    walking(work, [Play(first_s=20)], [Play()], hedge_s=0.5, hedge_most=1.0)


@STREAMING
def test_a_client_is_told_of_it_through_a_cache(streaming: bool) -> None:
    async def work(walk: Walking) -> None:
        assert who(await walk.ask(stream=streaming)) == b"b"

    walking(work, [BUSY], [Play()], cache=Caching(ttl_s=60))


def test_where_nobody_answers_nobody_is_named() -> None:
    async def work(walk: Walking) -> None:
        got = await walk.ask()
        assert (got.status, who(got)) == (503, None)

    walking(work, [BUSY], [BUSY], attempts=2)


@STREAMING
def test_what_is_too_long_for_one_model_is_tried_at_the_next(streaming: bool) -> None:
    async def work(walk: Walking) -> None:
        got = await walk.ask(stream=streaming)
        assert (got.status, who(got)) == (200, b"b")
        assert [one.error for one in walk.last.attempts] == ["context_length_exceeded", ""]
        assert now() < 0.1

    walking(work, [TOO_LONG], [Play()])


def test_what_is_too_long_is_tried_at_no_other_replica_of_the_same() -> None:
    async def work(walk: Walking) -> None:
        for place in walk.pool._stations[walk.targets[0]].places:
            place.ready = True
        assert (await walk.ask()).status == 200
        assert [one.target for one in walk.last.attempts] == ["a", "b"]

    replicas = {"kind": "llamacpp", "sockets": ("one", "two")}
    walking(work, [TOO_LONG], [Play()], targets=[replicas], attempts=9)


def test_what_is_too_long_for_all_is_the_clients_to_mend() -> None:
    async def work(walk: Walking) -> None:
        got = await walk.ask()
        error = json_of(got)["error"]
        assert (got.status, error["code"]) == (400, "context_length_exceeded")
        assert walk.last.outcome is Outcome.REFUSED
        assert len(walk.last.attempts) == 2

    walking(work, [TOO_LONG], [TOO_LONG], attempts=9)


@pytest.mark.parametrize("plays", [(TOO_LONG, BUSY), (BUSY, TOO_LONG)], ids=["first", "last"])
def test_while_one_that_may_take_it_is_busy_it_may_come_again(plays: tuple[Play, Play]) -> None:
    async def work(walk: Walking) -> None:
        got = await walk.ask()
        error = json_of(got)["error"]
        assert (got.status, error["code"]) == (503, "upstream_unavailable")
        assert "a: " in error["message"]
        assert "b: " in error["message"]

    walking(work, [plays[0]], [plays[1]], attempts=2)


def test_two_routes_that_are_each_others_fallback_come_to_an_end() -> None:
    async def work(walk: Walking) -> None:
        there = walk.snapshot.plans["m"]
        back = msgspec.structs.replace(there, name="n", targets=there.targets[::-1])
        walk.snapshot = msgspec.structs.replace(walk.snapshot, plans={"m": there, "n": back})
        walk.pool.adopt(walk.snapshot)
        for model, order in (("m", ["a", "b", "a"]), ("n", ["b", "a", "b"])):
            asked: dict[str, Any] = {"model": model}
            got = await walk.ask(**asked)
            assert got.status == 503
            assert [one.target for one in walk.last.attempts] == order

    walking(work, [BUSY], [BUSY], attempts=3)
