"""What is given again, in which form, and what never is."""

from collections.abc import Sequence
from typing import Any

import msgspec
import pytest

from tests.unit.gateway.test_charge import priced
from tests.unit.gateway.test_walk import (
    DONE,
    GOOD,
    KEY,
    ROLE,
    WORD,
    Script,
    ScriptedBackend,
    Shop,
    stream,
    whole,
)
from tiffin.errors import NotFound, Unavailable, UpstreamFailed
from tiffin.gateway.cache.memory import MemoryCacheStore
from tiffin.gateway.cache.replay import ReplayCache
from tiffin.gateway.cache.shelf import Shelf
from tiffin.ports.cache import Stored
from tiffin.ports.vault import Label
from tiffin.telemetry.events import Outcome
from tiffin.testing.clock import FakeClock
from tiffin.testing.exchange import FakeExchange, json_of
from tiffin.types.caching import Caching
from tiffin.types.snapshot import Terms
from tiffin.types.usage import Usage

TOOLS = [{"type": "function", "function": {"name": "f"}}]
HELD = b'data: {"id":"1","object":"chat.completion.chunk","created":1,"model":"m",'
EVENTS = (
    HELD + b'"choices":[{"index":0,"delta":{"role":"assistant","content":"hi"}}]}\n\n',
    HELD + b'"choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}\n\n',
    HELD + b'"choices":[],"usage":{"prompt_tokens":7,"completion_tokens":2}}\n\n',
    GOOD[-1],
)


def result(exchange: FakeExchange) -> str:
    return exchange.answer_headers.get(b"x-tiffin-cache", b"").decode()


async def results(shop: Shop, *asked: dict[str, Any]) -> list[str]:
    return [result(await shop.ask(**one)) for one in asked]


@pytest.mark.parametrize(
    ("rules", "asked", "expected"),
    [
        (Caching(), {}, ["", ""]),
        (Caching(ttl_s=9), {}, ["miss", "hit"]),
        (Caching(ttl_s=9), {"tools": TOOLS}, ["bypass", "bypass"]),
        (Caching(ttl_s=9, tools=True), {"tools": TOOLS}, ["miss", "hit"]),
        (Caching(ttl_s=9), {"headers": [(b"cache-control", b"no-store")]}, ["bypass"] * 2),
        (Caching(ttl_s=9), {"headers": [(b"cache-control", b"no-cache")]}, ["miss"] * 2),
        (
            Caching(ttl_s=9, personal_data=False),
            {"messages": [{"role": "user", "content": "write to a.b@example.com"}]},
            ["bypass"] * 2,
        ),
        (Caching(ttl_s=9, personal_data=False), {}, ["miss", "hit"]),
    ],
    ids=["off", "on", "tools", "tools too", "no-store", "no-cache", "personal", "not personal"],
)
async def test_rules_say_what_is_kept(
    rules: Caching, asked: dict[str, Any], expected: list[str]
) -> None:
    shop = Shop(ScriptedBackend(whole()), cache=rules)
    assert await results(shop, asked, asked) == expected
    shop.settled()


@pytest.mark.parametrize("whose", ["key", "tenant"])
@pytest.mark.parametrize(
    ("data_class", "expected"), [("internal", "hit"), ("confidential", "bypass")]
)
async def test_what_is_too_sensitive_isnt_kept(data_class: str, expected: str, whose: str) -> None:
    shop = Shop(ScriptedBackend(whole()), cache=Caching(ttl_s=9))
    cleared = tuple(
        msgspec.structs.replace(target, data_class="restricted")
        for target in shop.snapshot.plans["m"].targets
    )
    plan = msgspec.structs.replace(shop.snapshot.plans["m"], targets=cleared)
    shop.names = dict.fromkeys(cleared, shop.backends[0])
    keys, tenants = shop.snapshot.keys, {"acme": Terms(data_class=data_class)}
    if whose == "key":
        tenants = {}
        keys = {
            digest: msgspec.structs.replace(one, data_class=data_class)
            for digest, one in keys.items()
        }
    shop.snapshot = msgspec.structs.replace(
        shop.snapshot, plans={"m": plan}, keys=keys, tenants=tenants
    )
    shop.pool.adopt(shop.snapshot)
    await shop.ask()
    assert result(await shop.ask()) == expected


async def test_another_version_or_revision_is_another_answer() -> None:
    shop = Shop(ScriptedBackend(whole()), cache=Caching(ttl_s=9))
    plan = shop.snapshot.plans["m"]
    assert await results(shop, {}, {}) == ["miss", "hit"]
    for changed in ({"cache": Caching(ttl_s=9, version="2")}, {"identity": "m2"}):
        fresh = msgspec.structs.replace(plan, **changed)
        shop.snapshot = msgspec.structs.replace(shop.snapshot, plans={"m": fresh})
        assert await results(shop, {}, {}) == ["miss", "hit"]
    shop.snapshot = msgspec.structs.replace(shop.snapshot, plans={"m": plan})
    assert await results(shop, {}) == ["hit"]


async def test_a_stream_is_given_whole_and_the_reverse() -> None:
    shop = Shop(ScriptedBackend(stream(*EVENTS)), cache=Caching(ttl_s=9))
    await shop.ask(stream=True)
    got = await shop.ask()
    assert result(got) == "hit"
    answer = json_of(got)
    assert answer["choices"][0]["message"] == {"role": "assistant", "content": "hi"}
    assert (answer["object"], answer["usage"]["prompt_tokens"]) == ("chat.completion", 7)
    assert got.answer_headers[b"content-type"] == b"application/json"
    asked = await shop.ask(stream=True, stream_options={"include_usage": True})
    assert result(asked) == "hit"
    assert asked.sent.count(b'"prompt_tokens":7') == 1
    assert len(shop.backends[0].calls) == 1
    assert shop.ledger.last.usage == Usage()


