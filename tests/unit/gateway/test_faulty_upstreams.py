"""One deadline and one budget, whatever upstreams do: in virtual time, with every fault."""

import asyncio
from collections.abc import Iterator

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.faulty_walk import Walking, now, walking
from tiffin.errors import UpstreamUnavailable
from tiffin.gateway.retries import JITTER, MAX_WAIT_S, wait_s
from tiffin.telemetry.events import Outcome
from tiffin.testing.exchange import events_of, json_of
from tiffin.testing.plays import Play

STREAMING = pytest.mark.parametrize("streaming", [False, True], ids=["whole", "stream"])
SILENT = Play(fault="stall")
FAILING = [
    *[Play(fault=fault) for fault in ("cut", "reset", "bad", "error")],
    *[Play(status=status) for status in (408, 409, 425, 429, 500, 502, 503, 504, 529)],
]
TOO_LONG = Play(status=400, code="context_length_exceeded")
NEVER_MIND = [Play(status=status) for status in (301, 401, 404, 418, 501)]


def named(play: Play) -> str:
    return play.fault or str(play.status)


@STREAMING
@pytest.mark.parametrize("play", [SILENT, Play(head_s=60), Play(first_s=60)], ids=str)
def test_nothing_outlasts_the_deadline(play: Play, streaming: bool) -> None:
    async def work(walk: Walking) -> None:
        got = await walk.ask(stream=streaming, within_ms=8000)
        assert now() == pytest.approx(8, abs=0.5)
        assert (got.status, json_of(got)["error"]["code"]) == (504, "deadline_exceeded")
        assert walk.last.outcome is Outcome.FAILED

    walking(work, [play])


@STREAMING
def test_retries_share_the_deadline(streaming: bool) -> None:
    async def work(walk: Walking) -> None:
        got = await walk.ask(stream=streaming, within_ms=8000)
        assert now() <= 8.5
        assert got.status in (503, 504)
        assert 2 < walk.a.hits < 8

    walking(work, [SILENT], targets=[{"first_byte_timeout_s": 1.5}], attempts=50)


@STREAMING
@pytest.mark.parametrize("play", FAILING, ids=named)
def test_what_may_pass_is_tried_again_where_it_failed(play: Play, streaming: bool) -> None:
    async def work(walk: Walking) -> None:
        got = await walk.ask(stream=streaming)
        assert got.status == 200
        assert now() >= 0.5 * JITTER[0]
        assert [one.error == "" for one in walk.last.attempts] == [False, True]
        assert walk.last.outcome is Outcome.OK

    walking(work, [play, Play()], attempts=2)


@pytest.mark.parametrize("play", NEVER_MIND, ids=named)
def test_what_would_be_said_again_is_asked_of_the_next_target_alone(play: Play) -> None:
    async def work(walk: Walking) -> None:
        got = await walk.ask()
        assert got.status == 200
        assert now() < 0.1
        assert [one.target for one in walk.last.attempts] == ["a", "b"]
        assert walk.last.attempts[0].status == play.status

    walking(work, [play], [Play()], attempts=9)


@pytest.mark.parametrize("status", [400, 413, 422])
def test_what_is_wrong_with_the_request_is_asked_of_nobody_else(status: int) -> None:
    async def work(walk: Walking) -> None:
        got = await walk.ask()
        assert got.status == 400
        assert walk.b.hits == 0

    walking(work, [Play(status=status)], [Play()], attempts=9)


def test_every_target_has_its_turn_before_any_has_two() -> None:
    async def work(walk: Walking) -> None:
        got = await walk.ask()
        assert [one.target for one in walk.last.attempts] == ["a", "b", "a", "b", "a"]
        message = json_of(got)["error"]["message"]
        assert got.status == 502
        assert message.count("a: the upstream failed (status 500)") == 3
        assert message.count("b: the upstream failed (status 502)") == 2

    walking(work, [Play(status=500)], [Play(status=502)], attempts=5)


def test_where_nothing_listens_tries_are_as_bounded() -> None:
    async def work(walk: Walking) -> None:
        walk.a.down = walk.b.down = True
        got = await walk.ask()
        assert got.status == 503
        assert [one.target for one in walk.last.attempts] == ["a", "b", "a"]
        assert walk.last.outcome is Outcome.FAILED

    walking(work, [Play()], [Play()], settled=False)


