"""What types can't say about prices: dates exist and follow, every currency has a rate."""

from collections.abc import Container, Iterator, Mapping, Sequence
from fractions import Fraction
from typing import Final

from tiffin.config.models import LocalCommon, ModelCommon
from tiffin.config.prices import (
    Dated,
    MachinePrice,
    ModelPrice,
    Prices,
    Rate,
    moment_ns,
    name_of,
    offset_of,
    until_of,
)
from tiffin.config.shape import Problem, nearest
from tiffin.types.money import MOST_PICO, PICO
from tiffin.types.revisions import base_of

MOST_YEARS: Final = 100
YEAR_S: Final = 365 * 86_400
_UNITS: Final = {
    "input": (10**6, "token"),
    "cached": (10**6, "token"),
    "output": (10**6, "token"),
    "reasoning": (10**6, "token"),
    "request": (1, "request"),
    "row": (1, "row"),
    "page": (1, "page"),
    "audio_minute": (60, "second"),
}
"""What an amount is the price of: so many of what is counted."""


def broken_prices(prices: Prices, models: Sequence[str]) -> Iterator[Problem]:
    """Every rule that the prices break."""
    kinds = ("rates", "machines", "models", "fixed", "credits", "plans")
    dates: list[Problem] = []
    for kind in kinds:
        entries: list[Dated] = getattr(prices, kind)
        dates += _misdated(prices, entries, kind)
    yield from dates
    if dates:
        return
    for kind in kinds:
        entries = getattr(prices, kind)
        if kind != "credits":  # several grants of one name may pay at the same time
            yield from _overlapping(prices, entries, kind)
        yield from _without_rate(prices, entries, kind)
    for number, machine in enumerate(prices.machines):
        where = f"prices.machines[{number}]"
        yield from _machine(machine, where)
        yield from _dear_machine(machine, _dearest(prices, machine.currency), where)
    for number, price in enumerate(prices.models):
        where = f"prices.models[{number}]"
        yield from _unknown_model(price, models, f"{where}.model")
        yield from _dear_model(price, _dearest(prices, price.currency), where)


def unpriced(prices: Prices, models: Mapping[str, ModelCommon]) -> set[str]:
    """The models of which nobody says what use of them costs, and whose machine has no price."""
    priced = {base_of(price.model) for price in prices.models}
    return {
        name
        for name, model in models.items()
        if base_of(name) not in priced and not _has_machine(prices, model)
    }


def _has_machine(prices: Prices, model: ModelCommon) -> bool:
    """Whether a machine that a model may compute on has a price."""
    if not isinstance(model, LocalCommon):
        return False
    if model.devices == "auto":
        return bool(prices.machines)
    on_processors = model.devices in ("cpu", ["cpu"])
    return any(bool(machine.accelerators) is not on_processors for machine in prices.machines)


def _misdated(prices: Prices, entries: Sequence[Dated], kind: str) -> Iterator[Problem]:
    zone = offset_of(prices)
    for number, entry in enumerate(entries):
        where = f"prices.{kind}[{number}]"
        try:
            begins = moment_ns(entry.since, zone)
        except ValueError:
            yield Problem(f"{where}.since", f"there is no {entry.since}")
            continue
        if begins < 0:
            yield Problem(f"{where}.since", f"found {entry.since}, expected 1970-01-01 or later")
            continue
        try:
            until = until_of(entry)
            ends = moment_ns(until, zone) if until else begins + 1
        except ValueError:
            yield Problem(f"{where}.until", f"there is no {until}")
            continue
        if ends <= begins:
            yield Problem(f"{where}.until", f"expected later than since, {entry.since}")


