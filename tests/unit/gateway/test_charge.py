"""What requests cost, through the front door: on the answer, in the account, however they end."""

from collections.abc import Callable

import msgspec
import pytest

from tests.unit.gateway.test_walk import (
    DONE,
    KEY,
    ROLE,
    STOP,
    USAGE,
    WHOLE,
    WORD,
    Script,
    ScriptedBackend,
    Shop,
)
from tiffin.errors import RunFailed, UpstreamFailed
from tiffin.telemetry.events import Outcome
from tiffin.testing.exchange import FakeExchange, answered, events_of
from tiffin.types.caching import Caching
from tiffin.types.money import shown
from tiffin.types.price import Price

PRICE = Price(currency="INR", input_token=1000, output_token=10_000)
TEXT = "a question of forty letters, more or less"


def priced(*backends: ScriptedBackend, price: Price = PRICE, **plan: object) -> Shop:
    """A shop whose targets all have a price."""
    shop = Shop(*backends, **plan)
    plans = {}
    for name, one in shop.snapshot.plans.items():
        targets = tuple(msgspec.structs.replace(target, price=price) for target in one.targets)
        plans[name] = msgspec.structs.replace(one, targets=targets)
        for before, after in zip(one.targets, targets, strict=True):
            shop.names[after] = shop.names[before]
    shop.snapshot = msgspec.structs.replace(shop.snapshot, plans=plans)
    shop.pool.adopt(shop.snapshot)
    return shop


def chat(*, stream: bool = False, usage: bool = True, tag: bytes = b"") -> FakeExchange:
    """A request for a chat."""
    body = {"model": "m", "messages": [{"role": "user", "content": TEXT}], "stream": stream}
    if stream and usage:
        body["stream_options"] = {"include_usage": True}
    headers = [(b"authorization", b"Bearer " + KEY.encode()), (b"x-tiffin-tag", tag)]
    path = b"/v1/chat/completions"
    return FakeExchange(b"POST", path, headers=headers, body=msgspec.json.encode(body))


async def test_a_whole_answer_tells_its_cost() -> None:
    shop = priced(ScriptedBackend(Script([WHOLE], streaming=False)))
    exchange = await answered(shop.handler, chat(tag=b"invoices/2026"))
    assert exchange.answer_headers[b"x-tiffin-cost"] == b"0.000000027 INR"
    closed = shop.ledger.last
    assert (closed.cost_pico, closed.currency, closed.loss_pico) == (27_000, "INR", 0)
    assert shop.ledger.opened[-1].tag == "invoices2026"