def test_an_upstream_that_says_when_is_not_asked_before() -> None:
    async def work(walk: Walking) -> None:
        assert (await walk.ask()).status == 200
        assert now() == pytest.approx(7, abs=0.1)

    walking(work, [Play(status=429, retry_after=7), Play()])


def test_it_is_not_waited_for_beyond_the_deadline() -> None:
    async def work(walk: Walking) -> None:
        got = await walk.ask(within_ms=5000)
        assert now() < 0.1
        assert (got.status, got.answer_headers[b"retry-after"]) == (503, b"7")
        assert walk.a.hits == 1

    walking(work, [Play(status=429, retry_after=7), Play()])


@STREAMING
def test_one_try_may_have_a_limit_of_its_own(streaming: bool) -> None:
    async def work(walk: Walking) -> None:
        assert (await walk.ask(stream=streaming)).status == 200
        assert now() == pytest.approx(3, abs=0.2)
        assert [one.error for one in walk.last.attempts] == ["model_timeout", ""]

    walking(work, [Play(first_s=60)], [Play()], targets=[{"total_timeout_s": 3.0}])


def test_after_the_commit_point_a_limit_ends_in_an_error_event() -> None:
    async def work(walk: Walking) -> None:
        got = await walk.ask(stream=True)
        assert now() == pytest.approx(3, abs=0.2)
        assert events_of(got)[-1]["error"]["code"] == "model_timeout"
        assert b"[DONE]" not in got.sent
        assert walk.b.hits == 0

    walking(work, [Play(words=99, word_s=1)], [Play()], targets=[{"total_timeout_s": 3.0}])


def test_a_stream_that_crawls_is_given_up_and_one_that_walks_is_not() -> None:
    async def work(walk: Walking) -> None:
        got = await walk.ask(stream=True)
        assert b"[DONE]" in got.sent
        crawls = await walk.ask(stream=True)
        assert b"bytes in 5 s, under 100 a second" in crawls.sent
        assert walk.last.outcome is Outcome.PARTIAL
        assert b"[DONE]" not in crawls.sent
        assert (await walk.ask()).status == 200, "a whole answer comes at once, however late"

    slow = {"min_bytes_per_s": 100, "between_bytes_timeout_s": 60.0}
    plays = [Play(words=20, word_s=1), Play(words=20, word_s=9, ping_s=1), Play(first_s=30)]
    walking(work, plays, targets=[slow])


@pytest.mark.parametrize("least", [0, 100])
def test_a_client_that_reads_late_gets_all_and_nobody_is_blamed(least: int) -> None:
    async def work(walk: Walking) -> None:
        exchange = walk.request(stream=True)
        exchange.start(walk.handler)
        await exchange.wrote.wait()
        exchange.room.clear()
        await asyncio.sleep(100)
        exchange.room.set()
        await exchange.over()
        assert exchange.sent.endswith(b"data: [DONE]\n\n")
        assert walk.last.outcome is Outcome.OK

    slow = {"between_bytes_timeout_s": 10.0, "min_bytes_per_s": least}
    walking(work, [Play(words=6000, word_s=0.001)], targets=[slow])


def test_one_that_crawls_before_its_first_word_is_asked_of_the_next() -> None:
    async def work(walk: Walking) -> None:
        got = await walk.ask(stream=True)
        assert b"[DONE]" in got.sent
        assert [one.error for one in walk.last.attempts] == ["upstream_failed", ""]
        assert now() == pytest.approx(5, abs=1.1)

    slow = {"min_bytes_per_s": 100, "between_bytes_timeout_s": 60.0}
    walking(work, [Play(first_s=40)], [Play()], targets=[slow])


@pytest.mark.parametrize("fault", ["cut", "reset", "stall", "bad", "error"])
def test_what_breaks_after_forty_of_sixty_ends_in_an_error_never_as_if_whole(fault: str) -> None:
    async def work(walk: Walking) -> None:
        got = await walk.ask(stream=True)
        events = events_of(got)
        assert got.sent.count(b"word") == 40
        assert "error" in events[-1]
        assert b"[DONE]" not in got.sent
        assert (walk.a.hits, walk.b.hits) == (1, 0)
        assert walk.last.outcome is Outcome.PARTIAL
        assert walk.last.usage.completion_tokens == 40

    walking(work, [Play(words=60, word_s=0.1, after=40, fault=fault)], [Play()], attempts=9)  # type: ignore[arg-type]


