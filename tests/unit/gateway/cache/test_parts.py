"""Each input of a request for vectors is kept by itself, and made once."""

import asyncio
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.unit.gateway.test_charge import priced
from tests.unit.gateway.test_walk import KEY, Playing, Script, ScriptedBackend, Shop, whole
from tiffin.errors import UpstreamUnavailable
from tiffin.gateway.cache.replay import ReplayCache
from tiffin.gateway.cache.shelf import Shelf
from tiffin.ports.backend import Call
from tiffin.testing.clock import FakeClock
from tiffin.testing.exchange import FakeExchange, answered, json_of
from tiffin.types.caching import Caching
from tiffin.types.usage import Usage

ON = Caching(ttl_s=9)
TENANTS = (KEY, "sk-other-000000000000")


class Embedder(ScriptedBackend):
    """Makes a vector of a text's length, a token a text; lists its rows backwards."""

    down = False
    indices = True

    def __init__(self) -> None:
        super().__init__()
        self.asked: list[list[Any]] = []

    def start(self, call: Call) -> Playing:
        if self.down:
            self.scripts = [Script(fails=UpstreamUnavailable("down"))]
            return super().start(call)
        given = msgspec.json.decode(call.body)["input"]
        texts = [given] if isinstance(given, str) or isinstance(given[0], int) else given
        self.asked.append(texts)
        rows = [
            {"object": "embedding", "index": at if self.indices else 7, "embedding": [len(text), 1]}
            for at, text in enumerate(texts)
        ]
        usage = {"prompt_tokens": len(texts), "total_tokens": len(texts)}
        told = {"object": "list", "data": rows[::-1], "model": "theirs", "usage": usage}
        self.scripts = [whole(msgspec.json.encode(told))]
        return super().start(call)


def shop_of(embedder: Embedder, **plan: Any) -> Shop:
    return Shop(embedder, **{"cache": ON, **plan})


async def ask(shop: Shop, texts: Any, *, key: str = KEY, **more: Any) -> FakeExchange:
    headers = [(b"authorization", b"Bearer " + key.encode()), *more.pop("headers", ())]
    body = msgspec.json.encode({"model": "m", "input": texts, **more})
    exchange = FakeExchange(b"POST", b"/v1/embeddings", headers=headers, body=body)
    return await answered(shop.handler, exchange)


def mark(got: FakeExchange) -> tuple[str, str]:
    names = (b"x-tiffin-cache", b"x-tiffin-cache-inputs")
    first, second = (got.answer_headers.get(name, b"").decode() for name in names)
    return first, second


def lengths(got: FakeExchange) -> list[int]:
    rows = sorted(json_of(got)["data"], key=lambda row: row["index"])
    assert [row["index"] for row in rows] == list(range(len(rows)))
    return [row["embedding"][0] for row in rows]


async def test_a_batch_asks_for_what_isnt_kept_alone() -> None:
    embedder = Embedder()
    shop = shop_of(embedder)
    first = await ask(shop, ["a", "bb", "ccc"])
    assert (mark(first), lengths(first)) == (("miss", ""), [1, 2, 3])
    second = await ask(shop, ["ccc", "dddd", "a", "dddd"])
    assert (mark(second), lengths(second)) == (("partial", "2/4"), [3, 4, 1, 4])
    assert embedder.asked == [["a", "bb", "ccc"], ["dddd"]]
    assert json_of(second)["usage"]["total_tokens"] == 1
    closed = shop.ledger.last
    assert (closed.cache, closed.kept_inputs, closed.usage.prompt_tokens) == ("partial", 2, 1)
    third = await ask(shop, ["dddd", "bb"])
    assert (mark(third), lengths(third)) == (("hit", "2/2"), [4, 2])
    assert (json_of(third)["usage"]["total_tokens"], json_of(third)["model"]) == (0, "theirs")
    assert (shop.ledger.last.usage, shop.ledger.last.kept_inputs) == (Usage(), 2)
    assert len(embedder.asked) == 2
    shop.settled()


