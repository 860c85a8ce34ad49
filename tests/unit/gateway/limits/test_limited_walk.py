"""The walk gives back what a request reserved, whichever way it ends."""

import asyncio
from typing import Any

import msgspec
import pytest

from tests.unit.gateway.test_walk import (
    DONE,
    GOOD,
    ROLE,
    STOP,
    WORD,
    Script,
    ScriptedBackend,
    Shop,
    stream,
    whole,
)
from tiffin.errors import UpstreamFailed, UpstreamUnavailable
from tiffin.gateway.admit import moments
from tiffin.testing.exchange import json_of
from tiffin.types.caching import Caching
from tiffin.types.limits import Limits, Rule
from tiffin.types.money import PICO
from tiffin.types.price import Price

RULES = (
    Rule(of="tokens", amount=1000, per="day"),
    Rule(of="money", amount=1000, per="month"),
    Rule(of="concurrency", amount=1),
    Rule(of="concurrency", amount=1, each="end_user"),
)


def shop_of(backend: ScriptedBackend, *rules: Rule, **plan: Any) -> Shop:
    """A shop whose tenant has limits; a token of its model costs 1 INR."""
    shop = Shop(backend, **plan)
    old = shop.snapshot.plans["m"]
    price = Price(currency="INR", input_token=PICO, output_token=PICO)
    targets = tuple(msgspec.structs.replace(one, price=price) for one in old.targets)
    names = dict(zip(targets, shop.backends, strict=True))
    shop.pool._connect = lambda target, _: names[target]
    shop.snapshot = msgspec.structs.replace(
        shop.snapshot,
        number=9,
        tenant_limits={"acme": Limits(rules=rules or RULES)},
        plans={"m": msgspec.structs.replace(old, targets=targets)},
        currency="INR",
    )
    shop.pool.adopt(shop.snapshot)
    return shop


def used(shop: Shop) -> dict[str, int]:
    """What is taken of each limit now."""
    now = moments(shop.admission.clock)
    standing = [limit.standing(now) for limit in shop.admission.limits]
    taken = {f"{one.rule.of} {one.rule.each}".strip(): one.whole - one.left for one in standing}
    taken["money"] //= PICO
    return taken


NOTHING = {"tokens": 0, "money": 0, "concurrency": 0, "concurrency end_user": 0}
NINE = {**NOTHING, "tokens": 9, "money": 9}


@pytest.mark.parametrize(
    ("script", "body", "status", "left"),
    [
        (whole(), {}, 200, NINE),
        (stream(*GOOD), {"stream": True}, 200, NINE),
        (whole(status=400), {}, 400, NOTHING),
        (whole(status=500), {}, 502, NOTHING),
        (whole(), {"n": 99}, 400, {}),
        (whole(), {"model": "unknown"}, 404, {}),
    ],
    ids=["whole", "stream", "refused upstream", "failed upstream", "invalid", "no model"],
)
async def test_what_an_answer_used_is_what_is_taken(
    script: Any, body: dict[str, Any], status: int, left: dict[str, int]
) -> None:
    shop = shop_of(ScriptedBackend(script), *RULES)
    got = await shop.ask(user="ann", **body)
    assert got.status == status
    taken = {name: amount for name, amount in used(shop).items() if amount}
    assert taken == {name: amount for name, amount in left.items() if amount}
    shop.settled()


async def test_a_client_that_leaves_pays_for_what_it_saw() -> None:
    backend = ScriptedBackend(stream(ROLE, WORD, WORD, hangs=True))
    shop = shop_of(backend)
    request = shop.request(stream=True, max_tokens=500)
    request.start(shop.handler)
    await backend.hanging.wait()
    assert used(shop)["tokens"] > 500
    await request.leave()
    taken = used(shop)
    assert 2 <= taken["tokens"] < 60
    assert taken["concurrency"] == 0
    shop.settled()


async def test_an_answer_from_the_cache_costs_nothing() -> None:
    shop = shop_of(ScriptedBackend(whole()), cache=Caching(ttl_s=60.0))
    for _ in range(3):
        assert (await shop.ask()).status == 200
    taken = used(shop)
    assert (taken["tokens"], taken["money"]) == (9, 9)


async def test_a_second_try_reserves_nothing_twice() -> None:
    shop = shop_of(ScriptedBackend(stream(ROLE, UpstreamFailed("cut")), stream(*GOOD)))
    await shop.ask(stream=True)
    assert [one.error for one in shop.ledger.last.attempts] == ["upstream_failed", ""]
    assert used(shop)["tokens"] == 9
    shop.settled()


async def test_money_that_is_spent_is_told_apart_from_pace() -> None:
    shop = shop_of(ScriptedBackend(whole()), Rule(of="money", amount=10, per="month"))
    refused = await shop.ask(max_tokens=100)
    assert (refused.status, json_of(refused)["error"]["code"]) == (429, "insufficient_quota")
    assert b"retry-after" not in refused.answer_headers
    paced = shop_of(ScriptedBackend(whole()), Rule(of="tokens", amount=150, per="hour"))
    assert (await paced.ask(max_tokens=100)).status == 200
    refused = await paced.ask(max_tokens=140)
    assert (refused.status, json_of(refused)["error"]["code"]) == (429, "rate_limit_exceeded")
    assert int(refused.answer_headers[b"retry-after"]) > 60
    assert refused.answer_headers[b"x-ratelimit-remaining-tokens"] == b"141"


async def test_eight_at_once_over_a_budget_for_two() -> None:
    backend = ScriptedBackend(stream(ROLE, WORD, STOP, DONE))
    shop = shop_of(backend, Rule(of="money", amount=400, per="month"))
    requests = [shop.request(stream=True, max_tokens=130) for _ in range(8)]
    for request in requests:
        request.start(shop.handler)
    await asyncio.gather(*(request.over() for request in requests))
    assert sorted(request.status for request in requests) == [200, 200] + [429] * 6
    shop.settled()


async def test_an_upstream_that_is_down_costs_nothing() -> None:
    shop = shop_of(ScriptedBackend(Script(fails=UpstreamUnavailable("down"))))
    assert (await shop.ask()).status == 503
    assert not any(used(shop).values())
