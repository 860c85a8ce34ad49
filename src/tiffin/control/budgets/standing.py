"""How budgets stand: what is spent and left of each, and when it may run out."""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Final

from tiffin.config.prices import Prices, offset_of, seconds_east
from tiffin.config.schema import Config
from tiffin.control.budgets.charged import Charged, charged_to
from tiffin.control.budgets.forecast import AT_MOST_HOURS, Forecast, forecast, history
from tiffin.control.budgets.held import Held, by_hours, held_in, told_apart
from tiffin.control.budgets.period import period
from tiffin.control.tenants.registry import Made
from tiffin.errors import Unavailable
from tiffin.ledger.book import Book
from tiffin.ledger.segments import HOUR_NS, SECOND_NS
from tiffin.ports.clock import Clock
from tiffin.ports.ledger import HALF_HOUR_NS, Span
from tiffin.ports.spending import Spending, Spent, Times
from tiffin.types.money import pico

PAST_EVERY_S: Final = 300.0
SETTLED_NS: Final = 2 * HOUR_NS
"""What closed so long before this hour is only read anew every five minutes."""


@dataclass(frozen=True, slots=True)
class Stand:
    """A budget in its period, amounts in pico-units; `reserved_pico` is None where nobody knows.

    `hours` is how many hours the forecast is made from.
    """

    held: Held
    period: Span
    currency: str
    amount_pico: int
    spent_pico: int
    reserved_pico: int | None
    hours: int
    forecast: Forecast

    @property
    def left_pico(self) -> int:
        """What may still be spent."""
        return max(0, self.amount_pico - self.spent_pico - (self.reserved_pico or 0))

    @property
    def passed(self) -> tuple[int, ...]:
        """The thresholds that were reached, the lowest first."""
        return tuple(
            percent
            for percent in sorted(self.held.budget.thresholds)
            if self.spent_pico * 100 >= percent * self.amount_pico
        )


@dataclass(frozen=True, slots=True)
class Past:
    """What was spent until a moment, of what was `wanted`; read at a monotonic moment."""

    wanted: object = None
    until_ns: int = 0
    read_s: float = 0.0
    rows: list[Spent] = field(default_factory=list)


class Budgets:
    """All budgets of the configuration in force and of what was `made` through the admin API;
    `charged` is what gateways say of hard ones."""

    def __init__(
        self,
        spending: Spending,
        config: Callable[[], Config],
        made: Callable[[], Made],
        charged: Callable[[], Charged],
        clock: Clock,
    ) -> None:
        self._spending = spending
        self._config = config
        self._made = made
        self._charged = charged
        self._clock = clock
        self._turn = asyncio.Lock()
        self._past = Past()

    async def stand(self, tenant: str = "") -> list[Stand]:
        """How those of one tenant stand, or of all; raises `Unavailable`."""
        config = self._config()
        everybodys = list(held_in(config, self._made()))
        held = [one for one in everybodys if tenant in ("", one.tenant)]
        if not held:
            return []
        now_ns = self._clock.now_ns()
        async with self._turn:
            spent = await self._spent(everybodys, config.prices, now_ns)
        try:
            hours = by_hours(held, spent, Book(config.prices))
        except ValueError as cause:
            raise Unavailable(f"budgets can't be counted: {cause}") from cause
        charged = self._charged()
        return [
            stand_of(one, hours[one.place], charged_to(one, charged), config.prices, now_ns)
            for one in held
        ]

    async def _spent(self, held: Sequence[Held], prices: Prices, now_ns: int) -> list[Spent]:
        """What was spent of all budgets: what is long over is read now and then, the rest anew."""
        times = _looked_at(held, prices, now_ns)
        tenants, fields = frozenset(one.tenant for one in held), frozenset(told_apart(held))
        wanted = (times.span.since_ns, times.hourly_ns, times.offset_ns, tenants, fields)
        past, now_s = self._past, self._clock.monotonic()
        if past.wanted != wanted or not 0 <= now_s - past.read_s < PAST_EVERY_S:
            hour = (now_ns + times.offset_ns) // HOUR_NS * HOUR_NS - times.offset_ns
            until_ns = max(times.span.since_ns, hour - SETTLED_NS)
            earlier = times._replace(span=Span(times.span.since_ns, until_ns))
            rows = await self._spending.by_hour(earlier, tenants, fields)
            past = self._past = Past(wanted, until_ns, now_s, rows)
        recent = times._replace(span=Span(past.until_ns, times.span.until_ns))
        return past.rows + await self._spending.by_hour(recent, tenants, fields)


def stand_of(
    held: Held, hours: dict[int, int], charged: int | None, prices: Prices, now_ns: int
) -> Stand:
    """How a budget stands by what was spent of it in each hour."""
    budget = held.budget
    within = period(budget.per, now_ns, offset_of(prices))
    spent = sum(cost for hour, cost in hours.items() if within.since_ns <= hour < within.until_ns)
    amount = pico(budget.amount)
    costs = history(hours, now_ns, seconds_east(prices) * SECOND_NS)
    return Stand(
        held=held,
        period=within,
        currency=prices.currency,
        amount_pico=amount,
        spent_pico=spent,
        reserved_pico=None if charged is None else max(0, charged - spent),
        hours=len(costs),
        forecast=forecast(costs, spent, amount, now_ns, within),
    )


def _looked_at(held: Sequence[Held], prices: Prices, now_ns: int) -> Times:
    """From the earliest day that matters until now, by hours where the forecast wants them."""
    zone = offset_of(prices)
    begins = (period(per, now_ns, zone).since_ns for per in {one.budget.per for one in held})
    hourly = period("day", now_ns - (AT_MOST_HOURS + 1) * HOUR_NS, zone).since_ns
    span = Span(min(hourly, *begins), -(-now_ns // HALF_HOUR_NS) * HALF_HOUR_NS)
    return Times(span, hourly, seconds_east(prices) * SECOND_NS)
