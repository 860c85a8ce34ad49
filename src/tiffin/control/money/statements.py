"""Statements of what was spent: the price book's, over the ledger's sums, lives and invoices."""

import asyncio
from collections.abc import Callable, Sequence

import msgspec

from tiffin.config.prices import Prices, offset_of, seconds_east
from tiffin.control.money.span import asked_span
from tiffin.control.money.told import Rate, StatementPage, page_of, rate_of
from tiffin.errors import SchemaViolation
from tiffin.ledger.allocate import allocate
from tiffin.ledger.bill import by_kind, credit_slices, credited, gross, variances
from tiffin.ledger.book import Book
from tiffin.ledger.fit import fits_of
from tiffin.ledger.focus import read_invoice
from tiffin.ledger.segments import DAY_NS, SECOND_NS
from tiffin.ledger.statement import GROUPS, Only, Statement, charged, statement
from tiffin.ports.clock import Clock
from tiffin.ports.ledger import FIELDS, InvoiceLine, Ledger, Moments, Ran, Span, Sum
from tiffin.types.snapshot import Snapshot

MAX_NAME = 128
LEARNT_NS = 30 * DAY_NS
"""So long until a statement's end is looked at for what tokens take."""


class Ask(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Which statement: from a day or moment `since` (empty: this month's begin) until `until`
    (empty: now), in rows `by` groups with commas between, only of whom the rest names."""

    since: str = ""
    until: str = ""
    by: str = "tenant,line"
    tenant: str = ""
    project: str = ""
    tag: str = ""
    model: str = ""


class Taken(msgspec.Struct, frozen=True, kw_only=True):
    """An invoice that was read: how many lines it has, of which time; `new` the first time."""

    invoice: str
    lines: int
    since_ns: int
    until_ns: int
    new: bool


class Statements:
    """Makes statements; nothing here is changed but by an invoice that comes in."""

    def __init__(
        self,
        ledger: Ledger,
        prices: Callable[[], Prices],
        snapshot: Callable[[], Snapshot | None],
        clock: Clock,
    ) -> None:
        self._ledger = ledger
        self._prices = prices
        self._snapshot = snapshot
        self._clock = clock

    async def statement(self, ask: Ask) -> Statement:
        """What was asked for; raises `SchemaViolation` for what can't be, by its field."""
        book = Book(self._prices())
        span = asked_span(ask.since, ask.until, book, self._clock.now_ns())
        by = [name for name in ask.by.split(",") if name]
        if unknown := [name for name in by if name not in GROUPS]:
            raise SchemaViolation(
                f"there is no group '{unknown[0][:40]}'; there are {', '.join(GROUPS)}", param="by"
            )
        # As little as is needed is told apart, since a month has millions of requests.
        fields = {*by, *(name for name in FIELDS if getattr(ask, name, ""))}
        daily = "day" in by or _changes(book, span)
        offset_ns = seconds_east(self._prices()) * SECOND_NS
        sums = await self._ledger.sums(span, fields=fields, daily=daily, offset_ns=offset_ns)
        lives = await self._ledger.lives(span)
        invoiced = await self._ledger.invoiced(span)
        earlier = [
            (part, await self._ledger.sums(part, fields=()), await self._ledger.lives(part))
            for part in credit_slices(book, span)
        ]
        opaque = sorted({one.model for one in lives if one.opaque})
        learnt = Span(max(0, span.until_ns - LEARNT_NS), span.until_ns)
        moments = await self._ledger.moments(learnt, opaque) if opaque else []
        only = Only(tenant=ask.tenant, project=ask.project, tag=ask.tag, model=ask.model)
        try:
            return await asyncio.to_thread(
                _made, book, span, _Found(sums, lives, invoiced, earlier, moments), by, only
            )
        except ValueError as cause:
            raise SchemaViolation(str(cause)) from cause

    async def page(self, ask: Ask) -> StatementPage:
        """A statement as it is told; raises as `statement` does."""
        return page_of(await self.statement(ask), offset_of(self._prices()))

    def rates(self) -> list[Rate]:
        """What use of every model costs now."""
        snapshot = self._snapshot()
        targets = (
            {t.model: t for plan in snapshot.plans.values() for t in plan.targets}
            if (snapshot)
            else {}
        )
        return [rate_of(name, one.kind, one.price) for name, one in sorted(targets.items())]

    async def take(self, name: str, text: str) -> Taken:
        """Keep an invoice by its name; one of that name is kept once.

        Raises `SchemaViolation` for what is none, or is in a currency that has no rate.
        """
        if not name or len(name) > MAX_NAME or not name.isprintable():
            raise SchemaViolation(f"an invoice has a name of 1 to {MAX_NAME} signs", param="name")
        book = Book(self._prices())
        try:
            lines = await asyncio.to_thread(read_invoice, text)
            for one in {(one.currency, one.since_ns) for one in lines}:
                book.worth(*one)
        except ValueError as cause:
            raise SchemaViolation(f"the invoice can't be taken: {cause}") from cause
        if not lines:
            raise SchemaViolation("the invoice can't be taken: nothing on it costs anything")
        return Taken(
            invoice=name,
            lines=len(lines),
            since_ns=min(one.since_ns for one in lines),
            until_ns=max(one.until_ns for one in lines),
            new=await self._ledger.take_invoice(name, lines),
        )


class _Found(msgspec.Struct, frozen=True):
    sums: list[Sum]
    lives: list[Ran]
    invoiced: list[InvoiceLine]
    earlier: list[tuple[Span, list[Sum], list[Ran]]]
    moments: list[Moments]


def _made(book: Book, span: Span, found: _Found, by: Sequence[str], only: Only) -> Statement:
    """A statement; with a thread of its own, as a large one takes a second or two."""
    lines = gross(book, span, found.sums, found.lives)
    costs = [(part, by_kind(gross(book, part, s, lives))) for part, s, lives in found.earlier]
    bill = [
        *lines,
        *credited(book, span, costs),
        *variances(lines, found.invoiced, book, span),
    ]
    fits = fits_of(found.moments)
    portions = allocate(bill, found.sums, found.lives, book, span, fits)
    told = statement(book, span, bill, portions, by, only)
    plans = charged(book, span, found.sums, portions)
    return msgspec.structs.replace(
        told,
        plans=[one for one in plans if only.tenant in ("", one.tenant)],
        fits=[*fits.values()],
    )


def _changes(book: Book, span: Span) -> bool:
    """Whether somebody's plan changes meanwhile, so that days must be told apart."""
    return any(
        span.since_ns < moment_ns_ < span.until_ns
        for held in book.plans
        for moment_ns_ in (held.since_ns, held.until_ns)
    )
