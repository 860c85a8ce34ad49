"""How budgets stand by what was spent, hour by hour."""

from collections.abc import Collection
from pathlib import Path

import msgspec
import pytest

from tiffin.config.load import load_text
from tiffin.config.prices import offset_of
from tiffin.control.budgets.charged import Charged, charged_in
from tiffin.control.budgets.held import Held, held_in
from tiffin.control.budgets.period import period
from tiffin.control.budgets.standing import PAST_EVERY_S, Budgets, Stand
from tiffin.control.budgets.told import view_of
from tiffin.control.tenants.registry import Made
from tiffin.errors import Unavailable
from tiffin.ledger.segments import DAY_NS, HOUR_NS
from tiffin.ports.ledger import Span
from tiffin.ports.spending import Field, Spent, Times
from tiffin.testing.clock import FakeClock
from tiffin.types.budgets import Budget, rule_of
from tiffin.types.keyring import MadeProject, MadeTenant
from tiffin.types.limits import Standing, Standings
from tiffin.types.money import PICO

START_NS = 20_454 * DAY_NS  # 2026-01-01
IST_NS = 5 * HOUR_NS + HOUR_NS // 2
CONFIG = """
[prices]
utc_offset = "+05:30"

[[prices.models]]
model = "echo"
request = "1"
since = "2026-01-01"

[models.echo]
runtime = "echo"

[tenants.acme.budgets.all]
amount = "100"
hard = true

[tenants.acme.budgets.echo]
amount = "40"
models = ["echo"]

[tenants.acme.projects.search.budgets.day]
amount = "10"
per = "day"

[tenants.acme.projects.search.keys.web]
key_env = "WEB"
budgets = { week = { amount = "5" } }

[tenants.other.budgets.all]
amount = "1"
"""
KEYS = ("all", "echo", "day", "week")
config = load_text(CONFIG.encode(), {}).config


class FakeSpending:
    """Satisfies `ports.spending.Spending` with these rows."""

    def __init__(self, *rows: Spent) -> None:
        self.rows = rows
        self.read: list[Span] = []

    async def by_hour(
        self, times: Times, tenants: Collection[str], fields: Collection[Field]
    ) -> list[Spent]:
        span = times.span
        self.read.append(span)
        assert set(fields) == {"project", "key", "model"}
        inside = (one for one in self.rows if span.since_ns <= one.hour_ns < span.until_ns)
        return [one for one in inside if one.tenant in tenants]


def spent(amount: int, at_ns: int, **where: str) -> Spent:
    names = {"tenant": "acme", "project": "", "key": "k", "model": "echo", "currency": "INR"}
    return Spent(hour_ns=at_ns, **(names | where), cost_pico=amount * PICO)


NOW_NS = START_NS + 10 * DAY_NS + 3 * HOUR_NS
THIS_HOUR = NOW_NS - IST_NS % HOUR_NS


async def stands(*rows: Spent, charged: Charged = {}) -> dict[str, Stand]:  # noqa: B006
    budgets = Budgets(
        FakeSpending(*rows), lambda: config, Made, lambda: charged, FakeClock(at_ns=NOW_NS)
    )
    found = await budgets.stand("acme")
    return {one.held.name: one for one in found}


