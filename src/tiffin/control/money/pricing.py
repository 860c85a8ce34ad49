"""What use of each target costs now: by the price book, or its part of the machine's time."""

from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from math import floor

import msgspec

from tiffin.config.models import EchoModel, LaunchedModel, LlamacppModel, Model, RulesModel
from tiffin.config.prices import Prices
from tiffin.control.rollout import Wish
from tiffin.ledger.book import Book
from tiffin.ledger.marginal import MOST_PICO
from tiffin.types.machine import CPU
from tiffin.types.price import Price
from tiffin.types.snapshot import Deployment


def priced(
    wishes: Mapping[str, Wish],
    models: Mapping[str, Model],
    prices: Prices,
    cores: int,
    now_ns: int,
) -> dict[str, Wish]:
    """The wishes with what their targets cost at this moment, as far as anything has a price."""
    if not prices.machines and not prices.models:
        return dict(wishes)
    book = Book(prices)
    machines = _Machines(
        book.currency,
        cores,
        book.device_second(accelerators=False, at_ns=now_ns)[0],
        *book.device_second(accelerators=True, at_ns=now_ns),
    )
    found = {}
    for name, wish in wishes.items():
        price = book.price_of(name, now_ns)
        if price is None and wish.deployments:
            price = machines.price_of(wish.deployments[0], slots_of(models[name]))
        target = msgspec.structs.replace(wish.target, price=price)
        found[name] = Wish(target, wish.deployments)
    return found


def slots_of(model: Model) -> int:
    """How many requests hold a replica's device at once, each counting all of that time."""
    match model:
        case EchoModel(slots=slots) | LaunchedModel(slots=slots) | RulesModel(slots=slots):
            return slots
        case LlamacppModel(task="generate", slots=slots):
            return slots
    return 1


def on_accelerators(one: Deployment, *, there: bool) -> int:
    """How many accelerators a replica has; none where they aren't `there` and it can do without."""
    if CPU in one.devices and not there:
        return 0
    return sum(device != CPU for device in one.devices)


def threads_of(one: Deployment, cores: int) -> int:
    """How many threads of the processor a replica has; one that takes what it finds has all."""
    return min(one.threads or cores, cores)


@dataclass(frozen=True, slots=True)
class _Machines:
    """What a second of all processors costs, and of all `accelerators`, in pico-units."""

    currency: str
    cores: int
    processors_second: Fraction
    accelerators_second: Fraction
    accelerators: int

    def price_of(self, one: Deployment, slots: int) -> Price | None:
        """A replica's part; None where nobody says what its device costs."""
        second, capacity = self.accelerators_second, self.accelerators
        share = on_accelerators(one, there=bool(second))
        if not share:
            second, capacity = self.processors_second, self.cores
            share = threads_of(one, self.cores)
        if not second:
            return None
        each = floor(second * share / (capacity * slots) + Fraction(1, 2))
        return Price(currency=self.currency, device_second=min(each, MOST_PICO))
