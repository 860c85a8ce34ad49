"""Statements as operators ask for them, over a real ledger and a clock that stands."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tiffin.adapters.stores.ledger import SqliteLedger
from tiffin.adapters.stores.sqlite import SqliteAccounts
from tiffin.config.prices import Credit, MachinePrice, PricePlan, Prices
from tiffin.control.money.statements import Ask, Statements
from tiffin.errors import SchemaViolation
from tiffin.ledger.segments import DAY_NS, HOUR_NS
from tiffin.ports.accounts import Batch, Closing, Opening, Position
from tiffin.ports.ledger import Ran
from tiffin.testing.clock import FakeClock
from tiffin.types.usage import Usage

START_NS = 20_454 * DAY_NS  # 2026-01-01
NODE = MachinePrice(name="node", terms="reserved", hourly="36", since="2026-01-01")
INVOICE = (
    "BilledCost,BillingCurrency,ChargePeriodStart,ChargePeriodEnd,ServiceCategory\n"
    "900,INR,2026-01-01,2026-01-02,Compute\n"
)


class Bureau:
    """Statements of two days in which one tenant used a quarter of a machine, on the first."""

    def __init__(self, path: Path) -> None:
        self.accounts = SqliteAccounts(path)
        self.ledger = SqliteLedger(path)
        self.prices = Prices(machines=[NODE])
        self.clock = FakeClock(at_ns=START_NS + 2 * DAY_NS)
        self.statements = Statements(self.ledger, lambda: self.prices, lambda: None, self.clock)

    async def open(self) -> None:
        usage = Usage(device_ns=12 * HOUR_NS)
        opened = Opening(id="a", at_ns=START_NS, tenant="acme", key="k", endpoint="chat")
        closed = Closing(
            id="a", at_ns=START_NS + HOUR_NS, outcome="ok", model="m", target="m", usage=usage
        )
        await self.accounts.absorb(Batch("e", Position(), settled=[(opened, closed)]))
        until_ns = START_NS + 2 * DAY_NS
        await self.ledger.ran(
            [
                Ran(name="here", kind="machine", since_ns=START_NS, until_ns=until_ns, share=2),
                Ran(
                    name="m-1",
                    kind="loaded",
                    since_ns=START_NS,
                    until_ns=until_ns,
                    model="m",
                    share=2,
                    slots=2,
                ),
            ]
        )

    def close(self) -> None:
        self.ledger.close()
        self.accounts.close()


@pytest.fixture
async def bureau(tmp_path: Path) -> AsyncIterator[Bureau]:
    made = Bureau(tmp_path / "tiffin.db")
    await made.open()
    yield made
    made.close()


async def test_this_month_until_now_is_what_is_told(bureau: Bureau) -> None:
    page = await bureau.statements.page(Ask())
    assert (page.since, page.until) == ("2026-01-01T00:00:00+00:00", "2026-01-03T00:00:00+00:00")
    assert {(row.tenant, row.line): row.amount for row in page.data} == {
        ("acme", "requests"): "216",
        ("", "idle"): "1512",
    }
    assert (page.shown, page.total, page.per_request.successful) == ("1728", "1728", 1)


async def test_days_of_two_periods_are_the_days_of_both(bureau: Bureau) -> None:
    parts = [
        await bureau.statements.statement(Ask(since="2026-01-01", until="2026-01-02")),
        await bureau.statements.statement(Ask(since="2026-01-02", until="2026-01-03")),
    ]
    whole = await bureau.statements.statement(Ask())
    assert whole.total_pico == sum(part.total_pico for part in parts)


async def test_moments_that_no_ledger_can_say_are_the_nearest_that_it_can(bureau: Bureau) -> None:
    page = await bureau.statements.page(Ask(since="0001-01-01", until="9999-12-31"))
    assert (page.since, page.total) == ("1970-01-01T00:00:00+00:00", "1728")
    with pytest.raises(SchemaViolation, match="later than 'since'"):
        await bureau.statements.page(Ask(since="1600-01-01", until="1700-01-01"))


async def test_grants_before_the_period_have_paid_already(bureau: Bureau) -> None:
    bureau.prices = Prices(
        machines=[NODE], credits=[Credit(name="grant", amount="1000", since="2026-01-01")]
    )
    page = await bureau.statements.page(Ask(since="2026-01-02"))
    assert {item.kind: item.amount for item in page.bill} == {"machines": "864", "credit": "-136"}


async def test_an_invoice_that_says_more_makes_a_variance_once(bureau: Bureau) -> None:
    assert (await bureau.statements.take("jan", INVOICE)).new
    assert not (await bureau.statements.take("jan", INVOICE)).new
    page = await bureau.statements.page(Ask(until="2026-01-02", by="line"))
    assert page.total == "900"
    assert {row.line: row.amount for row in page.data}["variance: machines"] == "36"


async def test_a_plan_that_changes_is_charged_by_days(bureau: Bureau) -> None:
    bureau.prices = Prices(
        machines=[NODE],
        plans=[
            PricePlan(tenant="acme", request="500", since="2026-01-01"),
            PricePlan(tenant="acme", request="1", since="2026-01-02"),
        ],
    )
    (plan,) = (await bureau.statements.page(Ask())).plans
    assert (plan.charged, plan.cost, plan.profitable) == ("500", "216", True)


@pytest.mark.parametrize(
    ("ask", "param"),
    [
        pytest.param(Ask(by="colour"), "by", id="unknown group"),
        pytest.param(Ask(since="yesterday"), "since", id="no day"),
        pytest.param(Ask(since="2026-01-02", until="2026-01-01"), "until", id="backwards"),
        pytest.param(Ask(since="2027-01-01"), "until", id="to come"),
    ],
)
async def test_what_cannot_be_asked_is_refused_by_name(
    bureau: Bureau, ask: Ask, param: str
) -> None:
    with pytest.raises(SchemaViolation) as refused:
        await bureau.statements.statement(ask)
    assert refused.value.param == param


async def test_an_invoice_in_a_currency_without_a_rate_is_refused(bureau: Bureau) -> None:
    with pytest.raises(SchemaViolation, match="no rate of USD"):
        await bureau.statements.take("jan", INVOICE.replace("INR", "USD"))


async def test_a_launched_engine_s_time_is_shared_by_a_fit_that_the_statement_shows(
    bureau: Bureau,
) -> None:
    settled = []
    for number in range(12):
        # A token that is read takes a thousandth of one that is made.
        prompt, made = 1000 * (number % 4 + 1), 100 * (number % 3)
        usage = Usage(
            prompt_tokens=prompt,
            completion_tokens=made,
            device_ns=(prompt + 1000 * made) * 1_000_000,
        )
        at_ns, tenant = START_NS + (1 + number) * HOUR_NS, "zen" if number % 3 else "reader"
        told = Opening(id=f"v{number}", at_ns=at_ns, tenant=tenant, key="k", endpoint="chat")
        closed = Closing(
            id=f"v{number}", at_ns=at_ns, outcome="ok", model="v", target="v", usage=usage
        )
        settled.append((told, closed))
    await bureau.accounts.absorb(Batch("f", Position(), settled=settled))
    last_ns = START_NS + 2 * DAY_NS
    replica = Ran(
        name="v-1", kind="loaded", since_ns=START_NS, until_ns=last_ns, model="v", opaque=True
    )
    await bureau.ledger.ran([replica])
    page = await bureau.statements.page(Ask(by="tenant"))
    (fit,) = page.fits
    assert (fit.model, fit.rows, fit.error) == ("v", 12, 0)
    assert (fit.prefill_us, fit.cached_us, fit.decode_us) == (1000, 0, 1_000_000)
    rows = {row.tenant: row for row in page.data}
    assert page.shown == page.total == "1728"
    for tenant in ("reader", "zen"):
        assert (rows[tenant].measured, rows[tenant].allocated > "0") == ("0", True)
    assert rows["acme"].allocated == "0"
