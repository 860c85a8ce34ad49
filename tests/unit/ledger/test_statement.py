"""A statement equals its bill to the last unit, whatever was used, paid, broken or granted."""

from collections.abc import Sequence
from typing import Literal

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.unit.ledger import workloads as some
from tests.unit.ledger.workloads import START_NS
from tiffin.config.prices import Credit, FixedPrice, MachinePrice, PricePlan, Prices
from tiffin.ledger.allocate import WASTE, Portion, allocate
from tiffin.ledger.bill import BillLine, by_kind, credit_slices, credited, gross, variances
from tiffin.ledger.book import Book
from tiffin.ledger.fit import Fit
from tiffin.ledger.segments import DAY_NS, HOUR_NS
from tiffin.ledger.statement import GROUPS, Only, charged, statement
from tiffin.ports.ledger import HALF_HOUR_NS, InvoiceLine, Ran, Span, Sum
from tiffin.types.money import PICO

DAY = Span(START_NS, START_NS + DAY_NS)
NODE = MachinePrice(name="node", terms="reserved", hourly="36", since="2026-01-01")
UP = Ran(name="node", kind="machine", since_ns=DAY.since_ns, until_ns=DAY.until_ns, share=4)


def used(tenant: str = "acme", **more: object) -> Sum:
    """What a tenant's requests to a model come to."""
    told = {
        "project": "",
        "key": "k",
        "tag": "",
        "model": "chat",
        "target": "chat",
        "upstream": False,
        "outcome": "ok",
        "measured": True,
        "currency": "INR",
        "requests": 1,
    }
    return Sum(tenant=tenant, **(told | more))  # type: ignore[arg-type]


def ran(kind: str, hours: float, since_h: float = 0.0, **more: object) -> Ran:
    """A stretch of a replica of `chat` with two threads and two slots."""
    since = DAY.since_ns + int(since_h * HOUR_NS)
    told = {"name": "chat-1", "model": "chat", "share": 2, "slots": 2} | more
    return Ran(kind=kind, since_ns=since, until_ns=since + int(hours * HOUR_NS), **told)  # type: ignore[arg-type]


def whole_bill(
    book: Book,
    span: Span,
    sums: Sequence[Sum],
    lives: Sequence[Ran],
    invoiced: Sequence[InvoiceLine] = (),
) -> list[BillLine]:
    """A bill with credits and variances."""
    lines = gross(book, span, sums, lives)
    costs = [
        (part, by_kind(gross(book, part, sums if part.since_ns >= span.since_ns else [], lives)))
        for part in credit_slices(book, span)
    ]
    return [*lines, *credited(book, span, costs), *variances(lines, invoiced, book, span)]


def by_line(portions: Sequence[Portion]) -> dict[str, int]:
    """Amounts by the statement's lines."""
    found: dict[str, int] = {}
    for one in portions:
        found[one.line] = found.get(one.line, 0) + one.amount_pico
    return found


@settings(max_examples=60)
@given(
    some.books,
    some.spans,
    st.lists(some.sums, max_size=8),
    st.lists(some.lives, max_size=6),
    st.lists(some.invoices, max_size=2),
    st.sets(st.sampled_from(GROUPS)),
    some.fits,
)
def test_portions_sum_to_the_bill(
    prices: Prices,
    span: Span,
    sums: list[Sum],
    lives: list[Ran],
    invoiced: list[InvoiceLine],
    by: set[str],
    fits: dict[str, Fit],
) -> None:
    book = Book(prices)
    lines = whole_bill(book, span, sums, lives, invoiced)
    portions = allocate(lines, sums, lives, book, span, fits)
    told = statement(book, span, lines, portions, sorted(by), Only())
    assert told.shown_pico == told.total_pico == sum(line.amount_pico for line in lines)
    assert sum(row.requests for row in told.rows) == sum(one.requests for one in sums)


@settings(max_examples=60)
@given(some.books, some.spans, st.integers(1, 299), st.lists(some.lives, max_size=6))
def test_two_periods_cost_what_both_together_do(
    prices: Prices, span: Span, cut: int, lives: list[Ran]
) -> None:
    book = Book(prices)
    middle = min(span.since_ns + cut * HALF_HOUR_NS, span.until_ns)
    parts = [Span(span.since_ns, middle), Span(middle, span.until_ns)]
    whole = by_kind(gross(book, span, [], lives))
    halves = [by_kind(gross(book, part, [], lives)) for part in parts]
    for kind in whole.keys() | halves[0].keys() | halves[1].keys():
        assert whole.get(kind, 0) == sum(half.get(kind, 0) for half in halves)


