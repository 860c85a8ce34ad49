"""What every store of the ledger promises, beside the store of accounts that fills it."""

from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tiffin.adapters.stores.ledger import SqliteLedger
from tiffin.adapters.stores.ledger_rows import Keys
from tiffin.adapters.stores.sqlite import SqliteAccounts
from tiffin.ports.accounts import Accounts, Batch, Closing, Opening, Position
from tiffin.ports.ledger import HALF_HOUR_NS, InvoiceLine, Ledger, Ran, Span
from tiffin.types.money import PICO
from tiffin.types.usage import Usage

ALL = Span(0, 2**62)


@dataclass
class Stores:
    """The two stores of one database."""

    accounts: Accounts
    ledger: Ledger


@pytest.fixture(params=["sqlite"])
async def stores(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Stores]:
    path = tmp_path / "tiffin.db"
    accounts, ledger = SqliteAccounts(path), SqliteLedger(path)
    yield Stores(accounts, ledger)
    ledger.close()
    accounts.close()


def opening(name: str, tenant: str = "t", tag: str = "") -> Opening:
    return Opening(id=name, at_ns=1, tenant=tenant, key="k", endpoint="chat", project="p", tag=tag)


def closing(name: str, cost: int = 0, at_ns: int = 5, outcome: str = "ok") -> Closing:
    usage = Usage(prompt_tokens=3, completion_tokens=2, device_ns=7, rows=1)
    return Closing(
        id=name,
        at_ns=at_ns,
        outcome=outcome,
        model="best",
        target="cloud",
        upstream=True,
        usage=usage,
        cost_pico=cost,
        loss_pico=1,
        currency="INR",
        retried_ns=4,
    )


def settled(*pairs: tuple[Opening, Closing], epoch: str = "e") -> Batch:
    return Batch(epoch=epoch, position=Position(), settled=list(pairs))


async def test_accounts_of_one_kind_are_one_sum(stores: Stores) -> None:
    batch = settled((opening("a"), closing("a", 10)), (opening("b"), closing("b", 20)))
    await stores.accounts.absorb(batch)
    (one,) = await stores.ledger.sums(ALL)
    assert (one.tenant, one.project, one.key, one.model) == ("t", "p", "k", "best")
    assert (one.target, one.upstream, one.outcome, one.measured) == ("cloud", True, "ok", True)
    assert (one.requests, one.cost_pico, one.loss_pico, one.retried_ns) == (2, 30, 2, 8)
    assert (one.prompt_tokens, one.completion_tokens, one.device_ns, one.rows) == (6, 4, 14, 2)


async def test_moments_are_of_what_was_answered_and_measured(stores: Stores) -> None:
    batch = settled(
        (opening("a"), closing("a")),
        (opening("b"), closing("b")),
        (opening("c", tag="w"), closing("c")),
        (opening("d"), closing("d", outcome="cancelled")),
    )
    await stores.accounts.absorb(batch)
    assert await stores.ledger.moments(ALL, ["other"]) == []
    assert await stores.ledger.moments(Span(HALF_HOUR_NS, 2 * HALF_HOUR_NS), ["cloud"]) == []
    (found,) = await stores.ledger.moments(ALL, ["cloud"])
    # Two requests in one sum count half of its squares: three tokens, two tokens, seven ns.
    once = [3.0, 0.0, 2.0, 7.0]
    expected = tuple(tuple(3 * a * b for b in once) for a in once)
    assert (found.target, found.rows, found.products) == ("cloud", 2, expected)


async def test_amounts_over_what_a_number_of_the_database_holds_are_summed(stores: Stores) -> None:
    much = 9_000_000 * PICO
    for number in range(5):
        name = str(number)
        await stores.accounts.absorb(settled((opening(name), closing(name, much))))
    (one,) = await stores.ledger.sums(ALL)
    assert one.cost_pico == 5 * much > 2**63


async def test_tags_are_told_apart_and_days_where_wanted(stores: Stores) -> None:
    late = closing("b", 2, at_ns=38 * HALF_HOUR_NS)
    batch = settled((opening("a", tag="x"), closing("a", 1)), (opening("b", tag="x"), late))
    await stores.accounts.absorb(batch)
    assert len(await stores.ledger.sums(ALL)) == 1
    offset = 11 * HALF_HOUR_NS  # as in India
    days = await stores.ledger.sums(ALL, fields=(), daily=True, offset_ns=offset)
    assert {one.tag for one in days} == {""}
    assert [(one.day_ns, one.cost_pico) for one in days] == [
        (-offset, 1),
        (48 * HALF_HOUR_NS - offset, 2),
    ]