async def test_one_text_is_the_same_alone_and_in_a_list_and_can_be_purged() -> None:
    shop = shop_of(Embedder())
    await ask(shop, ["a", "bb"])
    alone = await ask(shop, "bb")
    assert mark(alone) == ("hit", "1/1")
    key = bytes.fromhex(alone.answer_headers[b"x-tiffin-cache-key"].decode())
    assert b"x-tiffin-cache-key" not in (await ask(shop, ["a", "bb"])).answer_headers
    store = shop.walk._stages.cache.shelf.store
    assert await store.find("acme", [key])


@pytest.mark.parametrize(
    ("more", "expected"),
    [
        ({"user": "bob"}, "hit"),
        ({"dimensions": 2}, "miss"),
        ({"encoding_format": "base64"}, "miss"),
        ({"encoding_format": "float"}, "hit"),
        ({"key": TENANTS[1]}, "miss"),
        ({"headers": [(b"cache-control", b"no-cache")]}, "miss"),
        ({"headers": [(b"cache-control", b"no-store")]}, "bypass"),
    ],
    ids=str,
)
async def test_what_makes_another_vector_is_another_entry(more: Any, expected: str) -> None:
    shop = shop_of(Embedder())
    await ask(shop, ["a", "bb"])
    assert mark(await ask(shop, ["bb"], **more))[0] == expected


async def test_token_ids_are_inputs_too() -> None:
    embedder = Embedder()
    shop = shop_of(embedder)
    await ask(shop, [[1, 2], [3]])
    assert mark(await ask(shop, [[3], [4, 5, 6]])) == ("partial", "1/2")
    assert embedder.asked[-1] == [[4, 5, 6]]
    assert mark(await ask(shop, [1, 2])) == ("hit", "1/1")


async def test_the_same_text_is_made_once_in_a_batch_and_batches_share_a_flight() -> None:
    embedder = Embedder()
    shop = shop_of(embedder)
    got = await asyncio.gather(*(ask(shop, ["a", "a", "bb"]) for _ in range(3)))
    assert [lengths(one) for one in got] == [[1, 1, 2]] * 3
    assert embedder.asked == [["a", "bb"]]
    assert sorted(mark(one)[0] for one in got) == ["joined", "joined", "miss"]
    assert sorted(json_of(one)["usage"]["total_tokens"] for one in got) == [0, 0, 2]


async def test_rows_that_cant_be_told_apart_are_nobodys() -> None:
    embedder = Embedder()
    shop = shop_of(embedder)
    await ask(shop, ["a"])
    embedder.indices = False
    assert (await ask(shop, ["bb", "ccc"])).status == 200
    got = await ask(shop, ["a", "bb", "ccc"])
    assert (got.status, json_of(got)["error"]["code"]) == (502, "upstream_failed")
    shop.settled()


async def test_the_stale_ones_answer_where_the_model_is_gone() -> None:
    clock, embedder = FakeClock(), Embedder()
    shop = priced(embedder, cache=Caching(ttl_s=9, stale_s=5), attempts=1)
    shop.walk._stages.cache = ReplayCache(shop.walk._stages.accounts, Shelf(clock))
    await ask(shop, ["a", "bb"])
    clock.advance(10)
    embedder.down = True
    assert mark(await ask(shop, ["bb", "a"])) == ("stale", "2/2")
    assert (await ask(shop, ["bb", "new"])).status == 503


BATCHES = st.lists(st.lists(st.sampled_from("abcdef"), min_size=1, max_size=6), max_size=8)


@settings(max_examples=40, deadline=None)
@given(batches=BATCHES)
async def test_every_text_is_made_once_and_paid_once(batches: list[list[str]]) -> None:
    embedder = Embedder()
    shop = shop_of(embedder)
    seen: set[str] = set()
    for texts in batches:
        got = await ask(shop, ["x" * ord(text) for text in texts])
        assert lengths(got) == [ord(text) for text in texts]
        assert shop.ledger.last.usage.prompt_tokens == len(set(texts) - seen)
        seen |= set(texts)
    assert sum(map(len, embedder.asked)) == len(seen)
    shop.settled()
