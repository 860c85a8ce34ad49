"""The statement of a time: what it cost, for whom and for what, and what a request comes to."""

from collections.abc import Collection, Iterable, Sequence
from fractions import Fraction
from math import floor
from typing import Final

import msgspec

from tiffin.config.prices import PricePlan
from tiffin.ledger.allocate import Portion
from tiffin.ledger.bill import PART_OF, PARTS, BillLine
from tiffin.ledger.book import MILLION, Book, Held
from tiffin.ledger.fit import Fit
from tiffin.ledger.segments import amount
from tiffin.ports.ledger import Span, Sum
from tiffin.types.money import PICO, shown

GROUPS: Final = ("line", "tenant", "project", "key", "tag", "model", "day")
MAX_ROWS: Final = 10_000
OTHERS: Final = "others"
_FIELDS: Final = {"day": "day_ns"}
_COUNTS: Final = (
    "requests",
    "successful",
    "prompt_tokens",
    "completion_tokens",
    "device_ns",
    "marginal_pico",
    "measured_pico",
    "allocated_pico",
)


class Only(msgspec.Struct, frozen=True, kw_only=True):
    """Whose part of a statement is wanted; empty is everybody's."""

    tenant: str = ""
    project: str = ""
    tag: str = ""
    model: str = ""


class PerRequest(msgspec.Struct, frozen=True, kw_only=True):
    """(compute + storage + network + platform + operations) / successful requests, in pico-units.

    `each_pico` is rounded half up; 0 where nothing was successful. `formula` is the same in words.
    """

    compute_pico: int = 0
    storage_pico: int = 0
    network_pico: int = 0
    platform_pico: int = 0
    operations_pico: int = 0
    successful: int = 0
    each_pico: int = 0
    formula: str = ""


class PlanLine(msgspec.Struct, frozen=True, kw_only=True):
    """What a tenant is charged by its plan, and what it costs; `profitable` where it's no less."""

    tenant: str
    charged_pico: int
    cost_pico: int
    profitable: bool


class Statement(msgspec.Struct, frozen=True, kw_only=True):
    """`rows` of everybody sum to `total_pico`, the bill, to the last unit; amounts are pico-units.

    `shown_pico` is what the rows come to that were asked for. `priced` is whether anything has a
    price at all. `fits` are by what the time of engines was shared whose inside isn't seen.
    """

    currency: str
    priced: bool
    since_ns: int
    until_ns: int
    by: tuple[str, ...]
    rows: list[Portion]
    shown_pico: int
    total_pico: int
    bill: list[BillLine]
    per_request: PerRequest
    plans: list[PlanLine] = []
    fits: list[Fit] = []


def statement(
    book: Book,
    span: Span,
    lines: Sequence[BillLine],
    portions: Sequence[Portion],
    by: Sequence[str],
    only: Only,
) -> Statement:
    """The portions of a bill, grouped and chosen; raises `ValueError` for an unknown group."""
    for name in by:
        if name not in GROUPS:
            raise ValueError(f"there is no group '{name}'; there are {', '.join(GROUPS)}")
    rows = _bounded(grouped([one for one in portions if _is_wanted(one, only)], by))
    return Statement(
        currency=book.currency,
        priced=book.priced,
        since_ns=span.since_ns,
        until_ns=span.until_ns,
        by=tuple(by),
        rows=rows,
        shown_pico=sum(row.amount_pico for row in rows),
        total_pico=sum(line.amount_pico for line in lines),
        bill=list(lines),
        per_request=per_request(book, lines, portions),
    )


def grouped(portions: Iterable[Portion], by: Collection[str]) -> list[Portion]:
    """Portions that agree in all of these groups as one, the costliest first."""
    fields = [_FIELDS.get(name, name) for name in by]
    sums: dict[tuple[str | int, ...], list[int]] = {}
    for one in portions:
        key = tuple([getattr(one, name) for name in fields])
        tally = sums.get(key)
        if tally is None:
            tally = sums[key] = [0] * len(_COUNTS)
        for at, name in enumerate(_COUNTS):
            tally[at] += getattr(one, name)
    rows = [
        msgspec.convert(
            {"line": "", **dict(zip(fields, key, strict=True))}
            | dict(zip(_COUNTS, tally, strict=True)),
            Portion,
        )
        for key, tally in sums.items()
    ]
    return sorted(rows, key=lambda row: (row.day_ns, -row.amount_pico, row.line, row.tenant))