def _overlapping(prices: Prices, entries: Sequence[Dated], kind: str) -> Iterator[Problem]:
    zone = offset_of(prices)
    order = sorted(range(len(entries)), key=lambda i: moment_ns(entries[i].since, zone))
    last: dict[str, int] = {}
    for number in order:
        entry, name = entries[number], name_of(entries[number])
        before = last.get(name)
        last[name] = number
        if before is None:
            continue
        earlier, since_ns = entries[before], moment_ns(entry.since, zone)
        until = until_of(earlier)
        ended = bool(until) and moment_ns(until, zone) <= since_ns
        follows = not until and moment_ns(earlier.since, zone) < since_ns
        if not ended and not follows:
            yield Problem(
                f"prices.{kind}[{number}].since",
                f"{name} has another price then, of prices.{kind}[{before}]; give that one an"
                f" until no later than {entry.since}, or begin later",
            )


def _without_rate(prices: Prices, entries: Sequence[Dated], kind: str) -> Iterator[Problem]:
    zone = offset_of(prices)
    first: dict[str, int] = {}
    for rate in prices.rates:
        since_ns = moment_ns(rate.since, zone)
        first[rate.of] = min(since_ns, first.get(rate.of, since_ns))
    for number, entry in enumerate(entries):
        if isinstance(entry, Rate):
            if entry.of == prices.currency:
                where = f"prices.rates[{number}].of"
                yield Problem(where, "the currency of [prices] needs no rate")
        elif entry.currency not in ("", prices.currency):
            known = first.get(entry.currency)
            if known is None or known > moment_ns(entry.since, zone):
                yield Problem(
                    f"prices.{kind}[{number}].currency",
                    f"there is no rate of {entry.currency} on {entry.since};"
                    " add one to [[prices.rates]] that begins no later",
                )


def _machine(machine: MachinePrice, where: str) -> Iterator[Problem]:
    owned = machine.terms == "owned"
    if owned and (_zero(machine.purchase) or not machine.years):
        yield Problem(where, "an owned machine has a purchase and the years that it lasts")
    if machine.years > MOST_YEARS:
        yield Problem(f"{where}.years", f"found {machine.years}, expected at most {MOST_YEARS}")
    for name in ("purchase", "residual", "years", "spare", "watts", "kwh", "cooling"):
        if not owned and getattr(machine, name) not in (0, "0"):
            yield Problem(f"{where}.{name}", 'only terms = "owned" have it')
    if not owned and _zero(machine.hourly):
        yield Problem(f"{where}.hourly", "missing, expected what an hour costs")


def _dearest(prices: Prices, currency: str) -> Fraction:
    """What a unit of a currency was ever worth at most, in that of the prices."""
    worth = (Fraction(rate.rate) for rate in prices.rates if rate.of == currency)
    return max(worth, default=Fraction(1)) or Fraction(1)


def _dear_model(price: ModelPrice, worth: Fraction, where: str) -> Iterator[Problem]:
    """Prices of one unit of use that no account can hold."""
    for name, (count, unit) in _UNITS.items():
        yield from _too_dear(
            getattr(price, name) or "0", Fraction(count) / worth, unit, f"{where}.{name}"
        )


def _dear_machine(machine: MachinePrice, worth: Fraction, where: str) -> Iterator[Problem]:
    """Machines of which a second costs what no account can hold."""
    each = 1 / (worth * machine.count)
    lasts_s = YEAR_S * (machine.years or 1)
    yield from _too_dear(machine.hourly, 3600 * each, "second", f"{where}.hourly")
    yield from _too_dear(machine.purchase, lasts_s * each, "second", f"{where}.purchase")


def _too_dear(amount: str, each: Fraction, unit: str, where: str) -> Iterator[Problem]:
    """An amount, the price of `each` of a unit in the currency of the prices."""
    most = MOST_PICO * each // PICO
    if Fraction(amount) > most:
        told = f"found {amount}, expected at most {most}: no {unit} may cost more in an account"
        yield Problem(where, f"{told}; see that it is in units of its currency")


def _unknown_model(
    price: ModelPrice, models: Sequence[str] | Container[str], where: str
) -> Iterator[Problem]:
    """What has ended may be the price of a model that has gone."""
    if price.model not in models and not price.until:
        hint = nearest(price.model, models)
        yield Problem(where, f'there is no model "{price.model}"{hint}; one that went has an until')


def _zero(amount: str) -> bool:
    return not amount.strip("0.")
