"""What requests cost, hour by hour, as far as their accounts have been read.

Contract:
- A row is what accounts of one kind that closed in an hour cost; together they are all of them.
- Nothing that costs nothing is told.
- `by_hour` raises `Unavailable` while the store can't be used.
"""

from collections.abc import Collection
from typing import NamedTuple, Protocol

from tiffin.ports.ledger import Span


class Spent(NamedTuple):
    """What one key's requests for a model cost in the hour from `hour_ns` (UTC) on."""

    hour_ns: int
    tenant: str
    project: str
    key: str
    model: str
    currency: str
    cost_pico: int


class Spending(Protocol):
    """The store of what was spent."""

    async def by_hour(
        self, span: Span, tenants: Collection[str], *, offset_ns: int = 0
    ) -> list[Spent]:
        """What some tenants spent in a span of whole half hours, by key and model.

        Hours begin `offset_ns` (whole half hours) before UTC's.
        """
        ...
