"""What is told of budgets, invoices and models, to whom, and once."""

from datetime import UTC
from typing import Any

import msgspec
import pytest

from tiffin.config.alerts import Alert
from tiffin.control.alerts.marks import Marks
from tiffin.control.alerts.occasions import (
    Occasion,
    messages_of,
    of_budgets,
    of_keys,
    of_models,
    of_statement,
)
from tiffin.control.alerts.outbox import Message
from tiffin.control.budgets.forecast import Forecast
from tiffin.control.budgets.held import Held
from tiffin.control.budgets.standing import Stand
from tiffin.control.fleet.status import ProcessStatus, State, Status
from tiffin.ledger.bill import BillLine
from tiffin.ledger.segments import DAY_NS
from tiffin.ledger.statement import PerRequest, Statement
from tiffin.ports.ledger import Span
from tiffin.types.anomalies import Anomalies, Oddity, Signal
from tiffin.types.budgets import Budget

NOW_NS = 20_454 * DAY_NS
MONTH = Span(NOW_NS - 10 * DAY_NS, NOW_NS + 20 * DAY_NS)


def alert(**more: Any) -> Alert:
    return Alert(url="https://example.com/", key_env="K", **more)


def stand(spent: int, days_left: float = 0.0, tenant: str = "acme") -> Stand:
    expected = int(NOW_NS + days_left * DAY_NS) if days_left else 0
    return Stand(
        held=Held(tenant=tenant, name="all", budget=Budget(amount="100")),
        period=MONTH,
        currency="INR",
        amount_pico=100,
        spent_pico=spent,
        reserved_pico=None,
        hours=10,
        forecast=Forecast(known=True, expected_ns=expected),
    )


def told(
    occasions: list[Occasion], marks: Marks | None = None, **alerts: Alert
) -> tuple[list[Message], Marks]:
    return messages_of(occasions, alerts, marks or {}, "here", NOW_NS)


def budgets(*stands: Stand) -> list[Occasion]:
    return list(of_budgets(stands, NOW_NS, UTC))


def test_everybody_is_told_of_each_threshold_once() -> None:
    found, marks = told(budgets(stand(85)), a=alert(), b=alert())
    assert [one.to for one in found] == ["a", "b", "a", "b"]
    assert len({one.id for one in found}) == 2
    again, marks = told(budgets(stand(99)), marks, a=alert(), b=alert())
    assert again == []
    last, _ = told(budgets(stand(100)), marks, a=alert())
    body = msgspec.json.decode(last[0].body)
    assert (body["type"], body["id"], body["data"]["threshold"]) == (
        "budget.threshold",
        last[0].id,
        100,
    )


def test_who_is_new_is_told_what_is_so() -> None:
    _, marks = told(budgets(stand(85)), a=alert())
    found, _ = told(budgets(stand(85)), marks, a=alert(), b=alert())
    assert [one.to for one in found] == ["b", "b"]


def test_a_tenants_own_alert_hears_of_nobody_else() -> None:
    both = budgets(stand(60), stand(60, tenant="other"))
    found, _ = told(both, mine=alert(tenants=("other",)))
    assert len(found) == 1
    assert msgspec.json.decode(found[0].body)["data"]["budget"]["tenant"] == "other"


@pytest.mark.parametrize(("days", "within", "count"), [(2, 3, 1), (2, 1, 0)])
def test_a_budget_that_runs_out_soon_is_told(days: float, within: float, count: int) -> None:
    only = alert(events=("budget.runout",), runout_days=within)
    found, marks = told(budgets(stand(40, days)), a=only)
    assert len(found) == count
    assert told(budgets(stand(41, days)), marks, a=only)[0] == []


def test_invoices_that_differ_are_told() -> None:
    statement = Statement(
        currency="INR",
        priced=True,
        since_ns=MONTH.since_ns,
        until_ns=MONTH.until_ns,
        by=("line",),
        rows=[],
        shown_pico=0,
        total_pico=0,
        bill=[
            BillLine(kind="models", name="cloud", amount_pico=100),
            BillLine(kind="variance", name="models", amount_pico=-5),
        ],
        per_request=PerRequest(),
    )
    occasions = list(of_statement(statement, UTC))
    assert told(occasions, a=alert(variance_percent=5.0))[0] == []
    [found] = told(occasions, a=alert(variance_percent=4.9))[0]
    told_ = msgspec.json.decode(found.body)["data"]
    assert (told_["kind"], told_["booked"], told_["variance"]) == (
        "models",
        "0.0000000001",
        "-0.000000000005",
    )


def test_models_that_failed_for_long_are_told() -> None:
    failed = ProcessStatus(
        name="r-m-1", role="replica", model="m", state=State.FAILED, since_ns=NOW_NS - 400 * 10**9
    )
    ready = ProcessStatus(name="r-n-1", role="replica", model="n", state=State.READY, since_ns=1)
    status = Status(pid=1, address="", started_ns=1, processes=(failed, ready))
    occasions = list(of_models(status, NOW_NS))
    assert len(told(occasions, a=alert(failed_after_s=400))[0]) == 1
    assert told(occasions, mine=alert(tenants=("acme",)))[0] == []
    assert told(occasions, a=alert(failed_after_s=401))[0] == []


def odd(signal: Signal, since_ns: int = NOW_NS, count: int = 1) -> list[Occasion]:
    one = Oddity(tenant="acme", key="web", signal=signal, since_ns=since_ns, count=count)
    return list(of_keys([one], Anomalies(action="alert")))


def test_an_odd_key_is_told_once_while_it_lasts_each_signal_for_itself() -> None:
    first, marks = told(odd("repetition"), ops=alert())
    again, marks = told(odd("repetition", count=9), marks, ops=alert())
    other, marks = told(odd("growth"), marks, ops=alert())
    later, _ = told(odd("repetition", NOW_NS + DAY_NS), marks, ops=alert())
    assert (len(first), len(again), len(other), len(later)) == (1, 0, 1, 1)
    data = msgspec.json.decode(first[0].body)["data"]
    assert (data["key"], data["signal"], data["count"]) == ("web", "repetition", 60)


def test_an_odd_key_is_told_to_who_hears_of_its_tenant() -> None:
    messages, _ = told(
        odd("growth"), acme=alert(tenants=("acme",)), other=alert(tenants=("other",))
    )
    assert [one.to for one in messages] == ["acme"]
