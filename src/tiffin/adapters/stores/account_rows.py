"""What the accounts' statements are, as functions on a connection that block."""

import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from sqlite3 import Connection
from typing import Any

import msgspec

from tiffin.adapters.stores.ledger_rows import HALF_HOUR_NS, SUMMED, Keys, Place, enter
from tiffin.ports.accounts import Batch, Closing, Entry, Opening, Position, Query, Total
from tiffin.types.usage import Usage

MAX_HEADINGS = 10_000
OTHER = "_other"
MAX_QUANTITY = 2**50

Heading = tuple[str, str, str, str, str, str, int, str, str]
Pair = tuple[Opening, Closing]

_HEADING = "tenant, key, endpoint, model, revision, outcome, status, error, cache"
_FIND_HEADING = f"SELECT id FROM heading WHERE ({_HEADING}) = (?, ?, ?, ?, ?, ?, ?, ?, ?)"  # noqa: S608
_ADD_HEADING = f"INSERT INTO heading ({_HEADING}) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)"  # noqa: S608
_COLUMNS = 32
_ENTRY = f"(NULL{', ?' * _COLUMNS})"
_ADD_ENTRY = f"""
    INSERT INTO account (
        seq, id, heading, opened_ns, closed_ns, duration_ns, ttft_ns, queue_ns, device_ns,
        prompt_tokens, completion_tokens, cached_tokens, measured, snapshot, trace_id, client_id,
        attempts, prepare_ns, rows, pages, pixels, audio_ms, reasoning_tokens, retried_ns,
        cost_pico, loss_pico, currency, project, end_user, tag, target, upstream,
        kept_inputs
    ) VALUES {_ENTRY}
"""  # noqa: S608 - a constant
_AT_ONCE = 32
_ADD_ENTRIES = _ADD_ENTRY + f", {_ENTRY}" * (_AT_ONCE - 1)
_ADD_TOTAL = """
    INSERT INTO total VALUES (?, ?, ?, ?, ?, ?) ON CONFLICT (heading) DO UPDATE SET
        requests = requests + excluded.requests,
        prompt_tokens = prompt_tokens + excluded.prompt_tokens,
        completion_tokens = completion_tokens + excluded.completion_tokens,
        cached_tokens = cached_tokens + excluded.cached_tokens,
        device_ns = device_ns + excluded.device_ns
"""
_ADD_OPENING = f"INSERT OR IGNORE INTO opening VALUES (?{', ?' * 10})"  # noqa: S608 - a constant
_MOVE = "INSERT OR REPLACE INTO position VALUES (?, ?, ?)"
_OPENINGS = """
    SELECT id, opened_ns, tenant, key, endpoint, trace_id, client_id, project, end_user, tag
    FROM opening WHERE
"""
_ONE_OF = "id IN (SELECT value FROM json_each(?))"
_ENTRIES = """
    SELECT seq, account.id, tenant, key, endpoint, model, revision, outcome, status, error, cache,
           kept_inputs, opened_ns, closed_ns, duration_ns, ttft_ns, queue_ns, device_ns,
           prompt_tokens, completion_tokens, cached_tokens, reasoning_tokens, prepare_ns, rows,
           pages, pixels, audio_ms, measured, snapshot, trace_id, client_id, project, end_user,
           tag, cost_pico, loss_pico, currency, retried_ns, target, upstream, attempts
    FROM account JOIN heading ON heading.id = account.heading
"""
_EQUAL = (
    *("tenant", "key", "endpoint", "model", "outcome", "error"),
    *("project", "end_user", "tag", "trace_id"),
)
_TOTALS = """
    SELECT tenant, model, outcome, sum(requests), sum(prompt_tokens), sum(completion_tokens),
           sum(cached_tokens), sum(device_ns)
    FROM total JOIN heading ON heading.id = total.heading
    GROUP BY tenant, model, outcome ORDER BY tenant, model, outcome
"""


