"""A question in other words gets the answer that is kept, where nothing speaks against it."""

import asyncio
from typing import Any

import msgspec
import pytest

from tests.unit.gateway.cache.test_parts import Embedder
from tests.unit.gateway.test_charge import PRICE
from tests.unit.gateway.test_walk import KEY, Playing, Script, ScriptedBackend, Shop, whole
from tiffin.errors import UpstreamUnavailable
from tiffin.gateway.cache.replay import ReplayCache
from tiffin.gateway.cache.semantic import cosine
from tiffin.gateway.cache.shelf import Shelf
from tiffin.gateway.cache.wording.language import languages
from tiffin.ports.backend import Call
from tiffin.ports.cache import Which
from tiffin.telemetry.events import Outcome
from tiffin.testing.clock import FakeClock
from tiffin.testing.exchange import FakeExchange, answered
from tiffin.types.caching import LANGUAGES, Caching, SemanticCaching
from tiffin.types.snapshot import Plan, Principal
from tiffin.types.usage import Usage

ASKED = "How do I reset my Gmail password?"
AGAIN = "can you tell me how to reset my gmail password"
OTHER = "How do I reset my Yahoo password?"
SEMANTIC = SemanticCaching(embedder="embed", thresholds={"en": 0.9}, wait_ms=5000)


class Mirror(Embedder):
    """Makes the same vector of every text, or of each its own, or none at all."""

    same = True
    hangs = False

    def start(self, call: Call) -> Playing:
        if self.down:
            self.scripts = [Script(fails=UpstreamUnavailable("down"))]
            return ScriptedBackend.start(self, call)
        texts = msgspec.json.decode(call.body)["input"]
        self.asked.append(texts)
        rows = [
            {"index": at, "embedding": [1.0, 0.0 if self.same else float(at)]}
            for at in range(len(texts))
        ]
        told = {"data": rows, "model": "e", "usage": {"prompt_tokens": 5, "total_tokens": 5}}
        body = msgspec.json.encode(told)
        self.scripts = [Script([body], streaming=False, hangs=self.hangs)]
        return ScriptedBackend.start(self, call)


def shop_of(embedder: Embedder | None = None, **cache: Any) -> tuple[Shop, Mirror]:
    """A shop whose second backend is the embedder of the first one's cache."""
    mirror = embedder or Mirror()
    rules = Caching(ttl_s=9, **{"semantic": SEMANTIC, **cache})
    shop = Shop(ScriptedBackend(whole()), mirror, cache=rules)
    chat = shop.snapshot.plans["m"]
    [first, second] = (msgspec.structs.replace(one, price=PRICE) for one in chat.targets)
    shop.names = {first: shop.backends[0], second: mirror}
    embed = Plan(name="embed", identity="e1", targets=(second,), attempts=1)
    plan = msgspec.structs.replace(chat, targets=(first,), embedder=embed, attempts=1)
    shop.snapshot = msgspec.structs.replace(shop.snapshot, plans={"m": plan, "embed": embed})
    shop.pool.adopt(shop.snapshot)
    assert isinstance(mirror, Mirror)
    return shop, mirror


async def ask(shop: Shop, text: str, *before: dict[str, str], **more: Any) -> FakeExchange:
    return await shop.ask(messages=[*before, {"role": "user", "content": text}], **more)


def mark(got: FakeExchange) -> str:
    return got.answer_headers.get(b"x-tiffin-cache", b"").decode()


async def test_a_question_in_other_words_gets_the_answer_and_what_it_took_is_accounted() -> None:
    shop, mirror = shop_of()
    first = await ask(shop, ASKED)
    assert (mark(first), mirror.asked) == ("miss", []), "nobody is asked where nothing is near"
    again = await ask(shop, AGAIN)
    assert (mark(again), again.sent) == ("semantic", first.sent)
    assert again.answer_headers[b"x-tiffin-cache-similarity"] == b"1.000"
    assert mirror.asked == [[AGAIN, ASKED]]
    closed = shop.ledger.last
    assert (closed.cache, closed.outcome, closed.usage) == ("semantic", Outcome.OK, Usage())
    assert [(one.target, one.error) for one in closed.attempts] == [("t1", "")]
    assert (closed.cost_pico, closed.loss_pico) == (0, 5 * PRICE.input_token)
    assert mark(await ask(shop, OTHER)) == "miss"
    shop.settled()


