"""The admin API's pages of budgets and usage, for operators and, of their own, for tenants."""

from collections.abc import Awaitable, Callable, Mapping
from types import MappingProxyType
from typing import Final

import msgspec

from tiffin.api.admin_openapi import Endpoint, Told
from tiffin.api.costs import answer, query_as
from tiffin.config.prices import Prices, offset_of
from tiffin.control.budgets.standing import Budgets
from tiffin.control.budgets.told import BudgetView, view_of
from tiffin.control.money.usage import UsageAsk, UsageBook, UsagePage
from tiffin.ports.exchange import Exchange

BUDGETS: Final = "/admin/v1/budgets"
USAGE: Final = "/admin/v1/usage"

Page = Callable[[Exchange], Awaitable[None]]


class BudgetQuery(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Whose budgets; empty is everybody's."""

    tenant: str = ""


class BudgetsPage(msgspec.Struct, frozen=True, kw_only=True):
    """How budgets stand."""

    data: list[BudgetView]


TOLD: Final[Mapping[Endpoint, Told]] = MappingProxyType(
    {
        ("GET", BUDGETS): Told("How budgets stand", BudgetsPage, query=BudgetQuery),
        ("GET", USAGE): Told("What was used, and what it cost", UsagePage, query=UsageAsk),
    }
)
"""What the document says of them."""


class BudgetPages:
    """Answers exchanges; whoever belongs to a tenant comes with that tenant in its query."""

    def __init__(self, budgets: Budgets, usage: UsageBook, prices: Callable[[], Prices]) -> None:
        self._budgets = budgets
        self._usage = usage
        self._prices = prices

    def pages(self) -> dict[bytes, dict[bytes, Page]]:
        """By path and method."""
        return {
            BUDGETS.encode(): {b"GET": self._stand},
            USAGE.encode(): {b"GET": self._used},
        }

    async def _stand(self, exchange: Exchange) -> None:
        asked = query_as(exchange, BudgetQuery)
        zone = offset_of(self._prices())
        stands = await self._budgets.stand(asked.tenant)
        answer(exchange, BudgetsPage(data=[view_of(one, zone) for one in stands]))

    async def _used(self, exchange: Exchange) -> None:
        answer(exchange, await self._usage.page(query_as(exchange, UsageAsk)))