@settings(max_examples=60)
@given(some.books, some.spans, st.lists(some.lives, max_size=4))
def test_grants_pay_no_more_than_they_are_and_no_more_than_there_is(
    prices: Prices, span: Span, lives: list[Ran]
) -> None:
    book = Book(prices)
    lines = whole_bill(book, span, [], lives)
    told = by_kind(lines)
    paid = -told.pop("credit", 0)
    # Slices that begin within a half hour may round differently, by a unit for each entry.
    assert 0 <= paid <= sum(told.values()) + 100


def test_a_machine_is_shared_by_the_time_that_requests_held_it() -> None:
    book = Book(Prices(machines=[NODE]))
    sums = [used(device_ns=6 * HOUR_NS), used("zen", device_ns=2 * HOUR_NS, outcome="cancelled")]
    lives = [UP, ran("load", 1), ran("loaded", 23, since_h=1)]
    lines = gross(book, DAY, sums, lives)
    told = by_line(allocate(lines, sums, lives, book, DAY))
    # Four threads for 24 hours cost 864: one thread's hour 9. A slot is one of the two threads.
    assert told == {
        "requests": 54 * PICO,
        "cancelled": 18 * PICO,
        "load": 18 * PICO,
        "idle": 774 * PICO,
    }


def test_an_engine_s_time_is_shared_by_what_tokens_take_and_is_allocated() -> None:
    book = Book(Prices(machines=[NODE]))
    long, short = (
        used(prompt_tokens=1000, completion_tokens=500, device_ns=3 * HOUR_NS),
        used("zen", prompt_tokens=1000, cached_tokens=1000, device_ns=3 * HOUR_NS),
    )
    lost = used("zen", outcome="failed", device_ns=HOUR_NS)
    lives = [UP, ran("loaded", 24, opaque=True)]
    sums = [long, short, lost]
    lines = gross(book, DAY, sums, lives)
    fit = Fit(model="chat", prefill_ps=10, cached_ps=1, decode_ps=38, error=0.1, rows=9)
    fits = {"chat": fit}
    told = {
        (one.tenant, one.line): (one.measured_pico, one.allocated_pico)
        for one in allocate(lines, sums, lives, book, DAY, fits)
    }
    # Six hours at 9 the hour: by 1000 tokens of 10 and 500 of 38, to 1000 of 1.
    assert told[("acme", "requests")] == (0, 54 * PICO * 29_000 // 30_000)
    assert told[("zen", "requests")] == (0, 54 * PICO * 1_000 // 30_000)
    assert told[("zen", "failed")] == (0, 9 * PICO)
    unfitted = allocate(lines, sums, lives, book, DAY)
    assert [(one.measured_pico, one.allocated_pico) for one in unfitted[:2]] == [(0, 27 * PICO)] * 2


def test_what_costs_by_the_hour_costs_while_the_server_runs() -> None:
    node = MachinePrice(name="node", hourly="36", since="2026-01-01")
    book = Book(Prices(machines=[node]))
    until_ns = DAY.since_ns + 3 * HALF_HOUR_NS
    up = Ran(name="n", kind="machine", since_ns=DAY.since_ns, until_ns=until_ns)
    assert by_kind(gross(book, DAY, [], [up, up])) == {"machines": 54 * PICO}


@pytest.mark.parametrize(
    ("accelerators", "device"), [(0, "cpu"), (4, "gpu")], ids=["threads", "accelerators"]
)
@pytest.mark.parametrize(
    ("terms", "idle"), [("reserved", 864 - 54), ("on-demand", 432 - 54)], ids=["always", "while up"]
)
def test_what_is_paid_for_while_nothing_runs_is_idle(
    accelerators: int, device: str, terms: Literal["reserved", "on-demand"], idle: int
) -> None:
    node = MachinePrice(
        name="node", terms=terms, hourly="36", accelerators=accelerators, since="2026-01-01"
    )
    book = Book(Prices(machines=[node]))
    noon = DAY.since_ns + 12 * HOUR_NS
    up = Ran(name="here", kind="machine", since_ns=DAY.since_ns, until_ns=noon, share=4)
    lives = [up, ran("loaded", 12, device=device)]
    sums = [used(device_ns=6 * HOUR_NS)]
    lines = gross(book, DAY, sums, lives)
    told = by_line(allocate(lines, sums, lives, book, DAY))
    assert told == {"requests": 54 * PICO, "idle": idle * PICO}


def test_upstreams_and_losses_are_their_requests() -> None:
    book = Book(Prices())
    sums = [
        used(target="cloud", upstream=True, cost_pico=70, loss_pico=4),
        used("zen", target="cloud", upstream=True, outcome="failed", measured=False, loss_pico=5),
        used(outcome="lost", measured=True, target="", currency=""),
    ]
    lines = gross(book, DAY, sums, [])
    assert by_kind(lines) == {"models": 79}
    told = by_line(allocate(lines, sums, [], book, DAY))
    assert told == {"requests": 70, "retried": 4, "failed": 5, "lost": 0}
    assert {"retried", "failed", "cancelled", "lost"} == WASTE


def test_what_nobody_used_is_idle() -> None:
    team = FixedPrice(name="team", kind="people", amount="24", per="day", since="2026-01-01")
    book = Book(Prices(machines=[NODE], fixed=[team]))
    lines = gross(book, DAY, [], [UP])
    assert by_line(allocate(lines, [], [UP], book, DAY)) == {"idle": (864 + 24) * PICO}


def test_the_formula_of_a_request_is_shown() -> None:
    disk = FixedPrice(name="disk", kind="storage", amount="1488", per="month", since="2026-01-01")
    book = Book(Prices(machines=[NODE], fixed=[disk]))
    sums = [used(requests=1000), used(requests=7, outcome="failed")]
    lines = gross(book, DAY, sums, [UP])
    told = statement(book, DAY, lines, allocate(lines, sums, [UP], book, DAY), ["tenant"], Only())
    assert told.per_request.each_pico == 912 * PICO // 1000
    assert told.per_request.formula == (
        "(compute 864 INR + storage 48 INR + network 0 INR + platform 0 INR + operations 0 INR)"
        " / 1000 successful requests = 0.912 INR"
    )


def test_an_invoice_that_says_more_is_a_line_of_its_own() -> None:
    book = Book(Prices(machines=[NODE]))
    lines = gross(book, DAY, [], [UP])
    invoice = InvoiceLine(
        since_ns=DAY.since_ns,
        until_ns=DAY.until_ns + DAY_NS,
        name="m5",
        kind="machines",
        amount_pico=2 * 900 * PICO,
        currency="INR",
    )
    lines += variances(lines, [invoice], book, DAY)
    told = by_line(allocate(lines, [], [UP], book, DAY))
    assert told == {"idle": 864 * PICO, "variance: machines": 36 * PICO}


def test_a_grant_pays_until_it_is_used_up() -> None:
    grant = Credit(name="grant", amount="1000", since="2026-01-01", covers=["machines"])
    book = Book(Prices(machines=[NODE], credits=[grant]))
    next_day = Span(DAY.until_ns, DAY.until_ns + DAY_NS)
    first = by_kind(whole_bill(book, DAY, [], [UP]))
    second = by_kind(whole_bill(book, next_day, [], [UP]))
    assert first == {"machines": 864 * PICO, "credit": -864 * PICO}
    assert second == {"machines": 864 * PICO, "credit": -136 * PICO}


def test_a_plan_that_brings_less_than_it_costs_is_told() -> None:
    plans = [
        PricePlan(tenant="acme", input="2", markup="1.5", since="2026-01-01"),
        PricePlan(tenant="zen", monthly="1488", since="2026-01-01"),
    ]
    book = Book(Prices(machines=[NODE], plans=plans))
    sums = [
        used(device_ns=HOUR_NS, prompt_tokens=10**6, cost_pico=2 * PICO),
        used("zen", device_ns=HOUR_NS),
    ]
    lives = [UP, ran("loaded", 24)]
    lines = gross(book, DAY, sums, lives)
    told = charged(book, DAY, sums, allocate(lines, sums, lives, book, DAY))
    assert [(one.tenant, one.charged_pico, one.profitable) for one in told] == [
        ("acme", (2 + 3) * PICO, False),
        ("zen", 48 * PICO, True),
    ]
    assert {one.cost_pico for one in told} == {9 * PICO}


def test_a_statement_may_be_of_one_tenant() -> None:
    book = Book(Prices(machines=[NODE]))
    sums = [used(device_ns=HOUR_NS), used("zen", device_ns=HOUR_NS)]
    lives = [UP, ran("loaded", 24)]
    lines = gross(book, DAY, sums, lives)
    portions = allocate(lines, sums, lives, book, DAY)
    told = statement(book, DAY, lines, portions, ["tenant", "line"], Only(tenant="zen"))
    assert [(row.tenant, row.line, row.amount_pico) for row in told.rows] == [
        ("zen", "requests", 9 * PICO)
    ]
    assert (told.shown_pico, told.total_pico) == (9 * PICO, 864 * PICO)