@pytest.mark.parametrize("claim", [b"-1", b"1.5", b'"7"', b"1" + b"0" * 30, b"null"])
async def test_an_answer_whose_usage_says_nothing_tells_what_is_charged(claim: bytes) -> None:
    whole = WHOLE.replace(b'"prompt_tokens":7', b'"prompt_tokens":' + claim)
    assert whole != WHOLE
    shop = priced(ScriptedBackend(Script([whole], streaming=False)))
    exchange = await answered(shop.handler, chat())
    charged = shop.ledger.last.cost_pico
    assert charged >= 1000 * (len(TEXT) // 4)
    assert exchange.answer_headers[b"x-tiffin-cost"] == shown(charged, "INR").encode()


async def test_without_a_price_nothing_is_said() -> None:
    shop = Shop(ScriptedBackend(Script([WHOLE], streaming=False)))
    exchange = await answered(shop.handler, chat())
    assert b"x-tiffin-cost" not in exchange.answer_headers
    assert (shop.ledger.last.cost_pico, shop.ledger.last.currency) == (0, "")


@pytest.mark.parametrize("cut", [1000, 7], ids=["whole events", "in pieces"])
async def test_a_streams_usage_chunk_tells_the_cost(cut: int) -> None:
    sent = ROLE + WORD + STOP + USAGE + DONE
    pieces = [sent[at : at + cut] for at in range(0, len(sent), cut)]
    shop = priced(ScriptedBackend(Script([*pieces])))
    exchange = await answered(shop.handler, chat(stream=True))
    *_, told, done = events_of(exchange)
    assert told["usage"]["tiffin"] == {"cost": "0.000000027 INR"}
    assert told["usage"]["prompt_tokens"] == 7
    assert done == "[DONE]"
    assert shop.ledger.last.cost_pico == 27_000


async def test_a_stream_without_a_usage_chunk_costs_as_much() -> None:
    shop = priced(ScriptedBackend(Script([ROLE, WORD, STOP, USAGE, DONE])))
    exchange = await answered(shop.handler, chat(stream=True, usage=False))
    assert b"cost" not in exchange.sent
    assert shop.ledger.last.cost_pico == 27_000


async def test_a_kept_answer_costs_nothing() -> None:
    shop = priced(ScriptedBackend(Script([WHOLE], streaming=False)), cache=Caching(ttl_s=60.0))
    await answered(shop.handler, chat())
    again = await answered(shop.handler, chat())
    assert again.answer_headers[b"x-tiffin-cost"] == b"0 INR"
    closed = shop.ledger.last
    assert (closed.cost_pico, closed.currency, closed.cache) == (0, "INR", "hit")
    assert closed.usage.prompt_tokens == 0


async def test_who_leaves_pays_the_input_and_the_output_as_counted() -> None:
    backend = ScriptedBackend(Script([ROLE, WORD, WORD], hangs=True))
    shop = priced(backend)
    exchange = chat(stream=True)
    exchange.start(shop.handler)
    await backend.hanging.wait()
    await exchange.leave()
    closed = shop.ledger.last
    assert closed.outcome is Outcome.CANCELLED
    assert closed.usage.completion_tokens == 2
    assert closed.usage.prompt_tokens >= len(TEXT) // 4
    assert not closed.usage.measured
    assert closed.cost_pico == 1000 * closed.usage.prompt_tokens + 20_000


@pytest.mark.parametrize(
    ("pieces", "outcome", "lost"),
    [
        pytest.param([ROLE, WORD, UpstreamFailed("died")], Outcome.PARTIAL, True, id="after words"),
        pytest.param([ROLE, UpstreamFailed("died")], Outcome.FAILED, True, id="before them"),
    ],
)
async def test_what_an_upstream_broke_is_our_loss(
    pieces: list[bytes | UpstreamFailed], outcome: Outcome, lost: bool
) -> None:
    shop = priced(ScriptedBackend(Script([*pieces])), attempts=1)
    await answered(shop.handler, chat(stream=True))
    closed = shop.ledger.last
    assert (closed.outcome, closed.cost_pico) == (outcome, 0)
    assert bool(closed.loss_pico) is lost


async def test_what_never_answered_costs_nobody() -> None:
    shop = priced(ScriptedBackend(Script(fails=RunFailed("no"))), attempts=1)
    await answered(shop.handler, chat())
    assert (shop.ledger.last.cost_pico, shop.ledger.last.loss_pico) == (0, 0)


async def test_what_an_upstream_claims_never_stops_an_account() -> None:
    claim = WHOLE.replace(b'"completion_tokens":2', b'"completion_tokens":%d' % 2**53)
    price = Price(currency="INR", output_token=2**62)
    shop = priced(ScriptedBackend(Script([claim], streaming=False)), price=price)
    await answered(shop.handler, chat())
    assert shop.ledger.last.cost_pico == 2**62
    assert msgspec.json.encode(shop.ledger.last)


async def test_a_first_try_that_an_upstream_broke_is_lost_beside_the_second() -> None:
    dies: Callable[[], Script] = lambda: Script([ROLE, UpstreamFailed("died")])  # noqa: E731
    shop = priced(ScriptedBackend(dies()), ScriptedBackend(Script([ROLE, WORD, STOP, USAGE, DONE])))
    await answered(shop.handler, chat(stream=True))
    closed = shop.ledger.last
    assert (closed.outcome, closed.cost_pico) == (Outcome.OK, 27_000)
    assert closed.loss_pico >= 1000 * (len(TEXT) // 4)
