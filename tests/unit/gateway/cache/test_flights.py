"""Identical requests at the same time run once, and each has an account of its own."""

import asyncio
from collections.abc import Sequence

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.unit.gateway.test_walk import (
    DONE,
    GOOD,
    ROLE,
    WORD,
    ScriptedBackend,
    Shop,
    stream,
    whole,
)
from tiffin.errors import RunFailed, UpstreamFailed
from tiffin.gateway.cache import flights
from tiffin.gateway.cache.memory import MemoryCacheStore
from tiffin.ports.cache import Stored, Which
from tiffin.telemetry.events import Outcome
from tiffin.testing.exchange import FakeExchange, answered, json_of
from tiffin.types.caching import Caching
from tiffin.types.usage import Usage

ON = Caching(ttl_s=60.0)
MANY = 5


async def all_of(shop: Shop, exchanges: list[FakeExchange]) -> None:
    await asyncio.gather(*(answered(shop.handler, exchange) for exchange in exchanges))


@pytest.mark.parametrize("streaming", [True, False], ids=["stream", "whole"])
async def test_they_share_one_run_and_one_pays(streaming: bool) -> None:
    shop = Shop(ScriptedBackend(stream(*GOOD) if streaming else whole()), cache=ON)
    exchanges = [shop.request(stream=streaming) for _ in range(MANY)]
    await all_of(shop, exchanges)
    assert len(shop.backends[0].calls) == 1
    assert len({bytes(one.sent) for one in exchanges}) == 1
    assert sorted(one.cache for one in shop.ledger.closed) == ["joined"] * (MANY - 1) + ["miss"]
    paid = [one for one in shop.ledger.closed if one.usage != Usage()]
    assert [(one.cache, one.usage.completion_tokens) for one in paid] == [("miss", 2)]
    assert all(one.outcome is Outcome.OK for one in shop.ledger.closed)
    assert [len(one.attempts) for one in shop.ledger.closed if one.attempts] == [1]
    shop.settled()
    assert (await shop.ask(stream=streaming)).answer_headers[b"x-tiffin-cache"] == b"hit"


class Purged(MemoryCacheStore):
    """Everything is purged after each look-up, while the answer is being made."""

    async def find(self, tenant: str, keys: Sequence[bytes]) -> list[Stored]:
        found = await super().find(tenant, keys)
        await self.purge(Which(), 2**62)
        return found


async def test_an_answer_that_was_being_made_when_it_was_purged_isnt_kept() -> None:
    shop = Shop(ScriptedBackend(whole()), cache=ON)
    shop.walk._stages.cache.shelf.store = Purged()
    found = [(await shop.ask()).answer_headers[b"x-tiffin-cache"] for _ in range(2)]
    assert found == [b"miss", b"miss"]
    shop.settled()


async def test_who_differs_in_anything_doesnt_share() -> None:
    shop = Shop(ScriptedBackend(whole()), cache=ON)
    other = shop.request(key="sk-other-000000000000")
    await all_of(shop, [shop.request(), shop.request(seed=1), other])
    assert len(shop.backends[0].calls) == 3


async def test_the_answer_goes_on_when_the_leader_leaves() -> None:
    backend = ScriptedBackend(stream(ROLE, WORD, hangs=True))
    shop = Shop(backend, cache=ON)
    leader, follower = shop.request(stream=True), shop.request(stream=True)
    leader.start(shop.handler)
    await backend.hanging.wait()
    follower.start(shop.handler)
    await follower.wrote.wait()
    await leader.leave()
    assert backend.running == 1
    assert (shop.ledger.last.outcome, shop.ledger.last.usage) == (Outcome.CANCELLED, Usage())
    await follower.leave()
    assert backend.running == 0
    assert shop.ledger.last.outcome is Outcome.CANCELLED
    assert shop.ledger.last.cache == "miss"
    assert shop.ledger.last.usage.completion_tokens == 1
    shop.settled()


