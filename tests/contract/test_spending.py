"""What every store of what was spent promises, beside the store of accounts that fills it."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tiffin.adapters.stores.spending import SqliteSpending
from tiffin.adapters.stores.sqlite import SqliteAccounts
from tiffin.ports.accounts import Batch, Closing, Opening, Position
from tiffin.ports.ledger import HALF_HOUR_NS, Span
from tiffin.ports.spending import Field, Spending, Spent, Times
from tiffin.types.money import PICO

HOUR_NS = 2 * HALF_HOUR_NS
FIELDS: tuple[Field, ...] = ("project", "key", "model")
ALL = Span(0, 1000 * HOUR_NS)


@pytest.fixture(params=["sqlite"])
async def spending(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Spending]:
    path = tmp_path / "tiffin.db"
    accounts, spending = SqliteAccounts(path), SqliteSpending(path)
    pairs = [
        account("a", 3 * HOUR_NS, 2),
        account("b", 3 * HOUR_NS + HALF_HOUR_NS, 3, tag="x"),
        account("c", 4 * HOUR_NS, 9_000_000, outcome="failed"),
        account("d", 4 * HOUR_NS, 9_000_000, outcome="cancelled"),
        account("e", 4 * HOUR_NS, 0),
        account("f", 4 * HOUR_NS, 5, tenant="other"),
    ]
    await accounts.absorb(Batch(epoch="e", position=Position(), settled=pairs))
    yield spending
    spending.close()
    accounts.close()


def account(
    name: str, at_ns: int, cost: int, *, tenant: str = "t", tag: str = "", outcome: str = "ok"
) -> tuple[Opening, Closing]:
    opening = Opening(
        id=name, at_ns=1, tenant=tenant, key="k", endpoint="chat", project="p", tag=tag
    )
    closing = Closing(
        id=name, at_ns=at_ns, outcome=outcome, model="m", currency="INR", cost_pico=cost * PICO
    )
    return opening, closing


def spent(hour_ns: int, cost: int) -> Spent:
    return Spent(hour_ns, "t", "p", "k", "m", "INR", cost * PICO)


async def test_hours_are_summed_whatever_was_asked_how(spending: Spending) -> None:
    found = await spending.by_hour(Times(ALL), ["t"], FIELDS)
    assert found == [spent(3 * HOUR_NS, 5), spent(4 * HOUR_NS, 18_000_000)]


async def test_hours_begin_where_days_do(spending: Spending) -> None:
    found = await spending.by_hour(Times(ALL, 0, HALF_HOUR_NS), {"t"}, FIELDS)
    early, late = 2 * HOUR_NS + HALF_HOUR_NS, 3 * HOUR_NS + HALF_HOUR_NS
    assert found == [spent(early, 2), spent(late, 18_000_003)]


async def test_only_some_tenants_and_some_time_are_told(spending: Spending) -> None:
    assert await spending.by_hour(Times(ALL), [], FIELDS) == []
    assert len(await spending.by_hour(Times(ALL), ["t", "other"], FIELDS)) == 3
    first = Times(Span(3 * HOUR_NS, 3 * HOUR_NS + HALF_HOUR_NS))
    assert await spending.by_hour(first, ["t"], FIELDS) == [spent(3 * HOUR_NS, 2)]


async def test_what_is_long_ago_is_told_by_day(spending: Spending) -> None:
    offset = 11 * HALF_HOUR_NS  # as in India
    day = 48 * HALF_HOUR_NS - offset
    [whole] = await spending.by_hour(Times(ALL, day, offset), ["t"], FIELDS)
    assert whole == spent(-offset, 18_000_005)
    assert len(await spending.by_hour(Times(ALL, 0, offset), ["t"], FIELDS)) == 2


async def test_only_what_is_wanted_is_told_apart(spending: Spending) -> None:
    found = await spending.by_hour(Times(ALL), ["t", "other"], {"model"})
    assert {(one.tenant, one.project, one.key, one.model) for one in found} == {
        ("t", "", "", "m"),
        ("other", "", "", "m"),
    }
