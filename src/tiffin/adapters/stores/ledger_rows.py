"""What the ledger's statements are, as functions on a connection that block."""

import json
from collections.abc import Collection, Iterable, Mapping, Sequence
from sqlite3 import Connection
from typing import Any

from tiffin.ports.ledger import FIELDS, InvoiceLine, Moments, Ran, Span, Sum
from tiffin.ports.ledger import HALF_HOUR_NS as HALF_HOUR_NS
from tiffin.types.money import PICO

MAX_KEYS = 20_000
OTHER = "_other"
DAY_HALF_HOURS = 48

Heading = tuple[str, str, str, str, str, str, int, str, str]
Place = tuple[int, Heading, str, str, str, bool, bool, str]
"""A half hour, a heading, project, tag, target, whether that is paid for each use and whether it
measured, currency."""

Key = tuple[str, str, str, str, str, str, bool, str, bool, str]

SUMMED = 12
"""How many sums there are at a place, in the order of `_SUMS`; the costs come last."""

_SUMS = (
    "requests, prompt_tokens, completion_tokens, cached_tokens, device_ns, reasoning_tokens,"
    " retried_ns, rows, pages, audio_ms"
)
_KEY = "tenant, project, key, tag, model, target, upstream, outcome, measured, currency"
_EMPTY = dict.fromkeys(FIELDS, "")
_VALUES = f"(?{', ?' * 9})"
_FIND_KEY = f"SELECT id FROM ledger_key WHERE ({_KEY}) = {_VALUES}"  # noqa: S608
_ADD_KEY = f"INSERT INTO ledger_key ({_KEY}) VALUES {_VALUES}"  # noqa: S608
_GROWING = ", ".join(f"{name} = {name} + excluded.{name}" for name in _SUMS.split(", "))
_CARRYING = ", ".join(
    f"{name}_units = {name}_units + excluded.{name}_units"
    f" + ({name}_pico + excluded.{name}_pico) / {PICO},"
    f" {name}_pico = ({name}_pico + excluded.{name}_pico) % {PICO}"
    for name in ("cost", "loss")
)
_AMOUNTS = "cost_units, cost_pico, loss_units, loss_pico"
_ENTER = f"""
    INSERT INTO ledger (half_hour, ledger_key, {_SUMS}, {_AMOUNTS})
    VALUES (?{", ?" * (SUMMED + 3)})
    ON CONFLICT (half_hour, ledger_key) DO UPDATE SET {_GROWING}, {_CARRYING}
"""  # noqa: S608 - constants
_SUMMED = f"{_SUMS}, {_AMOUNTS}".split(", ")
_INNER = ", ".join(f"sum({name}) AS {name}" for name in _SUMMED)
_BY_KEY = f"""
    SELECT ledger_key, ? * ((half_hour + ?) / {DAY_HALF_HOURS}) AS day, {_INNER}
    FROM ledger WHERE half_hour >= ? AND half_hour < ? GROUP BY ledger_key, day
"""  # noqa: S608 - constants
_OUTER = ", ".join(f"sum({name})" for name in _SUMMED)
_LIFE = "name, kind, since_ns, until_ns, model, share, slots, device, opaque"
_RAN = f"INSERT OR REPLACE INTO run ({_LIFE}) VALUES (?{', ?' * 8})"  # noqa: S608
_LIVES = f"SELECT {_LIFE} FROM run WHERE since_ns < ? AND until_ns > ?"  # noqa: S608
_FITTED = ("fresh", "cached", "output", "held")
_PRODUCTS = ", ".join(f"sum({a} * {b} / requests)" for a in _FITTED for b in _FITTED)
_MOMENTS = f"""
    SELECT target, count(*), {_PRODUCTS} FROM (
        SELECT target, requests, max(0.0, prompt_tokens - cached_tokens) AS fresh,
               1.0 * cached_tokens AS cached, 1.0 * completion_tokens AS output,
               1.0 * device_ns AS held
        FROM ledger JOIN ledger_key ON ledger_key.id = ledger_key
        WHERE half_hour >= ? AND half_hour < ? AND outcome = 'ok' AND measured AND device_ns > 0
          AND target IN (SELECT value FROM json_each(?))
    ) GROUP BY target
"""  # noqa: S608 - constants
_ADD_LINE = "INSERT INTO invoice_line VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)"
_LINES = """
    SELECT since_ns, until_ns, name, kind, units, pico, currency FROM invoice_line
    WHERE since_ns < ? AND until_ns > ? ORDER BY invoice, line
"""


class Keys:
    """Numbers of what sums are kept for, as used lately.

    Over the bound keys, tags and models share one name; tenants, projects and targets never do.
    """

    def __init__(self, bound: int = MAX_KEYS) -> None:
        self._bound = bound
        self._numbers: dict[Key, int] = {}
        self.clear = self._numbers.clear

    def number(self, db: Connection, key: Key) -> int:
        """The number of a key, which is given one where it has none."""
        number = self._numbers.get(key)
        if number is not None:
            return number
        full = len(self._numbers) >= self._bound
        stored = (*key[:2], OTHER, OTHER, OTHER, *key[5:]) if full else key
        found = db.execute(_FIND_KEY, stored).fetchone()
        number = int(found[0] if found else db.execute(_ADD_KEY, stored).lastrowid or 0)
        if not full:
            self._numbers[key] = number
        return number