async def test_an_error_is_told_to_all_and_kept_for_nobody() -> None:
    shop = Shop(ScriptedBackend(stream(RunFailed("broken")), stream(*GOOD)), cache=ON, attempts=1)
    exchanges = [shop.request(stream=True) for _ in range(3)]
    await all_of(shop, exchanges)
    assert len(shop.backends[0].calls) == 1
    assert {one.status for one in exchanges} == {500}
    assert (await shop.ask(stream=True)).sent.endswith(DONE)
    assert len(shop.backends[0].calls) == 2
    shop.settled()


async def test_a_stream_that_breaks_off_breaks_off_for_all() -> None:
    shop = Shop(ScriptedBackend(stream(ROLE, WORD, UpstreamFailed("cut"))), cache=ON)
    exchanges = [shop.request(stream=True) for _ in range(3)]
    await all_of(shop, exchanges)
    assert all(b"error" in one.sent and not one.sent.endswith(DONE) for one in exchanges)
    assert {one.outcome for one in shop.ledger.closed} == {Outcome.PARTIAL}
    shop.settled()


async def test_a_followers_own_deadline_holds() -> None:
    backend = ScriptedBackend(stream(hangs=True))
    shop = Shop(backend, cache=ON)
    leader = shop.request(stream=True)
    leader.start(shop.handler)
    await backend.hanging.wait()
    hurried = shop.request(stream=True, headers=[(b"x-request-timeout-ms", b"30")])
    await answered(shop.handler, hurried)
    assert (hurried.status, json_of(hurried)["error"]["code"]) == (504, "deadline_exceeded")
    assert backend.running == 1
    await leader.leave()
    shop.settled()


async def test_who_reads_slowly_holds_the_model_back(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(flights, "HELD_BYTES", 3 * len(WORD))
    backend = ScriptedBackend(stream(ROLE, *[WORD] * 200, *GOOD[3:]))
    shop = Shop(backend, cache=ON)
    slow, quick = shop.request(stream=True), shop.request(stream=True)
    slow.room.clear()
    slow.start(shop.handler)
    quick.start(shop.handler)
    await quick.wrote.wait()
    for _ in range(300):
        await asyncio.sleep(0)
    assert not quick.finished
    late = shop.request(stream=True)
    slow.room.set()
    await slow.over()
    await quick.over()
    assert slow.sent == quick.sent
    assert slow.sent.count(b"word") == 200
    await answered(shop.handler, late)
    assert late.sent == slow.sent
    shop.settled()


LIVES = st.lists(st.tuples(st.integers(0, 12), st.integers(0, 40)), min_size=1, max_size=6)


@settings(max_examples=150, deadline=None)
@given(lives=LIVES, streaming=st.booleans(), slow=st.integers(0, 6))
async def test_one_run_whatever_the_cancellations(
    lives: list[tuple[int, int]], streaming: bool, slow: int
) -> None:
    """Each comes after some turns of the loop and leaves after some more, or is answered."""
    pieces = (ROLE, *[WORD] * slow, *GOOD[1:])
    backend = ScriptedBackend(stream(*pieces) if streaming else whole())
    shop = Shop(backend, cache=ON)
    most = 0

    async def live(comes: int, stays: int) -> None:
        nonlocal most
        for _ in range(comes):
            await asyncio.sleep(0)
        exchange = shop.request(stream=streaming)
        exchange.start(shop.handler)
        for _ in range(stays):
            await asyncio.sleep(0)
            most = max(most, backend.running)
        if exchange.finished:
            await exchange.over()
        else:
            await exchange.leave()

    await asyncio.gather(*(live(*one) for one in lives))
    assert most <= 1
    shop.settled()
    used = [one for one in shop.ledger.closed if one.attempts]
    assert len(used) == len(backend.calls)
    assert (await shop.ask(stream=streaming)).finished


async def test_a_key_of_its_own_runs_alone() -> None:
    shop = Shop(ScriptedBackend(whole()), cache=ON)
    fresh = [(b"cache-control", b"no-cache")]
    await shop.ask()
    again = await shop.ask(headers=fresh)
    assert again.answer_headers[b"x-tiffin-cache"] == b"miss"
    assert msgspec.json.decode(again.sent)
    assert len(shop.backends[0].calls) == 2