async def test_a_span_has_what_closed_in_it(stores: Stores) -> None:
    pairs = [(opening(str(n)), closing(str(n), 1, at_ns=n * HALF_HOUR_NS)) for n in range(4)]
    await stores.accounts.absorb(settled(*pairs))
    (one,) = await stores.ledger.sums(Span(HALF_HOUR_NS, 3 * HALF_HOUR_NS))
    assert one.requests == 2


async def test_what_nobody_closed_is_lost_and_counts_once(stores: Stores) -> None:
    batch = Batch(epoch="e", position=Position(), opened=[opening("a"), opening("b")])
    await stores.accounts.absorb(batch)
    assert await stores.ledger.sums(ALL) == []
    await stores.accounts.abandon("e", 9)
    await stores.accounts.abandon("e", 9)
    (one,) = await stores.ledger.sums(ALL)
    assert (one.outcome, one.requests, one.tenant) == ("lost", 2, "t")


async def test_sums_stay_when_entries_go(stores: Stores) -> None:
    await stores.accounts.absorb(settled((opening("a"), closing("a", 10))))
    assert await stores.accounts.trim(before_ns=2**62, keep=0, at_most=10) == 1
    (one,) = await stores.ledger.sums(ALL)
    assert one.cost_pico == 10
    await stores.ledger.trim(before_ns=HALF_HOUR_NS)
    assert await stores.ledger.sums(ALL) == []


async def test_lives_grow(stores: Stores) -> None:
    for until_ns in (5, 9):
        one = Ran(name="a", kind="loaded", since_ns=1, until_ns=until_ns, model="m", opaque=True)
        await stores.ledger.ran([one])
    assert await stores.ledger.lives(Span(8, 20)) == [one]
    assert await stores.ledger.lives(Span(9, 20)) == []


async def test_an_invoice_is_taken_once(stores: Stores) -> None:
    line = InvoiceLine(
        since_ns=0, until_ns=9, name="x", kind="machines", amount_pico=-3 * PICO - 1, currency="USD"
    )
    assert await stores.ledger.take_invoice("april", [line])
    assert not await stores.ledger.take_invoice("april", [line, line])
    assert await stores.ledger.invoiced(Span(8, 20)) == [line]


def test_keys_over_the_bound_share_a_name_but_tenants_do_not(tmp_path: Path) -> None:
    from tiffin.adapters.stores.connection import opened

    db, keys = opened(tmp_path / "t.db"), Keys(bound=2)
    for number in range(6):
        key = (f"t{number % 2}", "p", str(number), "tag", "m", "m", False, "ok", True, "INR")
        keys.number(db, key)
    rows = db.execute("SELECT tenant, key FROM ledger_key ORDER BY id").fetchall()
    db.close()
    assert rows == [("t0", "0"), ("t1", "1"), ("t0", "_other"), ("t1", "_other")]


KILLS = st.lists(st.tuples(st.integers(0, 10**15), st.booleans()), min_size=1, max_size=12)


@settings(max_examples=20, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(KILLS, st.integers(0, 12))
async def test_whoever_is_killed_adds_up(
    tmp_path_factory: pytest.TempPathFactory, requests: list[tuple[int, bool]], cut: int
) -> None:
    """Some closings never come, the rest in two batches, the second of them twice."""
    path = tmp_path_factory.mktemp("kills") / "t.db"
    accounts, ledger = SqliteAccounts(path), SqliteLedger(path)
    names = [str(number) for number in range(len(requests))]
    await accounts.absorb(Batch("e", Position(offset=1), opened=[opening(n) for n in names]))
    closed = [closing(n, c) for n, (c, ends) in zip(names, requests, strict=True) if ends]
    await accounts.absorb(Batch("e", Position(offset=2), closed=closed[:cut]))
    for _ in range(2):
        await accounts.absorb(Batch("e", Position(offset=3), closed=closed[cut:]))
    await accounts.abandon("e", 9)
    sums = await ledger.sums(ALL)
    entries = await accounts.totals()
    ledger.close()
    accounts.close()
    assert sum(one.cost_pico for one in sums) == sum(cost for cost, ends in requests if ends)
    assert sum(one.requests for one in sums) == len(requests) == sum(e.requests for e in entries)
    lost = sum(one.requests for one in sums if one.outcome == "lost")
    assert lost == sum(not ends for _, ends in requests)
