"""What was spent by hour, from the ledger's sums in SQLite, read by a thread of its own."""

import json
from collections.abc import Collection, Iterator
from pathlib import Path
from sqlite3 import Connection

from tiffin.adapters.stores.connection import SqliteThread
from tiffin.ports.ledger import HALF_HOUR_NS
from tiffin.ports.spending import Field, Spent, Times
from tiffin.types.money import PICO

_FIELDS = ("project", "key", "model")
_DAY, _HOUR = 48, 2
# Of a month at once the sums take three times as long as of an hour after the other.
_SPENT = """
    SELECT tenant, {}, currency, sum(units), sum(pico) FROM (
        SELECT ledger_key, sum(cost_units) AS units, sum(cost_pico) AS pico FROM ledger
        WHERE half_hour >= ? AND half_hour < ? GROUP BY ledger_key
    ) AS sums JOIN ledger_key ON ledger_key.id = sums.ledger_key
    WHERE tenant IN (SELECT value FROM json_each(?)) AND (units OR pico)
    GROUP BY tenant, {}, currency
"""


class SqliteSpending:
    """`Spending` in the database file that the ledger is in."""

    def __init__(self, path: Path) -> None:
        self._thread = SqliteThread(path, "spending")

    async def by_hour(
        self, times: Times, tenants: Collection[str], fields: Collection[Field]
    ) -> list[Spent]:
        """What some tenants spent, by hour or day and by these fields."""
        columns = ", ".join(name if name in fields else "''" for name in _FIELDS)
        text, names = _SPENT.format(columns, columns), json.dumps(list(tenants))

        def read(db: Connection) -> list[Spent]:
            return [
                Spent._make((began * HALF_HOUR_NS, *told, units * PICO + pico))
                for began, first, last in _stretches(times)
                for *told, units, pico in db.execute(text, (first, last, names))
            ]

        return await self._thread.run(read)

    def close(self) -> None:
        """Give the connection back, after what it is doing."""
        self._thread.close()


def _stretches(times: Times) -> Iterator[tuple[int, int, int]]:
    """Days, then hours: where each begins, and what of it is in the span; in half hours."""
    at, until = times.span.since_ns // HALF_HOUR_NS, -(-times.span.until_ns // HALF_HOUR_NS)
    offset, hourly = times.offset_ns // HALF_HOUR_NS, times.hourly_ns // HALF_HOUR_NS
    while at < until:
        length = _DAY if at < hourly else _HOUR
        began = (at + offset) // length * length - offset
        yield began, at, min(began + length, until)
        at = began + length