class Headings:
    """Numbers of headings that were used lately; over the bound, models share one name."""

    def __init__(self, bound: int = MAX_HEADINGS) -> None:
        self._bound = bound
        self._numbers: dict[Heading, int] = {}
        self.get = self._numbers.get
        self.keys = Keys()

    def clear(self) -> None:
        """Forget all, as what was added last may be gone."""
        self._numbers.clear()
        self.keys.clear()

    def add(self, db: Connection, heading: Heading) -> int:
        """Find the number of a heading, or give it one."""
        full = len(self._numbers) >= self._bound
        stored = (*heading[:3], OTHER, OTHER, *heading[5:7], OTHER, heading[8]) if full else heading
        found = db.execute(_FIND_HEADING, stored).fetchone()
        number = int(found[0] if found else db.execute(_ADD_HEADING, stored).lastrowid or 0)
        if not full:
            self._numbers[heading] = number
        return number


def positions(db: Connection) -> dict[str, Position]:
    """Every epoch's position."""
    return {
        epoch: Position(segment=segment, offset=byte)
        for epoch, segment, byte in db.execute("SELECT * FROM position")
    }


def absorb(db: Connection, batch: Batch, headings: Headings) -> None:
    """Post a batch's accounts, keep its openings, move the epoch's position."""
    _post(db, batch.settled, headings)
    if batch.closed:
        _post(db, _matched(db, batch.closed), headings)
    db.executemany(_ADD_OPENING, [_opening_row(o, batch.epoch) for o in batch.opened])
    db.execute(_MOVE, (batch.epoch, batch.position.segment, batch.position.offset))


def sane(batch: Batch) -> Batch:
    """The batch without amounts that no request can have, such as a hostile upstream may claim."""

    def sober(closing: Closing) -> Closing:
        claimed = closing.usage
        quantities = (getattr(claimed, name) for name in Usage.__struct_fields__)
        sums = [value for value in quantities if isinstance(value, int)]
        if max(map(abs, sums)) <= MAX_QUANTITY:
            return closing
        nothing = Usage(measured=False)
        return msgspec.structs.replace(closing, usage=nothing, cost_pico=0, loss_pico=0)

    return replace(
        batch,
        settled=[(opening, sober(closing)) for opening, closing in batch.settled],
        closed=[sober(closing) for closing in batch.closed],
    )


def abandon(db: Connection, epoch: str, at_ns: int, headings: Headings) -> int:
    """Post every opening that the epoch left as lost."""
    left = [_opening(row) for row in db.execute(_OPENINGS + "epoch = ?", (epoch,))]
    lost = [(o, Closing(id=o.id, at_ns=max(at_ns, o.at_ns), outcome="lost")) for o in left]
    _post(db, lost, headings)
    db.execute("DELETE FROM opening WHERE epoch = ?", (epoch,))
    return len(lost)


def trim(db: Connection, before_ns: int, keep: int, at_most: int) -> int:
    """Delete a stretch of the oldest entries."""
    first, last = db.execute("SELECT min(seq), max(seq) FROM account").fetchone()
    if first is None:
        return 0
    stop = first + at_most
    young = "SELECT min(seq) FROM account WHERE seq < ? AND closed_ns >= ?"
    old_end = db.execute(young, (stop, before_ns)).fetchone()[0] or stop
    end = min(stop, max(old_end, last + 1 - keep))
    return db.execute("DELETE FROM account WHERE seq < ?", (end,)).rowcount


def entries(db: Connection, query: Query) -> list[Entry]:
    """Entries, newest first."""
    asked = {test: value for test, value in _tests(query) if value}
    where = f"WHERE {' AND '.join(asked)} " if asked else ""
    values = (*asked.values(), query.limit)
    found = db.execute(f"{_ENTRIES}{where}ORDER BY seq DESC LIMIT ?", values)
    return [_entry(row) for row in found]


def _tests(query: Query) -> Iterator[tuple[str, str | int]]:
    """What an entry has to pass, each with its value; an empty one asks for nothing."""
    yield "account.id = ?", query.id
    yield "seq < ?", query.before
    yield "seq > ?", query.after
    yield "duration_ns >= ?", query.slower_ms * 1_000_000
    for name in _EQUAL:
        yield f"{name} = ?", getattr(query, name)


def totals(db: Connection) -> list[Total]:
    """Sums by tenant, model and outcome."""
    names = Total.__struct_fields__
    return [Total(**dict(zip(names, row, strict=True))) for row in db.execute(_TOTALS)]