def _bounded(rows: list[Portion]) -> list[Portion]:
    """No more rows than anybody reads: the cheapest as one."""
    if len(rows) <= MAX_ROWS:
        return rows
    rows.sort(key=lambda row: -row.amount_pico)
    rest = grouped(rows[MAX_ROWS:], ())
    return [*rows[:MAX_ROWS], *(msgspec.structs.replace(row, line=OTHERS) for row in rest)]


def per_request(book: Book, lines: Iterable[BillLine], portions: Iterable[Portion]) -> PerRequest:
    """What a successful request comes to, by the bill before credits and variances."""
    parts = dict.fromkeys(PARTS, 0)
    for line in lines:
        if part := PART_OF.get(line.kind):
            parts[part] += line.amount_pico
    successful = sum(one.successful for one in portions)
    total = sum(parts.values())
    each = floor(Fraction(total, successful) + Fraction(1, 2)) if successful else 0
    told = " + ".join(f"{name} {shown(cost, book.currency)}" for name, cost in parts.items())
    ending = shown(each, book.currency) if successful else "nothing to divide by"
    return PerRequest(
        compute_pico=parts["compute"],
        storage_pico=parts["storage"],
        network_pico=parts["network"],
        platform_pico=parts["platform"],
        operations_pico=parts["operations"],
        successful=successful,
        each_pico=each,
        formula=f"({told}) / {successful} successful requests = {ending}",
    )


def charged(
    book: Book, span: Span, sums: Sequence[Sum], portions: Iterable[Portion]
) -> list[PlanLine]:
    """What tenants with a plan are charged, beside what they cost, waste of theirs included."""
    costs: dict[str, int] = {}
    for one in portions:
        costs[one.tenant] = costs.get(one.tenant, 0) + one.amount_pico
    charges: dict[str, int] = {}
    for held in book.plans:
        if held.since_ns >= span.until_ns or held.until_ns <= span.since_ns:
            continue
        tenant = held.entry.tenant
        mine = [one for one in sums if one.tenant == tenant and _is_in(one, held)]
        charges[tenant] = charges.get(tenant, 0) + _charge(book, span, held, mine)
    return [
        PlanLine(
            tenant=tenant,
            charged_pico=charge,
            cost_pico=costs.get(tenant, 0),
            profitable=charge >= costs.get(tenant, 0),
        )
        for tenant, charge in sorted(charges.items())
    ]


def _charge(book: Book, span: Span, held: Held[PricePlan], mine: Iterable[Sum]) -> int:
    plan = held.entry
    worth = book.worth(plan.currency, max(held.since_ns, span.since_ns))
    used = Fraction(0)
    for one in mine:
        used += Fraction(plan.markup) * book.converted(one.cost_pico, one.currency, span.since_ns)
        if one.outcome in ("ok", "cancelled"):
            tokens = Fraction(plan.input) * one.prompt_tokens
            tokens += Fraction(plan.output) * one.completion_tokens
            each = Fraction(plan.request) * one.requests if one.outcome == "ok" else 0
            used += (tokens / MILLION + each) * PICO * worth
    return amount(book.monthly(held, span), span) + floor(used + Fraction(1, 2))


def _is_in(one: Sum, held: Held[PricePlan]) -> bool:
    """Whether a day's requests fall under a plan; without days all of a span do."""
    return not one.day_ns or held.since_ns <= one.day_ns < held.until_ns


def _is_wanted(one: Portion, only: Only) -> bool:
    return all(
        not wanted or getattr(one, name) == wanted
        for name, wanted in msgspec.structs.asdict(only).items()
    )
