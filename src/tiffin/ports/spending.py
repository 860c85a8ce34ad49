"""What requests cost, hour by hour, as far as their accounts have been read.

Contract:
- A row is what accounts of one kind that closed in an hour cost, or, long ago, in a day; together
  they are all of them.
- Nothing that costs nothing is told.
- `by_hour` raises `Unavailable` while the store can't be used.
"""

from collections.abc import Collection
from typing import Literal, NamedTuple, Protocol

from tiffin.ports.ledger import Span

Field = Literal["project", "key", "model"]


class Times(NamedTuple):
    """A span of whole half hours, of which days are told until `hourly_ns` and hours from then on.

    Both begin `offset_ns` (whole half hours) before UTC's; `hourly_ns` is where a day begins.
    """

    span: Span
    hourly_ns: int = 0
    offset_ns: int = 0


class Spent(NamedTuple):
    """What one key's requests for a model cost in the hour, or day, from `hour_ns` (UTC) on.

    What wasn't asked to be told apart is empty.
    """

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
        self, times: Times, tenants: Collection[str], fields: Collection[Field]
    ) -> list[Spent]:
        """What some tenants spent, by these fields."""
        ...