async def test_an_answer_is_purged_by_the_key_that_its_second_client_was_told() -> None:
    shop, _ = shop_of()
    first = await ask(shop, ASKED)
    again = await ask(shop, AGAIN)
    key = again.answer_headers[b"x-tiffin-cache-key"]
    assert key == first.answer_headers[b"x-tiffin-cache-key"]
    await shop.walk._stages.cache.shelf.store.purge(Which(key=bytes.fromhex(key.decode())), 0)
    assert mark(await ask(shop, AGAIN)) == "miss"


@pytest.mark.parametrize("same", [True, False], ids=["similar", "not similar"])
async def test_vectors_that_differ_are_a_miss(same: bool) -> None:
    shop, mirror = shop_of()
    mirror.same = same
    await ask(shop, ASKED)
    again = await ask(shop, AGAIN)
    assert mark(again) == ("semantic" if same else "miss")
    assert len(shop.backends[0].calls) == (1 if same else 2)
    attempts = [one.target for one in shop.ledger.last.attempts]
    assert attempts == (["t1"] if same else ["t1", "t0"])
    if not same:
        assert shop.ledger.last.usage.prompt_tokens == 7
        assert shop.ledger.last.loss_pico == 5 * PRICE.input_token
    shop.settled()


async def test_an_embedder_that_is_down_or_slow_is_a_miss() -> None:
    wait = msgspec.structs.replace(SEMANTIC, wait_ms=20)
    shop, mirror = shop_of(semantic=wait)
    await ask(shop, ASKED)
    mirror.down = True
    down = await ask(shop, AGAIN)
    mirror.down, mirror.hangs = False, True
    slow = await ask(shop, "how to reset my gmail password, please")
    assert (mark(down), mark(slow)) == ("miss", "miss")
    assert (down.status, slow.status) == (200, 200)
    assert [one.target for one in shop.ledger.last.attempts] == ["t1", "t0"]
    shop.settled()


SYSTEM = {"role": "system", "content": "be short"}
TURN = {"role": "assistant", "content": "Of which?"}


@pytest.mark.parametrize(
    ("before", "more"),
    [
        ([SYSTEM], {}),
        ([{"role": "user", "content": "hi"}, TURN], {}),
        ([], {"temperature": 0.5}),
        ([], {"max_tokens": 9}),
        ([], {"response_format": {"type": "json_object"}}),
        ([], {"key": "sk-other-000000000000"}),
        ([], {"headers": [(b"cache-control", b"no-cache")]}),
    ],
    ids=str,
)
async def test_everything_else_has_to_be_the_same(before: list[Any], more: dict[str, Any]) -> None:
    shop, mirror = shop_of()
    await ask(shop, ASKED)
    assert mark(await ask(shop, AGAIN, *before, **more)) == "miss"
    assert mirror.asked == []
    if "key" not in more and "headers" not in more:
        assert mark(await ask(shop, ASKED.lower(), *before, **more)) == "semantic"


@pytest.mark.parametrize(
    "changed", [{"identity": "m2"}, {"version": "2"}, {"embedder": "e2"}], ids=str
)
async def test_another_model_version_or_embedder_begins_anew(changed: dict[str, str]) -> None:
    shop, _ = shop_of()
    await ask(shop, ASKED)
    plan = shop.snapshot.plans["m"]
    assert plan.embedder is not None
    if "version" in changed:
        changed_plan = msgspec.structs.replace(
            plan, cache=msgspec.structs.replace(plan.cache, version="2")
        )
    elif "embedder" in changed:
        other = msgspec.structs.replace(plan.embedder, identity="e2")
        changed_plan = msgspec.structs.replace(plan, embedder=other)
    else:
        changed_plan = msgspec.structs.replace(plan, identity="m2")
    shop.snapshot = msgspec.structs.replace(
        shop.snapshot, plans={**shop.snapshot.plans, "m": changed_plan}
    )
    assert mark(await ask(shop, AGAIN)) == "miss"