def enter(db: Connection, sums: Mapping[Place, Sequence[int]], keys: Keys) -> None:
    """Add to the sums what new accounts come to."""
    db.executemany(_ENTER, [_row(db, keys, place, tally) for place, tally in sums.items()])


def _row(db: Connection, keys: Keys, place: Place, tally: Sequence[int]) -> list[int]:
    number = keys.number(db, _key(place))
    cost, loss = (divmod(amount, PICO) for amount in tally[SUMMED - 2 : SUMMED])
    return [place[0], number, *tally[: SUMMED - 2], *cost, *loss]


def _key(place: Place) -> Key:
    _, heading, project, tag, target, upstream, measured, currency = place
    tenant, name, _, model, _, outcome, *_ = heading
    return (tenant, project, name, tag, model, target, upstream, outcome, measured, currency)


def sums(db: Connection, span: Span, fields: Collection[str], offset_ns: int | None) -> list[Sum]:
    """What closed in a span, by fields, and by day where these have an offset."""
    first, last = span.since_ns // HALF_HOUR_NS, -(-span.until_ns // HALF_HOUR_NS)
    offset = (offset_ns or 0) // HALF_HOUR_NS
    daily = offset_ns is not None
    by = [name for name in _KEY.split(", ") if name not in FIELDS or name in fields]
    columns = ", ".join([*by, "day"])
    query = f"""
        SELECT {columns}, {_OUTER} FROM ({_BY_KEY}) AS sums
        JOIN ledger_key ON ledger_key.id = ledger_key GROUP BY {columns} ORDER BY {columns}
    """  # noqa: S608 - names of our own
    found = db.execute(query, (int(daily), offset, first, last))
    return [_sum(by, row, offset if daily else None) for row in found]


def moments(db: Connection, span: Span, targets: Collection[str]) -> list[Moments]:
    """What fits of these models need to know, of a span."""
    first, last = span.since_ns // HALF_HOUR_NS, -(-span.until_ns // HALF_HOUR_NS)
    size = len(_FITTED)
    return [
        Moments(
            target=target,
            rows=count,
            products=tuple(tuple(found[at : at + size]) for at in range(0, size * size, size)),
        )
        for target, count, *found in db.execute(_MOMENTS, (first, last, json.dumps([*targets])))
    ]


def keep_lives(db: Connection, lives: Iterable[Ran]) -> None:
    """Keep stretches, or let them grow."""
    db.executemany(_RAN, [[getattr(one, name) for name in _LIFE.split(", ")] for one in lives])


def lives(db: Connection, span: Span) -> list[Ran]:
    """The stretches that touch a span."""
    found = db.execute(_LIVES, (span.until_ns, span.since_ns))
    return [
        Ran(**(dict(zip(_LIFE.split(", "), row, strict=True)) | {"opaque": bool(row[-1])}))
        for row in found
    ]


def keep_invoice(db: Connection, name: str, lines: Sequence[InvoiceLine]) -> bool:
    """Keep an invoice once."""
    if db.execute("SELECT 1 FROM invoice_line WHERE invoice = ?", (name,)).fetchone():
        return False
    rows = [
        (
            *(name, number, one.since_ns, one.until_ns, one.name, one.kind),
            *(*divmod(one.amount_pico, PICO), one.currency),
        )
        for number, one in enumerate(lines)
    ]
    db.executemany(_ADD_LINE, rows)
    return True


def invoiced(db: Connection, span: Span) -> list[InvoiceLine]:
    """The lines that touch a span."""
    return [
        InvoiceLine(
            since_ns=since,
            until_ns=until,
            name=name,
            kind=kind,
            amount_pico=units * PICO + pico,
            currency=currency,
        )
        for since, until, name, kind, units, pico, currency in db.execute(
            _LINES, (span.until_ns, span.since_ns)
        )
    ]


def trim(db: Connection, before_ns: int) -> None:
    """Delete what ended before a moment."""
    db.execute("DELETE FROM ledger WHERE half_hour < ?", (before_ns // HALF_HOUR_NS,))
    db.execute("DELETE FROM run WHERE until_ns < ?", (before_ns,))


def _sum(by: Sequence[str], row: Sequence[Any], offset: int | None) -> Sum:
    """A row as a value; with the offset of days, where these were told apart."""
    key, day, counts = row[: len(by)], row[len(by)], row[len(by) + 1 :]
    cost_units, cost, loss_units, loss = counts[SUMMED - 2 :]
    told: dict[str, Any] = dict(zip(by, key, strict=True))
    told.update(zip(_SUMMED[: SUMMED - 2], counts, strict=False))
    told.update({name: bool(told[name]) for name in ("measured", "upstream")})
    return Sum(
        **(_EMPTY | told),
        cost_pico=cost_units * PICO + cost,
        loss_pico=loss_units * PICO + loss,
        day_ns=0 if offset is None else (day * DAY_HALF_HOURS - offset) * HALF_HOUR_NS,
    )
