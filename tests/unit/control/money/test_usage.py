"""Usage as operators and tenants ask for it, over a real ledger and a clock that stands."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tiffin.adapters.stores.ledger import SqliteLedger
from tiffin.adapters.stores.sqlite import SqliteAccounts
from tiffin.config.prices import Prices, Rate
from tiffin.control.money.usage import UsageAsk, UsageBook
from tiffin.errors import SchemaViolation, Unavailable
from tiffin.ledger.segments import DAY_NS, HOUR_NS
from tiffin.ports.accounts import Batch, Closing, Opening, Position
from tiffin.testing.clock import FakeClock
from tiffin.types.money import PICO
from tiffin.types.usage import Usage

START_NS = 20_454 * DAY_NS  # 2026-01-01
USD = Rate(of="USD", rate="100", since="2025-01-01")


def account(name: str, at_ns: int, **more: str) -> tuple[Opening, Closing]:
    where = {"tenant": "acme", "project": "p", "key": "k", "model": "m", "currency": "INR"} | more
    opening = Opening(
        id=name,
        at_ns=at_ns,
        tenant=where["tenant"],
        key=where["key"],
        endpoint="chat",
        project=where["project"],
    )
    closing = Closing(
        id=name,
        at_ns=at_ns,
        outcome=where.get("outcome", "ok"),
        model=where["model"],
        target="m",
        currency=where["currency"],
        cost_pico=2 * PICO,
        usage=Usage(prompt_tokens=3, completion_tokens=5, pages=1, audio_ms=500),
    )
    return opening, closing


@pytest.fixture
async def usage(tmp_path: Path) -> AsyncIterator[UsageBook]:
    path = tmp_path / "tiffin.db"
    accounts, ledger = SqliteAccounts(path), SqliteLedger(path)
    settled = [
        account("a", START_NS),
        account("b", START_NS + DAY_NS, model="n", outcome="failed"),
        account("c", START_NS + 20 * HOUR_NS, key="other"),
        account("d", START_NS, tenant="far", currency="USD"),
    ]
    await accounts.absorb(Batch("e", Position(), settled=settled))
    prices = Prices(utc_offset="+05:30", rates=[USD])
    yield UsageBook(ledger, lambda: prices, FakeClock(at_ns=START_NS + 2 * DAY_NS))
    ledger.close()
    accounts.close()


async def test_it_is_summed_by_what_was_asked(usage: UsageBook) -> None:
    page = await usage.page(UsageAsk(by="tenant"))
    assert [(row.tenant, row.cost, row.requests) for row in page.data] == [
        ("far", "200", 1),
        ("acme", "6", 3),
    ]
    whole = page.data[1]
    assert (whole.successful, whole.prompt_tokens, whole.completion_tokens) == (2, 9, 15)
    assert (whole.pages, whole.audio_s, whole.key, whole.day) == (3, 1.5, "", "")
    assert (page.currency, page.since) == ("INR", "2026-01-01T00:00:00+05:30")


async def test_days_are_those_of_the_prices(usage: UsageBook) -> None:
    page = await usage.page(UsageAsk(by="day,key", tenant="acme"))
    assert [(row.day, row.key, row.requests) for row in page.data] == [
        ("2026-01-01", "k", 1),
        ("2026-01-02", "k", 1),
        ("2026-01-02", "other", 1),
    ]


@pytest.mark.parametrize(
    ("ask", "count"),
    [
        (UsageAsk(by="", tenant="acme", key="other"), 1),
        (UsageAsk(by="", model="n"), 1),
        (UsageAsk(by="", until="2026-01-02"), 2),
        (UsageAsk(by="model", project="q"), 0),
    ],
)
async def test_only_what_was_asked_for_counts(usage: UsageBook, ask: UsageAsk, count: int) -> None:
    assert sum(row.requests for row in (await usage.page(ask)).data) == count


async def test_what_cant_be_asked_is_refused_by_name(usage: UsageBook) -> None:
    for ask in (UsageAsk(by="colour"), UsageAsk(since="soon"), UsageAsk(until="2020-01-01")):
        with pytest.raises(SchemaViolation):
            await usage.page(ask)


async def test_a_currency_without_a_rate_is_told(usage: UsageBook) -> None:
    usage._prices = Prices
    with pytest.raises(Unavailable, match="no rate of USD"):
        await usage.page(UsageAsk())