async def test_each_counts_what_is_its_own() -> None:
    found = await stands(
        spent(1, THIS_HOUR),
        spent(2, THIS_HOUR, project="search"),
        spent(4, THIS_HOUR, project="search", key="web", model="other"),
        spent(8, THIS_HOUR, tenant="other"),
        spent(16, THIS_HOUR - 5 * DAY_NS, project="search", key="web", model="echo@2"),
    )
    got = {name: found[name].spent_pico // PICO for name in KEYS}
    assert got == {"all": 23, "echo": 19, "day": 6, "week": 20}


async def test_days_and_months_begin_as_the_prices_say() -> None:
    begins = period("day", NOW_NS, offset_of(config.prices)).since_ns
    assert (begins + IST_NS) % DAY_NS == 0
    found = await stands(
        spent(1, begins - HOUR_NS, project="search"), spent(2, begins, project="search")
    )
    assert found["day"].spent_pico == 2 * PICO
    month = found["all"].period
    assert (month.since_ns + IST_NS, month.until_ns - month.since_ns) == (START_NS, 31 * DAY_NS)


async def test_thresholds_are_reached_exactly() -> None:
    assert (await stands(spent(49, THIS_HOUR)))["all"].passed == ()
    assert (await stands(spent(50, THIS_HOUR)))["all"].passed == (50,)
    assert (await stands(spent(100, THIS_HOUR)))["all"].passed == (50, 80, 100)


async def test_what_gateways_charged_beyond_is_reserved() -> None:
    charged: Charged = {("tenant 'acme'", "month", ()): 70 * PICO}
    found = await stands(spent(60, THIS_HOUR), charged=charged)
    view = view_of(found["all"], offset_of(config.prices))
    assert (view.spent, view.reserved, view.left, view.state) == ("60", "10", "30", "warned")
    assert view_of(found["echo"], offset_of(config.prices)).reserved == ""
    assert (view.since, view.forecast.outlook) == ("2026-01-01T00:00:00+05:30", "unknown")


async def test_a_forecast_is_made_of_whole_hours() -> None:
    rows = [spent(1, THIS_HOUR - number * HOUR_NS) for number in range(1, 21)]
    one = (await stands(*rows))["echo"]
    assert (one.spent_pico, one.hours) == (20 * PICO, 20)
    assert (one.forecast.expected_ns - NOW_NS) / HOUR_NS == pytest.approx(20)


async def test_what_is_long_over_is_read_now_and_then() -> None:
    clock = FakeClock(at_ns=NOW_NS)
    spending = FakeSpending(spent(1, THIS_HOUR - 9 * DAY_NS), spent(2, THIS_HOUR))
    budgets = Budgets(spending, lambda: config, Made, dict, clock)

    async def all_of_it() -> tuple[int, int]:
        spending.read.clear()
        [whole, *_] = await budgets.stand()
        return whole.spent_pico // PICO, len(spending.read)

    assert await all_of_it() == (3, 2)
    clock.advance(PAST_EVERY_S - 1)
    spending.rows += (spent(4, THIS_HOUR - 5 * DAY_NS), spent(8, THIS_HOUR))
    assert await all_of_it() == (11, 1)
    clock.advance(1)
    assert await all_of_it() == (15, 2)
    assert spending.read[0].until_ns == spending.read[1].since_ns


async def test_a_currency_without_a_rate_is_told() -> None:
    with pytest.raises(Unavailable, match="no rate of USD"):
        await stands(spent(1, THIS_HOUR, currency="USD"))


def test_places_are_those_of_the_file() -> None:
    assert [one.place for one in held_in(config, Made())] == [
        "tenants.acme.budgets.all",
        "tenants.acme.budgets.echo",
        "tenants.acme.projects.search.budgets.day",
        "tenants.acme.projects.search.keys.web.budgets.week",
        "tenants.other.budgets.all",
    ]


def test_what_the_api_made_has_its_own_until_the_file_has_it() -> None:
    budgets = {"b": Budget(amount="1")}
    tenants = [MadeTenant(name=name, budgets=budgets) for name in ("acme", "new")]
    shut = MadeTenant(name="shut", budgets=budgets, closed=True)
    project = MadeProject(tenant="acme", name="mine", budgets=budgets)
    made = Made({one.name: one for one in (*tenants, shut)}, {("acme", "mine"): project})
    assert [one.place for one in held_in(config, made)][5:] == [
        "tenants.new.budgets.b",
        "tenants.acme.projects.mine.budgets.b",
    ]


def test_gateways_say_what_is_charged_to_a_period(tmp_path: Path) -> None:
    budget = Budget(amount="100", hard=True)
    held = Held(tenant="acme", name="all", budget=budget)
    standing = Standing(
        holder=held.holder, level="tenant", rule=rule_of(budget), whole=100, left=30, resets_s=60.0
    )
    told = Standings(at_ns=10, limits=(standing,))
    (tmp_path / "gateway.limits.json").write_bytes(msgspec.json.encode(told))
    (tmp_path / "broken.limits.json").write_text("{")
    place = (held.holder, "month", ())
    assert charged_in(tmp_path, 20) == {place: 70}
    assert charged_in(tmp_path, 61 * 10**9) == {}


def test_months_follow_each_other() -> None:
    zone = offset_of(config.prices)
    at = START_NS
    for days in (31, 28, 31, 30):
        month = period("month", at, zone)
        assert month.until_ns - month.since_ns == days * DAY_NS
        at = month.until_ns