async def test_a_language_without_a_threshold_is_off() -> None:
    shop, mirror = shop_of(semantic=msgspec.structs.replace(SEMANTIC, thresholds={"hi": 0.5}))
    await ask(shop, ASKED)
    assert mark(await ask(shop, AGAIN)) == "miss"
    await ask(shop, "अपना ऑर्डर कैसे रद्द करें?")
    assert mark(await ask(shop, "मैं अपना ऑर्डर कैसे कैंसिल करूँ?")) == "semantic"
    assert len(mirror.asked) == 1


@pytest.mark.parametrize("region", ["", "in"], ids=["anywhere", "kept in a region"])
async def test_a_question_goes_to_no_embedder_that_its_key_forbids(region: str) -> None:
    shop, mirror = shop_of()
    plan = shop.snapshot.plans["m"]
    here = msgspec.structs.replace(plan.targets[0], region="in")
    shop.names[here] = shop.backends[0]
    plan = msgspec.structs.replace(plan, targets=(here,))
    keys = {
        digest: Principal(tenant="acme", key="main", region=region) for digest in shop.snapshot.keys
    }
    plans = {**shop.snapshot.plans, "m": plan}
    shop.snapshot = msgspec.structs.replace(shop.snapshot, plans=plans, keys=keys)
    shop.pool.adopt(shop.snapshot)
    await ask(shop, ASKED)
    assert mark(await ask(shop, AGAIN)) == ("miss" if region else "semantic")
    assert bool(mirror.asked) is not bool(region)


async def test_answers_end_and_streams_are_given_whole() -> None:
    clock = FakeClock()
    shop, _ = shop_of()
    shop.walk._stages.cache = ReplayCache(shop.walk._stages.accounts, Shelf(clock))
    await ask(shop, ASKED)
    parts = [{"type": "text", "text": AGAIN}]
    assert mark(await shop.ask(messages=[{"role": "user", "content": parts}])) == "semantic"
    clock.advance(9)
    assert mark(await ask(shop, AGAIN)) == "miss"


async def test_followers_of_one_flight_share_what_was_found() -> None:
    shop, mirror = shop_of()
    await ask(shop, ASKED)
    got = await asyncio.gather(*(ask(shop, AGAIN) for _ in range(3)))
    assert [mark(one) for one in got] == ["semantic"] * 3
    assert len(mirror.asked) == 1
    assert sorted(len(one.attempts) for one in shop.ledger.closed[1:]) == [0, 0, 1]
    shop.settled()


async def test_a_message_is_a_conversation_too() -> None:
    shop, _ = shop_of()

    async def say(content: Any) -> FakeExchange:
        body = {"model": "m", "max_tokens": 9, "messages": [{"role": "user", "content": content}]}
        headers = [(b"authorization", b"Bearer " + KEY.encode())]
        exchange = FakeExchange(
            b"POST", b"/v1/messages", headers=headers, body=msgspec.json.encode(body)
        )
        return await answered(shop.handler, exchange)

    first = await say(ASKED)
    assert mark(first) == "miss"
    assert mark(await say(AGAIN)) == "semantic"


def test_the_settings_know_the_languages_that_there_are() -> None:
    assert tuple(one.name for one in languages()) == LANGUAGES


@pytest.mark.parametrize(
    ("one", "other", "expected"),
    [([1, 0], [2, 0], 1.0), ([1, 0], [0, 3], 0.0), ([0, 0], [1, 1], 0.0), ([1], [1, 2], 0.0)],
    ids=str,
)
def test_cosines(one: list[float], other: list[float], expected: float) -> None:
    assert cosine(one, other) == pytest.approx(expected)
