"""The price book: what was in force when, in one currency, as exact fractions of pico-units."""

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from decimal import Decimal
from fractions import Fraction
from itertools import pairwise
from math import floor
from typing import Final, Generic, NamedTuple, TypeVar

from tiffin.config.prices import (
    Credit,
    Dated,
    FixedPrice,
    MachinePrice,
    ModelPrice,
    PricePlan,
    Prices,
    moment_ns,
    name_of,
    offset_of,
    until_of,
)
from tiffin.ledger.marginal import MOST_PICO
from tiffin.ledger.segments import (
    DAY_NS,
    FOREVER_NS,
    HOUR_NS,
    SECOND_NS,
    Segment,
    periods,
    years_after,
)
from tiffin.ports.ledger import Span
from tiffin.types.money import PICO
from tiffin.types.price import Price

MILLION: Final = 10**6
_MINUTE: Final = 60

D = TypeVar("D", bound=Dated)


class Held(NamedTuple, Generic[D]):
    """An entry and the time that it holds."""

    entry: D
    since_ns: int
    until_ns: int


class Book:
    """Everything that has a price, in `currency`; days begin in `zone`."""

    def __init__(self, prices: Prices) -> None:
        self.currency = prices.currency
        self.zone = offset_of(prices)
        self._rates: dict[str, list[tuple[int, Fraction]]] = {}
        for rate in prices.rates:
            known = self._rates.setdefault(rate.of, [])
            known.append((self._ns(rate.since), Fraction(Decimal(rate.rate))))
            known.sort()
        self.machines: list[Held[MachinePrice]] = list(self._held(prices.machines))
        self._models: dict[str, list[Held[ModelPrice]]] = {}
        for held in self._held(prices.models):
            self._models.setdefault(held.entry.model, []).append(held)
        self.fixed: list[Held[FixedPrice]] = list(self._held(prices.fixed))
        self.credits: list[Held[Credit]] = [
            Held(one, self._ns(one.since), self._ns(one.until) if one.until else FOREVER_NS)
            for one in prices.credits
        ]
        self.plans: list[Held[PricePlan]] = list(self._held(prices.plans))

    @property
    def priced(self) -> bool:
        """Whether anything here costs anything."""
        return bool(self.machines or self._models or self.fixed)

    def worth(self, currency: str, at_ns: int) -> Fraction:
        """What a unit of a currency is worth at a moment; raises `ValueError` without a rate."""
        if currency in ("", self.currency):
            return Fraction(1)
        rates = self._rates.get(currency, [])
        at = bisect_right(rates, at_ns, key=lambda rate: rate[0])
        if not at:
            raise ValueError(
                f"there is no rate of {currency} in {self.currency} for that time;"
                " add one to [[prices.rates]]"
            )
        return rates[at - 1][1]

    def converted(self, amount_pico: int, currency: str, at_ns: int) -> int:
        """An amount in the book's currency, rounded half up; raises as `worth` does."""
        return floor(amount_pico * self.worth(currency, at_ns) + Fraction(1, 2))

    def price_of(self, model: str, at_ns: int) -> Price | None:
        """The marginal price of a model that has one of its own; a revision has its model's."""
        for name in (model, model.partition("@")[0]):
            for entry, since, until in self._models.get(name, ()):
                if since <= at_ns < until:
                    return self._price(entry, at_ns)
        return None

    def device_second(self, *, accelerators: bool, at_ns: int) -> tuple[Fraction, int]:
        """What a second of all machines of a kind costs, and how many accelerators they have."""
        total, count = Fraction(0), 0
        for held in self.machines:
            entry, since, until = held
            if bool(entry.accelerators) is accelerators and since <= at_ns < until:
                costs = (s for s in self.machine(held) if s.since_ns <= at_ns < s.until_ns)
                total += sum((one.pico for one in costs), Fraction(0)) * SECOND_NS
                count += entry.accelerators * entry.count
        return total, count

    def machine(self, held: Held[MachinePrice]) -> list[Segment]:
        """What a machine costs while it is paid for."""
        entry, since, until = held
        hourly = _exact(entry.hourly)
        power = _exact(entry.watts) / 1000 * _exact(entry.kwh) * (1 + _exact(entry.cooling))
        found = self._segments(hourly + power, entry.currency, since, until, HOUR_NS, entry.count)
        if entry.years:
            end = years_after(since, entry.years, self.zone)
            cost = _exact(entry.purchase) * (1 + _exact(entry.spare)) - _exact(entry.residual)
            ends = min(until, end)
            found += self._segments(
                max(cost, Fraction(0)), entry.currency, since, ends, end - since, entry.count
            )
        return found

    def standing(self, held: Held[FixedPrice], span: Span) -> list[Segment]:
        """What a fixed price comes to in a span, by the calendar's months and years."""
        entry, since, until = held
        amount = _exact(entry.amount) * _exact(entry.quantity)
        found: list[Segment] = []
        for period in periods(span, entry.per, self.zone):
            length = {"hour": HOUR_NS, "day": DAY_NS}.get(
                entry.per, period.until_ns - period.since_ns
            )
            first, last = max(since, period.since_ns), min(until, period.until_ns)
            found += self._segments(amount, entry.currency, first, last, length, 1)
        return found

    def monthly(self, held: Held[PricePlan], span: Span) -> list[Segment]:
        """What a tenant is charged each month, over a span."""
        entry, since, until = held
        found: list[Segment] = []
        for period in periods(span, "month", self.zone):
            length = period.until_ns - period.since_ns
            first, last = max(since, period.since_ns), min(until, period.until_ns)
            found += self._segments(_exact(entry.monthly), entry.currency, first, last, length, 1)
        return found

    def _price(self, entry: ModelPrice, at_ns: int) -> Price:
        worth = self.worth(entry.currency, at_ns)

        def pico(amount: str, each: int = 1) -> int:
            return min(floor(_exact(amount) * PICO * worth / each + Fraction(1, 2)), MOST_PICO)

        return Price(
            currency=self.currency,
            request=pico(entry.request),
            input_token=pico(entry.input, MILLION),
            cached_token=pico(entry.cached or entry.input, MILLION),
            output_token=pico(entry.output, MILLION),
            reasoning_token=pico(entry.reasoning, MILLION) if entry.reasoning else None,
            row=pico(entry.row),
            page=pico(entry.page),
            audio_second=pico(entry.audio_minute, _MINUTE),
        )

    def _segments(
        self, amount: Fraction, currency: str, since: int, until: int, each_ns: int, count: int
    ) -> list[Segment]:
        """So much for each so many nanoseconds, by the rates that hold meanwhile."""
        if since >= until or not amount:
            return []
        known = self._rates.get(currency, []) if currency not in ("", self.currency) else []
        changes = sorted({since, until, *(at for at, _ in known if since < at < until)})
        return [
            Segment(a, b, amount * count * PICO * self.worth(currency, a) / each_ns)
            for a, b in pairwise(changes)
        ]

    def _held(self, entries: Sequence[D]) -> Iterator[Held[D]]:
        """Entries with the time that each holds: until its end, or until the next of its name."""
        by_name: dict[str, list[D]] = {}
        for entry in entries:
            by_name.setdefault(name_of(entry), []).append(entry)
        for same in by_name.values():
            same.sort(key=lambda one: self._ns(one.since))
            begins = [*(self._ns(one.since) for one in same), FOREVER_NS]
            for entry, (since, following) in zip(same, pairwise(begins), strict=True):
                until = until_of(entry)
                yield Held(entry, since, self._ns(until) if until else following)

    def _ns(self, text: str) -> int:
        return moment_ns(text, self.zone)


def _exact(amount: str) -> Fraction:
    return Fraction(Decimal(amount or "0"))
