"""What may have to be told: which things happened, and whom each is told, once."""

from collections.abc import Iterable, Iterator, Mapping
from datetime import UTC, datetime, timezone
from hashlib import sha256
from typing import Any, Final

import msgspec

from tiffin.config.alerts import Alert, EventName
from tiffin.control.alerts.marks import Marks, is_new, marked, without_old
from tiffin.control.alerts.outbox import Message
from tiffin.control.budgets.standing import Stand
from tiffin.control.budgets.told import BudgetView, view_of
from tiffin.control.fleet.status import State, Status
from tiffin.control.money.told import units, when
from tiffin.ledger.bill import VARIANCE
from tiffin.ledger.segments import DAY_NS
from tiffin.ledger.statement import Statement
from tiffin.types.anomalies import Anomalies, Oddity

KEEP_MARKS_NS: Final = 70 * DAY_NS
FAILED = frozenset({State.FAILED, State.REFUSED})


class Occasion(msgspec.Struct, frozen=True, kw_only=True):
    """Something that is so since `since_ns` (UTC), told once: `what` of a `subject`.

    `measure` is what the alert's own bound of it is held against. What is nobody's has no `tenant`.
    """

    event: EventName
    subject: str
    since_ns: int
    what: str
    tenant: str = ""
    measure: float = 0.0
    told: Any = None


class Threshold(msgspec.Struct, frozen=True, kw_only=True):
    """That a budget has reached a threshold, in percent."""

    threshold: int
    budget: BudgetView


class Runout(msgspec.Struct, frozen=True, kw_only=True):
    """That a budget runs out before its period ends, if spending goes on as it did."""

    budget: BudgetView


class Variance(msgspec.Struct, frozen=True, kw_only=True):
    """By how much invoices of a time are more than the prices say of a kind of costs."""

    kind: str
    since: str
    until: str
    currency: str
    booked: str
    variance: str


class Failure(msgspec.Struct, frozen=True, kw_only=True):
    """That a model's replica can't run."""

    model: str
    replica: str
    state: str
    since: str
    reason: str


class OddKey(msgspec.Struct, frozen=True, kw_only=True):
    """That a key's requests are odd: `count` of such within `within_s` are. `until` is when its
    throttle ends, empty where it has none."""

    tenant: str
    key: str
    signal: str
    since: str
    count: int
    within_s: float
    until: str = ""


class Letter(msgspec.Struct, frozen=True, kw_only=True):
    """The body of a message."""

    id: str
    type: str
    timestamp: str
    data: Any


def of_budgets(stands: Iterable[Stand], now_ns: int, zone: timezone) -> Iterator[Occasion]:
    """Thresholds that budgets have reached, and budgets that run out."""
    for one in stands:
        view, expected = view_of(one, zone), one.forecast.expected_ns
        place, since = one.held.place, one.period.since_ns
        for threshold in one.passed:
            yield Occasion(
                event="budget.threshold",
                subject=place,
                since_ns=since,
                what=str(threshold),
                tenant=one.held.tenant,
                told=Threshold(threshold=threshold, budget=view),
            )
        if expected and one.spent_pico < one.amount_pico:
            yield Occasion(
                event="budget.runout",
                subject=place,
                since_ns=since,
                what="runout",
                tenant=one.held.tenant,
                measure=(expected - now_ns) / DAY_NS,
                told=Runout(budget=view),
            )


def of_statement(told: Statement, zone: timezone) -> Iterator[Occasion]:
    """Invoices that differ from what the prices say."""
    booked = {line.kind: 0 for line in told.bill}
    for line in told.bill:
        booked[line.kind] += line.amount_pico
    for line in told.bill:
        if line.kind != VARIANCE or not line.amount_pico:
            continue
        known = booked.get(line.name, 0)
        yield Occasion(
            event="ledger.variance",
            subject=f"invoices of {line.name}",
            since_ns=told.since_ns,
            what="variance",
            measure=100 * abs(line.amount_pico) / known if known else float("inf"),
            told=Variance(
                kind=line.name,
                since=when(told.since_ns, zone).isoformat(),
                until=when(told.until_ns, zone).isoformat(),
                currency=told.currency,
                booked=units(known),
                variance=units(line.amount_pico),
            ),
        )


def of_models(status: Status, now_ns: int) -> Iterator[Occasion]:
    """Replicas that failed, or for which there can't be room."""
    for process in status.processes:
        if process.model and process.state in FAILED and process.since_ns:
            yield Occasion(
                event="model.failed",
                subject=f"replica {process.name}",
                since_ns=process.since_ns,
                what="failed",
                measure=(now_ns - process.since_ns) / 1e9,
                told=Failure(
                    model=process.model,
                    replica=process.name,
                    state=process.state.value,
                    since=when(process.since_ns, UTC).isoformat(),
                    reason=process.reason,
                ),
            )


def of_keys(oddities: Iterable[Oddity], says: Anomalies) -> Iterator[Occasion]:
    """Keys whose requests are odd, once as long as they are."""
    for one in oddities:
        threshold = getattr(says, one.signal)
        yield Occasion(
            event="key.anomaly",
            subject=f"key '{one.tenant}/{one.key}' {one.signal}",
            since_ns=one.since_ns,
            what="odd",
            tenant=one.tenant,
            told=OddKey(
                tenant=one.tenant,
                key=one.key,
                signal=one.signal,
                since=when(one.since_ns, UTC).isoformat(),
                count=threshold.count,
                within_s=threshold.within_s,
                until=when(one.until_ns, UTC).isoformat() if one.until_ns else "",
            ),
        )


def messages_of(
    occasions: Iterable[Occasion],
    alerts: Mapping[str, Alert],
    marks: Marks,
    origin: str,
    now_ns: int,
) -> tuple[list[Message], Marks]:
    """The messages that are still to be written, and what is told with them."""
    found = []
    subjects = set()
    for one in occasions:
        id_ = _id(one, origin)
        for name, alert in alerts.items():
            subject = f"{name}: {one.subject}"
            subjects.add(subject)
            if wants(alert, one) and is_new(marks, subject, one.since_ns, one.what):
                marks = marked(marks, subject, one.since_ns, one.what)
                found.append(Message(id=id_, to=name, at_ns=now_ns, body=_body(one, id_, now_ns)))
    return found, without_old(marks, now_ns - KEEP_MARKS_NS, subjects)


def wants(alert: Alert, occasion: Occasion) -> bool:
    """Whether an alert is told of something like this."""
    if occasion.event not in alert.events:
        return False
    if alert.tenants and occasion.tenant not in alert.tenants:
        return False
    match occasion.event:
        case "budget.runout":
            return occasion.measure <= alert.runout_days
        case "ledger.variance":
            return occasion.measure > alert.variance_percent
        case "model.failed":
            return occasion.measure >= alert.failed_after_s
    return True


def _id(one: Occasion, origin: str) -> str:
    content = "\n".join((origin, one.event, one.subject, str(one.since_ns), one.what))
    return f"alr_{sha256(content.encode()).hexdigest()[:32]}"


def _body(one: Occasion, id_: str, now_ns: int) -> str:
    at = datetime.fromtimestamp(now_ns // 1_000_000_000, UTC)
    letter = Letter(id=id_, type=one.event, timestamp=f"{at:%Y-%m-%dT%H:%M:%SZ}", data=one.told)
    return msgspec.json.encode(letter).decode()
