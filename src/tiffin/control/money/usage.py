"""What was used in a time, from the ledger's sums: by tenant, project, key, model and day."""

import asyncio
from collections.abc import Callable, Iterable, Sequence
from typing import Final

import msgspec

from tiffin.config.prices import Prices, offset_of, seconds_east
from tiffin.control.money.span import asked_span
from tiffin.control.money.told import units, when
from tiffin.errors import SchemaViolation, Unavailable
from tiffin.ledger.book import Book
from tiffin.ledger.segments import SECOND_NS
from tiffin.ports.clock import Clock
from tiffin.ports.ledger import FIELDS, Ledger, Sum

GROUPS: Final = ("tenant", "project", "key", "model", "day")
MAX_ROWS: Final = 10_000
_COUNTS: Final = (
    "requests",
    "successful",
    "prompt_tokens",
    "completion_tokens",
    "cached_tokens",
    "rows",
    "pages",
    "audio_ms",
    "cost_pico",
)


class UsageAsk(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Which usage: from a day or moment `since` (empty: this month's begin) until `until` (empty:
    now), in rows `by` groups with commas between, only of whom the rest names."""

    since: str = ""
    until: str = ""
    by: str = "tenant,model"
    tenant: str = ""
    project: str = ""
    key: str = ""
    model: str = ""


class UsageRow(msgspec.Struct, frozen=True, kw_only=True):
    """What somebody used: `cost` is what answers were told to cost, in the page's currency.

    `successful` are requests that ended as they should. What wasn't asked to be told apart is
    empty.
    """

    tenant: str
    project: str
    key: str
    model: str
    day: str
    requests: int
    successful: int
    prompt_tokens: int
    completion_tokens: int
    cached_tokens: int
    rows: int
    pages: int
    audio_s: float
    cost: str


class UsagePage(msgspec.Struct, frozen=True, kw_only=True):
    """What was used from `since` until `until`: the costliest first, day by day where days are told
    apart. `has_more` is whether there are rows beyond those that are shown."""

    currency: str
    since: str
    until: str
    by: tuple[str, ...]
    data: list[UsageRow]
    has_more: bool


class UsageBook:
    """Tells what was used."""

    def __init__(self, ledger: Ledger, prices: Callable[[], Prices], clock: Clock) -> None:
        self._ledger = ledger
        self._prices = prices
        self._clock = clock

    async def page(self, ask: UsageAsk) -> UsagePage:
        """What was asked for; raises `SchemaViolation` for what can't be, by its field."""
        prices = self._prices()
        book, zone = Book(prices), offset_of(prices)
        by = tuple(name for name in ask.by.split(",") if name)
        if unknown := [name for name in by if name not in GROUPS]:
            raise SchemaViolation(
                f"there is no group '{unknown[0][:40]}'; there are {', '.join(GROUPS)}", param="by"
            )
        span = asked_span(ask.since, ask.until, book, self._clock.now_ns())
        offset_ns = seconds_east(prices) * SECOND_NS
        fields = {*by, *(name for name in FIELDS if getattr(ask, name, ""))}
        sums = await self._ledger.sums(span, fields=fields, daily="day" in by, offset_ns=offset_ns)
        wanted = [one for one in sums if _is_wanted(one, ask)]
        try:
            rows = await asyncio.to_thread(rows_of, wanted, by, book, span.since_ns)
        except ValueError as cause:
            raise Unavailable(f"usage can't be counted: {cause}") from cause
        return UsagePage(
            currency=book.currency,
            since=when(span.since_ns, zone).isoformat(),
            until=when(span.until_ns, zone).isoformat(),
            by=by,
            data=rows[:MAX_ROWS],
            has_more=len(rows) > MAX_ROWS,
        )


def rows_of(sums: Iterable[Sum], by: Sequence[str], book: Book, since_ns: int) -> list[UsageRow]:
    """Sums that agree in all of these groups as one row; raises `ValueError` without a rate."""
    tallies: dict[tuple[str, ...], list[int]] = {}
    for one in sums:
        day = when(one.day_ns, book.zone).date().isoformat() if one.day_ns else ""
        names = {name: getattr(one, name) for name in GROUPS[:-1]} | {"day": day}
        place = tuple(names[name] if name in by else "" for name in GROUPS)
        counts = {name: getattr(one, name, 0) for name in _COUNTS}
        counts["successful"] = one.requests if one.outcome == "ok" else 0
        counts["cost_pico"] = book.converted(one.cost_pico, one.currency, one.day_ns or since_ns)
        tally = tallies.setdefault(place, [0] * len(_COUNTS))
        for at, name in enumerate(_COUNTS):
            tally[at] += counts[name]
    order = sorted(tallies.items(), key=lambda item: (item[0][-1], -item[1][-1], item[0]))
    return [_row(place, tally) for place, tally in order]


def _row(place: Sequence[str], tally: Sequence[int]) -> UsageRow:
    told: dict[str, object] = dict(zip(GROUPS, place, strict=True))
    told.update(zip(_COUNTS, tally, strict=True))
    *_, audio_ms, cost = tally
    told |= {"audio_s": round(audio_ms / 1000, 3), "cost": units(cost)}
    return msgspec.convert(told, UsageRow)


def _is_wanted(one: Sum, ask: UsageAsk) -> bool:
    return all(getattr(ask, name) in ("", getattr(one, name)) for name in GROUPS[:-1])
