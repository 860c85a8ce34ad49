"""What types can't say about limits: what goes together, and what can't be enforced."""

from collections.abc import Collection, Iterator, Sequence, Set
from typing import NamedTuple

from tiffin.config.shape import Problem, nearest, shown
from tiffin.types.limits import Limits, Rule, by_calendar
from tiffin.types.money import pico

MOST = 10**15

# Which parts of itself a section can set limits for, each.
PARTS = {
    "tenant": ("project", "key", "end_user"),
    "project": ("key", "end_user"),
    "key": ("end_user",),
}


class Known(NamedTuple):
    """What limits may count: all public names, and those of which use has no price; `shared` is
    whether they are counted in a store."""

    models: Sequence[str]
    unpriced: Set[str]
    shared: bool = False

    def without_price(self, models: Collection[str]) -> Iterator[str]:
        """Why a limit of money can't hold for these models (none: all), where it can't."""
        missing = [name for name in models or self.models if name in self.unpriced]
        if missing and len(missing) == len(self.models):
            yield "money can't be counted: [prices] gives nothing a price"
        elif missing:
            names = f"{', '.join(missing[:3])}{' …' * (len(missing) > 3)}"
            yield (
                f"money can't be counted of {names}: add what it costs to [[prices.models]]"
                ' (without an amount it is free), or name the models that count: models = ["…"]'
            )


def broken_limits(limits: Limits, level: str, where: str, known: Known) -> Iterator[Problem]:
    """Every rule that the limits of a `tenant`, `project` or `key` break."""
    for name in ("requests_per_minute", "burst", "concurrency"):
        found = getattr(limits, name)
        if not 0 <= found <= MOST:
            message = (
                f"found {shown(found)}, expected an integer from 0, which is no limit, to {MOST}"
            )
            yield Problem(f"{where}.{name}", message)
    if limits.burst and not limits.requests_per_minute:
        yield Problem(f"{where}.burst", "has no meaning without requests_per_minute")
    seen: dict[tuple[object, ...], str] = {}
    for number, rule in enumerate(limits.rules):
        place = f"{where}.rules[{number}]"
        yield from _rule(rule, level, place, known)
        kind = (rule.of, rule.per, rule.each, rule.models, rule.shadow)
        if kind in seen:
            yield Problem(place, f"says of the same what {seen[kind]} says; leave one of them")
        seen.setdefault(kind, place)
    short = {
        ("requests", "minute"): limits.requests_per_minute,
        ("concurrency", ""): limits.concurrency,
    }
    for of, per in (kind for kind, amount in short.items() if amount):
        twin = seen.get((of, per, "", (), False))
        if twin:
            name = "concurrency" if of == "concurrency" else "requests_per_minute"
            yield Problem(twin, f"says of the same what {where}.{name} says; leave one of them")


def _rule(rule: Rule, level: str, where: str, known: Known) -> Iterator[Problem]:
    if rule.without_store and not known.shared:
        yield Problem(
            f"{where}.without_store",
            f'found "{rule.without_store}", and there is no store that could be missed: leave it'
            " out, or say in server.limit_store.url where gateways count together",
        )
    if rule.each and rule.each not in PARTS[level]:
        parts = " or ".join(f'"{part}"' for part in PARTS[level])
        yield Problem(f"{where}.each", f'found "{rule.each}"; of a {level} it can be {parts}')
    for name in rule.models:
        if name not in known.models:
            hint = nearest(name, known.models)
            yield Problem(f"{where}.models", f'there is no model or route "{name}"{hint}')
    yield from _amount(rule, where)
    if rule.of == "money":
        yield from (Problem(f"{where}.of", why) for why in known.without_price(rule.models))
    if rule.of == "concurrency":
        if rule.per:
            yield Problem(f"{where}.per", "concurrency has no time: leave it out")
    elif not rule.per:
        yield Problem(f"{where}.per", "missing, expected second, minute, hour, day or month")
    if rule.burst and (by_calendar(rule) or rule.of == "concurrency"):
        yield Problem(
            f"{where}.burst", "only a rate has one: per second, minute or hour, and not of money"
        )


def _amount(rule: Rule, where: str) -> Iterator[Problem]:
    if rule.of != "money":
        if rule.amount != int(rule.amount):
            yield Problem(f"{where}.amount", f"found {rule.amount}, expected a whole number")
        return
    try:
        pico(repr(rule.amount))
    except ValueError as cause:
        yield Problem(f"{where}.amount", f"{cause}, which is the smallest that is counted")
