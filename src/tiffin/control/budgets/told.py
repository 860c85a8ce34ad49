"""Budgets as they are told to others: amounts as decimal text, moments with the offset of days."""

from datetime import timezone
from typing import Literal

import msgspec

from tiffin.control.budgets.standing import Stand
from tiffin.control.money.told import units, when

State = Literal["fine", "warned", "exhausted"]
Outlook = Literal["unknown", "lasts", "runs out", "exhausted"]


class ForecastView(msgspec.Struct, frozen=True, kw_only=True):
    """When it runs out if spending goes on as in the last `hours`: `expected`, and between
    `earliest` and `latest` in eight of ten cases; each is empty where the period ends first.

    `by_end` is what will have been spent then. All of it is `unknown` without enough history.
    """

    outlook: Outlook
    hours: int
    expected: str = ""
    earliest: str = ""
    latest: str = ""
    by_end: str = ""


class BudgetView(msgspec.Struct, frozen=True, kw_only=True):
    """A budget from `since` until `until`: `left` of its `amount`, `percent` of it `spent`.

    `reserved` is what the gateway has charged beside that: for requests that run, and for what
    hasn't been read from its journal; empty where it isn't known. `passed` are its thresholds that
    were reached. Amounts are decimal numbers in `currency`.
    """

    tenant: str
    project: str
    key: str
    name: str
    hard: bool
    per: str
    models: tuple[str, ...]
    since: str
    until: str
    currency: str
    amount: str
    spent: str
    reserved: str
    left: str
    percent: float
    passed: tuple[int, ...]
    state: State
    forecast: ForecastView


def view_of(stand: Stand, zone: timezone) -> BudgetView:
    """A budget as it is told."""
    held, budget = stand.held, stand.held.budget
    reserved = stand.reserved_pico
    return BudgetView(
        tenant=held.tenant,
        project=held.project,
        key=held.key,
        name=held.name,
        hard=budget.hard,
        per=budget.per,
        models=budget.models,
        since=when(stand.period.since_ns, zone).isoformat(),
        until=when(stand.period.until_ns, zone).isoformat(),
        currency=stand.currency,
        amount=units(stand.amount_pico),
        spent=units(stand.spent_pico),
        reserved="" if reserved is None else units(reserved),
        left=units(stand.left_pico),
        percent=round(100 * stand.spent_pico / stand.amount_pico, 2),
        passed=stand.passed,
        state=_state(stand),
        forecast=_forecast(stand, zone),
    )


def _state(stand: Stand) -> State:
    if stand.spent_pico >= stand.amount_pico:
        return "exhausted"
    return "warned" if stand.passed else "fine"


def _forecast(stand: Stand, zone: timezone) -> ForecastView:
    told = stand.forecast
    if not told.known:
        return ForecastView(outlook="unknown", hours=stand.hours)
    if stand.spent_pico >= stand.amount_pico:
        return ForecastView(outlook="exhausted", hours=stand.hours, by_end=units(told.by_end_pico))

    def moment(at_ns: int) -> str:
        return when(at_ns, zone).isoformat() if at_ns else ""

    return ForecastView(
        outlook="runs out" if told.expected_ns else "lasts",
        hours=stand.hours,
        expected=moment(told.expected_ns),
        earliest=moment(told.earliest_ns),
        latest=moment(told.latest_ns),
        by_end=units(told.by_end_pico),
    )
