"""Statements and prices as they are told to others: amounts as decimal text, days as dates."""

from datetime import UTC, datetime, timedelta, timezone
from typing import Final

import msgspec

from tiffin.ledger.allocate import Portion
from tiffin.ledger.segments import SECOND_NS
from tiffin.ledger.statement import Statement
from tiffin.types.money import shown
from tiffin.types.price import Price

MILLION: Final = 10**6


class Row(msgspec.Struct, frozen=True, kw_only=True):
    """A part of the bill, and whose it is: `amount` is `measured` and `allocated` together.

    `marginal` is what its requests cost as they were told then. What wasn't asked to be told apart
    is empty. Amounts are decimal numbers in the statement's currency.
    """

    line: str
    tenant: str
    project: str
    key: str
    tag: str
    model: str
    day: str
    requests: int
    successful: int
    prompt_tokens: int
    completion_tokens: int
    device_s: float
    marginal: str
    measured: str
    allocated: str
    amount: str


class Item(msgspec.Struct, frozen=True, kw_only=True):
    """A line of the bill."""

    kind: str
    name: str
    amount: str


class Each(msgspec.Struct, frozen=True, kw_only=True):
    """What a successful request comes to, with everything, and the formula that says so."""

    amount: str
    successful: int
    formula: str


class Charged(msgspec.Struct, frozen=True, kw_only=True):
    """What a tenant's plan brings, and what the tenant costs."""

    tenant: str
    charged: str
    cost: str
    profitable: bool


class FitPage(msgspec.Struct, frozen=True, kw_only=True):
    """What a token of a `model` takes of a slot's time, in microseconds, as it was fitted to `rows`
    of sums: one of the prompt that is read (`prefill`), one that was `cached`, one that is made
    (`decode`). `error` is the share of the time that this doesn't explain."""

    model: str
    prefill_us: float
    cached_us: float
    decode_us: float
    error: float
    rows: int


class StatementPage(msgspec.Struct, frozen=True, kw_only=True):
    """What was spent from `since` until `until`: all rows sum to `total`, which is the `bill`.

    `shown` is what those rows come to that were asked for. Without anything `priced` it is nothing.
    """

    currency: str
    priced: bool
    since: str
    until: str
    by: tuple[str, ...]
    data: list[Row]
    shown: str
    total: str
    bill: list[Item]
    per_request: Each
    plans: list[Charged]
    fits: list[FitPage]


class Rate(msgspec.Struct, frozen=True, kw_only=True):
    """What use of a model costs now: of a million tokens, of each other unit one.

    Everything is empty where nothing has a price.
    """

    model: str
    kind: str
    currency: str = ""
    input: str = ""
    cached: str = ""
    output: str = ""
    reasoning: str = ""
    device_second: str = ""
    request: str = ""
    row: str = ""
    page: str = ""
    audio_second: str = ""


def page_of(told: Statement, zone: timezone) -> StatementPage:
    """A statement as it is told."""
    return StatementPage(
        currency=told.currency,
        priced=told.priced,
        since=when(told.since_ns, zone).isoformat(),
        until=when(told.until_ns, zone).isoformat(),
        by=told.by,
        data=[_row(one, zone) for one in told.rows],
        shown=units(told.shown_pico),
        total=units(told.total_pico),
        bill=[
            Item(kind=line.kind, name=line.name, amount=units(line.amount_pico))
            for line in told.bill
        ],
        per_request=Each(
            amount=units(told.per_request.each_pico),
            successful=told.per_request.successful,
            formula=told.per_request.formula,
        ),
        plans=[
            Charged(
                tenant=one.tenant,
                charged=units(one.charged_pico),
                cost=units(one.cost_pico),
                profitable=one.profitable,
            )
            for one in told.plans
        ],
        fits=[
            FitPage(
                model=one.model,
                prefill_us=one.prefill_ps / MILLION,
                cached_us=one.cached_ps / MILLION,
                decode_us=one.decode_ps / MILLION,
                error=round(one.error, 4),
                rows=one.rows,
            )
            for one in told.fits
        ],
    )


def rate_of(model: str, kind: str, price: Price | None) -> Rate:
    """A price as it is told."""
    if price is None:
        return Rate(model=model, kind=kind)
    reasoning = price.output_token if price.reasoning_token is None else price.reasoning_token
    return Rate(
        model=model,
        kind=kind,
        currency=price.currency,
        input=units(price.input_token * MILLION),
        cached=units(price.cached_token * MILLION),
        output=units(price.output_token * MILLION),
        reasoning=units(reasoning * MILLION),
        device_second=units(price.device_second),
        request=units(price.request),
        row=units(price.row),
        page=units(price.page),
        audio_second=units(price.audio_second),
    )


def units(amount_pico: int) -> str:
    """An amount as a decimal number, exactly."""
    return shown(amount_pico, "").rstrip()


def _row(one: Portion, zone: timezone) -> Row:
    return Row(
        line=one.line,
        tenant=one.tenant,
        project=one.project,
        key=one.key,
        tag=one.tag,
        model=one.model,
        day=when(one.day_ns, zone).date().isoformat() if one.day_ns else "",
        requests=one.requests,
        successful=one.successful,
        prompt_tokens=one.prompt_tokens,
        completion_tokens=one.completion_tokens,
        device_s=round(one.device_ns / SECOND_NS, 3),
        marginal=units(one.marginal_pico),
        measured=units(one.measured_pico),
        allocated=units(one.allocated_pico),
        amount=units(one.amount_pico),
    )


def when(at_ns: int, zone: timezone) -> datetime:
    """A moment as it is told."""
    return datetime(1970, 1, 1, tzinfo=UTC).astimezone(zone) + timedelta(seconds=at_ns // SECOND_NS)
