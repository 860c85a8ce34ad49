"""What was spent by hour, from the ledger's sums in SQLite, read by a thread of its own."""

import json
from collections.abc import Collection
from pathlib import Path

from tiffin.adapters.stores.connection import SqliteThread
from tiffin.ports.ledger import HALF_HOUR_NS, Span
from tiffin.ports.spending import Spent
from tiffin.types.money import PICO

_BY_HOUR = """
    SELECT hour, tenant, project, key, model, currency, sum(units), sum(pico) FROM (
        SELECT ledger_key, (half_hour + ?) / 2 AS hour, sum(cost_units) AS units,
            sum(cost_pico) AS pico
        FROM ledger WHERE half_hour >= ? AND half_hour < ? AND ledger_key IN (
            SELECT id FROM ledger_key WHERE tenant IN (SELECT value FROM json_each(?))
        ) GROUP BY ledger_key, hour
    ) AS sums JOIN ledger_key ON ledger_key.id = sums.ledger_key
    WHERE units OR pico
    GROUP BY hour, tenant, project, key, model, currency
"""


class SqliteSpending:
    """`Spending` in the database file that the ledger is in."""

    def __init__(self, path: Path) -> None:
        self._thread = SqliteThread(path, "spending")

    async def by_hour(
        self, span: Span, tenants: Collection[str], *, offset_ns: int = 0
    ) -> list[Spent]:
        """What some tenants spent, by hour, key and model."""
        first, last = span.since_ns // HALF_HOUR_NS, -(-span.until_ns // HALF_HOUR_NS)
        offset = offset_ns // HALF_HOUR_NS
        given = (offset, first, last, json.dumps(list(tenants)))

        def found(hour: int) -> int:
            return (2 * hour - offset) * HALF_HOUR_NS

        return await self._thread.run(
            lambda db: [
                Spent(found(hour), *names, units * PICO + pico)
                for hour, *names, units, pico in db.execute(_BY_HOUR, given)
            ]
        )

    def close(self) -> None:
        """Give the connection back, after what it is doing."""
        self._thread.close()