@pytest.mark.parametrize("fault", ["cut", "reset", "stall", "bad", "error"])
def test_what_breaks_after_the_role_alone_is_answered_by_another_unseen(fault: str) -> None:
    async def work(walk: Walking) -> None:
        got = await walk.ask(stream=True)
        assert got.sent.endswith(b"data: [DONE]\n\n")
        assert got.sent.count(b"assistant") == 1
        assert (walk.a.hits, walk.b.hits) == (1, 1)

    walking(work, [Play(after=0, fault=fault)], [Play()])  # type: ignore[arg-type]


@STREAMING
@pytest.mark.parametrize("play", [Play(usage=None), Play(usage={"prompt_tokens": -1})], ids=str)
def test_an_odd_usage_is_none(play: Play, streaming: bool) -> None:
    async def work(walk: Walking) -> None:
        assert (await walk.ask(stream=streaming)).status == 200
        assert not walk.last.usage.measured

    walking(work, [play])


def test_usage_beside_content_is_read() -> None:
    async def work(walk: Walking) -> None:
        await walk.ask(stream=True)
        assert (walk.last.usage.prompt_tokens, walk.last.usage.measured) == (7, True)

    walking(work, [Play(usage_early=True)])


def test_a_connection_that_is_half_open_costs_one_try() -> None:
    async def work(walk: Walking) -> None:
        assert (await walk.ask()).status == 200
        assert (await walk.ask()).status == 200
        assert [one.error for one in walk.last.attempts] == ["upstream_unavailable", ""]

    swift = {"first_byte_timeout_s": 2.0}
    walking(work, [Play(half_open=True), Play()], targets=[swift], settled=False)


def test_a_connection_that_was_kept_and_is_closed_costs_a_try_and_no_time() -> None:
    async def work(walk: Walking) -> None:
        assert (await walk.ask()).status == 200
        assert (await walk.ask()).status == 200
        assert [one.error for one in walk.last.attempts] == ["upstream_unavailable", ""]
        assert now() < 0.1

    walking(work, [Play(), Play(fault="cut"), Play()])


def plays() -> Iterator[Play]:
    yield from FAILING + NEVER_MIND
    yield from (Play(), Play(words=1), Play(usage=None), Play(done=False), Play(half_open=True))
    yield from (Play(length=1), Play(length=-1), Play(kept=False), Play(status=400), TOO_LONG)
    for fault in ("cut", "reset", "stall", "bad", "error"):
        yield from (Play(fault=fault, after=0), Play(fault=fault, after=2))


SCRIPTS = st.lists(st.sampled_from([*plays(), SILENT]), min_size=1, max_size=4)


@settings(max_examples=150, deadline=None)
@given(
    scripts=st.lists(SCRIPTS, min_size=1, max_size=3),
    budget=st.integers(1, 5),
    within_ms=st.sampled_from([300, 3000, 100_000]),
    streaming=st.lists(st.booleans(), min_size=1, max_size=4),
)
def test_whatever_upstreams_do_the_budget_and_the_deadline_hold(
    scripts: list[list[Play]], budget: int, within_ms: int, streaming: list[bool]
) -> None:
    async def work(walk: Walking) -> None:
        for stream in streaming:
            began = now()
            got = await walk.ask(stream=stream, within_ms=within_ms)
            assert now() - began <= within_ms / 1000 + 0.3
            assert len(walk.last.attempts) <= budget
            assert (b'"error"' in got.sent) != (walk.last.outcome is Outcome.OK)
            assert b"[DONE]" not in got.sent or b'"error"' not in got.sent

    quick = [{"first_byte_timeout_s": 5.0, "between_bytes_timeout_s": 5.0}] * 3
    halves = any(play.half_open for script in scripts for play in script)
    walking(work, *scripts, targets=quick, attempts=budget, settled=not halves)


@given(failed=st.integers(1, 60), after=st.none() | st.floats(0, 100), chance=st.floats(0, 1))
def test_a_wait_grows_to_a_bound_and_is_never_sooner_than_is_said(
    failed: int, after: float | None, chance: float
) -> None:
    error = UpstreamUnavailable("no", retry_after=after)
    waited = wait_s(failed, error, chance)
    assert waited >= (after or 0)
    assert waited <= max(after or 0, MAX_WAIT_S * JITTER[1])
    assert wait_s(failed + 5, error, chance) >= waited or waited >= MAX_WAIT_S * JITTER[0]