def _post(db: Connection, pairs: Iterable[Pair], headings: Headings) -> None:
    """Add entries, and what they come to to the totals. This is the loop that costs."""
    added: list[str | int] = []
    sums: dict[Place, list[int]] = {}
    known = headings.get
    for o, c in pairs:
        name = (
            o.tenant, o.key, o.endpoint, c.model, c.revision, c.outcome, c.status, c.error, c.cache
        )  # fmt: skip
        heading = known(name)
        if heading is None:
            heading = headings.add(db, name)
        u = c.usage
        added += (
            o.id, heading, o.at_ns, c.at_ns, c.duration_ns, c.ttft_ns, u.queue_ns, u.device_ns,
            u.prompt_tokens, u.completion_tokens, u.cached_tokens, u.measured, c.snapshot,
            o.trace_id, o.client_id, str(c.attempts, "utf-8"),
            u.prepare_ns, u.rows, u.pages, u.pixels, u.audio_ms, u.reasoning_tokens, c.retried_ns,
            c.cost_pico, c.loss_pico, c.currency, o.project, c.end_user or o.end_user, o.tag,
            c.target, c.upstream, c.kept_inputs,
        )  # fmt: skip
        place = (
            c.at_ns // HALF_HOUR_NS, name, o.project, o.tag, c.target, c.upstream, u.measured,
            c.currency,
        )  # fmt: skip
        tally = sums.get(place)
        if tally is None:
            tally = sums[place] = [0] * SUMMED + [heading]
        tally[0] += 1
        tally[1] += u.prompt_tokens
        tally[2] += u.completion_tokens
        tally[3] += u.cached_tokens
        tally[4] += u.device_ns
        tally[5] += u.reasoning_tokens
        tally[6] += c.retried_ns
        tally[7] += u.rows
        tally[8] += u.pages
        tally[9] += u.audio_ms
        tally[10] += c.cost_pico
        tally[11] += c.loss_pico
    # Many rows a statement take a quarter less time than as many statements.
    whole = len(added) - len(added) % (_COLUMNS * _AT_ONCE)
    db.executemany(_ADD_ENTRIES, _cut(added[:whole], _COLUMNS * _AT_ONCE))
    db.executemany(_ADD_ENTRY, _cut(added[whole:], _COLUMNS))
    db.executemany(_ADD_TOTAL, [(tally[SUMMED], *tally[:5]) for tally in sums.values()])
    enter(db, sums, headings.keys)


def _cut(values: list[str | int], size: int) -> Iterator[list[str | int]]:
    return (values[start : start + size] for start in range(0, len(values), size))


def _matched(db: Connection, closings: Sequence[Closing]) -> list[Pair]:
    """Closings with their openings of earlier batches; without those that have an entry already."""
    by_id: dict[str, Closing] = {}
    for closing in closings:
        by_id.setdefault(closing.id, closing)
    ids = json.dumps(list(by_id))
    pairs = [
        (opening, by_id.pop(opening.id))
        for opening in map(_opening, db.execute(_OPENINGS + _ONE_OF, (ids,)))
    ]
    db.execute(f"DELETE FROM opening WHERE {_ONE_OF}", (ids,))  # noqa: S608 - a constant
    if by_id:
        ids = json.dumps(list(by_id))
        for (entered,) in db.execute(f"SELECT id FROM account WHERE {_ONE_OF}", (ids,)):  # noqa: S608
            by_id.pop(entered, None)
    for closing in by_id.values():
        pairs.append((Opening(id=closing.id, at_ns=closing.at_ns - closing.duration_ns), closing))
    return pairs


def _opening_row(o: Opening, epoch: str) -> tuple[str | int, ...]:
    return (
        o.id, epoch, o.at_ns, o.tenant, o.key, o.endpoint, o.trace_id, o.client_id,
        o.project, o.end_user, o.tag,
    )  # fmt: skip


def _opening(row: tuple[str, int, str, str, str, str, str, str, str, str]) -> Opening:
    id_, at_ns, tenant, key, endpoint, trace_id, client_id, project, end_user, tag = row
    return Opening(
        id=id_, at_ns=at_ns, tenant=tenant, key=key, endpoint=endpoint, trace_id=trace_id,
        client_id=client_id, project=project, end_user=end_user, tag=tag,
    )  # fmt: skip


def _entry(row: tuple[str | int, ...]) -> Entry:
    values: dict[str, Any] = dict(zip(Entry.__struct_fields__, row, strict=True))
    for name in ("measured", "upstream"):
        values[name] = bool(values[name])
    values["attempts"] = msgspec.Raw(values["attempts"].encode())
    return Entry(**values)