async def test_who_asks_doesnt_matter_within_a_tenant() -> None:
    shop = Shop(ScriptedBackend(whole()), cache=Caching(ttl_s=9))
    assert await results(shop, {"user": "ann"}, {"user": "bob"}, {"stream": False}) == [
        "miss",
        "hit",
        "hit",
    ]


class Sealing:
    """A vault that turns content round; `shut` destroys its keys."""

    shut = False

    def ready(self, tenant: str) -> bool:
        return True

    def prepare(self, tenant: str) -> None:
        pass

    def seal(self, label: Label, content: bytes) -> bytes:
        return msgspec.msgpack.encode([list(label), content[::-1]])

    def open(self, label: Label, sealed: bytes) -> bytes:
        about, content = msgspec.msgpack.decode(sealed, type=tuple[Label, bytes])
        if self.shut or about != label:
            raise NotFound("destroyed")
        return content[::-1]


class Failing(MemoryCacheStore):
    """Can't be used."""

    async def find(self, tenant: str, keys: Sequence[bytes]) -> list[Stored]:
        raise Unavailable("broken")

    async def keep(self, entries: Sequence[Stored]) -> None:
        raise Unavailable("broken")


def shelved(shelf: Shelf, **plan: Any) -> tuple[Shop, ReplayCache]:
    shop = Shop(ScriptedBackend(whole()), **plan)
    cache = ReplayCache(shop.walk._stages.accounts, shelf)
    shop.walk._stages.cache = cache
    return shop, cache


async def test_content_is_sealed_and_ends_with_its_tenants_keys() -> None:
    vault, store = Sealing(), MemoryCacheStore()
    shop, _ = shelved(Shelf(FakeClock(), store, vault), cache=Caching(ttl_s=9))
    assert await results(shop, {}, {}) == ["miss", "hit"]
    [entry] = store._entries()
    assert b'"hi"' not in entry.content
    vault.shut = True
    assert await results(shop, {}) == ["miss"]


async def test_a_store_that_fails_costs_nobody_an_answer() -> None:
    shop, _ = shelved(Shelf(FakeClock(), Failing()), cache=Caching(ttl_s=9))
    assert await results(shop, {}, {}) == ["miss", "miss"]
    shop.settled()


async def test_time_passes() -> None:
    clock = FakeClock()
    shop, cache = shelved(Shelf(clock), cache=Caching(ttl_s=9, stale_s=5))
    assert await results(shop, {}, {}) == ["miss", "hit"]
    clock.advance(9)
    backend = shop.backends[0]
    backend.scripts[-1].status = 400
    await shop.ask(headers=[(b"authorization", b"Bearer " + KEY.encode())])
    assert len(backend.calls) == 2
    await cache.shelf.expire()
    assert (await cache.shelf.store.holdings())[0].entries == 1
    clock.advance(5)
    await cache.shelf.expire()
    assert await cache.shelf.store.holdings() == []


async def test_where_nothing_can_be_made_one_that_was_good_is_given() -> None:
    clock = FakeClock()
    dies = Script([ROLE, UpstreamFailed("died")])
    backend = ScriptedBackend(stream(*GOOD), dies, dies, dies)
    shop = priced(backend, cache=Caching(ttl_s=9, stale_s=5), attempts=1)
    shop.walk._stages.cache = ReplayCache(shop.walk._stages.accounts, Shelf(clock))
    first = await shop.ask(stream=True)
    clock.advance(9)
    again = await shop.ask(stream=True)
    assert (result(again), again.sent) == ("stale", first.sent)
    closed = shop.ledger.last
    assert (closed.cache, closed.outcome, closed.usage) == ("stale", Outcome.OK, Usage())
    assert [one.error for one in closed.attempts] == ["upstream_failed"]
    assert closed.cost_pico == 0
    assert closed.loss_pico > 0, "whoever died had read it all"
    fresh = await shop.ask(stream=True, headers=[(b"cache-control", b"no-cache")])
    assert fresh.status == 502
    clock.advance(5)
    assert (await shop.ask(stream=True)).status == 502
    shop.settled()


@pytest.mark.parametrize(
    "fails",
    [Script([ROLE, WORD, UpstreamFailed("cut")]), Script([b'{"error":{}}'], status=400)],
    ids=["has begun", "not its fault"],
)
async def test_what_isnt_the_targets_fault_or_has_begun_is_told(fails: Script) -> None:
    clock = FakeClock()
    shop = Shop(ScriptedBackend(stream(*GOOD), fails), cache=Caching(ttl_s=9, stale_s=5))
    shop.walk._stages.cache = ReplayCache(shop.walk._stages.accounts, Shelf(clock))
    await shop.ask(stream=True)
    clock.advance(9)
    got = await shop.ask(stream=True)
    assert result(got) != "stale"
    assert b"error" in got.sent
    shop.settled()


async def test_a_broken_stream_is_never_kept() -> None:
    backend = ScriptedBackend(stream(ROLE, WORD, UpstreamFailed("cut")), stream(*GOOD))
    shop = Shop(backend, cache=Caching(ttl_s=9))
    await shop.ask(stream=True)
    got = await shop.ask(stream=True)
    assert got.sent.endswith(DONE)
    replayed = await shop.ask(stream=True)
    assert replayed.sent == got.sent
    assert len(backend.calls) == 2
