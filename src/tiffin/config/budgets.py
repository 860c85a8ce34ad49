"""What types can't say about budgets: they can be counted, and say nothing that another says."""

from collections.abc import Iterator, Mapping

from tiffin.config.limits import Known
from tiffin.config.shape import Problem, join, nearest
from tiffin.types.budgets import Budget, rule_of
from tiffin.types.limits import Limits
from tiffin.types.money import pico

MOST = 32
"""Budgets of one section."""


def broken_budgets(
    budgets: Mapping[str, Budget], limits: Limits, where: str, known: Known, currency: str
) -> Iterator[Problem]:
    """Every rule that the budgets of a section break; `currency` is what money is counted in."""
    if len(budgets) > MOST:
        message = f"found {len(budgets)}, no more than {MOST} can be here"
        yield Problem(join(where, "budgets"), message)
    seen = {
        (rule.per, rule.models): join(where, f"limits.rules[{number}]")
        for number, rule in enumerate(limits.rules)
        if rule.of == "money" and not rule.each and not rule.shadow
    }
    for name, budget in budgets.items():
        place = join(where, f"budgets.{name}")
        yield from _budget(budget, place, known, currency)
        if not budget.hard:
            continue
        kind = (budget.per, budget.models)
        if kind in seen:
            yield Problem(place, f"refuses by the same as {seen[kind]}; leave one of them")
        seen.setdefault(kind, place)


def _budget(budget: Budget, where: str, known: Known, currency: str) -> Iterator[Problem]:
    amount = pico(budget.amount)
    if not amount:
        yield Problem(f"{where}.amount", "expected more than 0")
    elif budget.hard and pico(repr(rule_of(budget).amount)) != amount:
        yield Problem(f"{where}.amount", "a hard budget has no more than 15 digits")
    if budget.currency not in ("", currency):
        yield Problem(
            f"{where}.currency",
            f'found "{budget.currency}"; money is counted in the currency of [prices], {currency}',
        )
    if len(set(budget.thresholds)) < len(budget.thresholds):
        yield Problem(f"{where}.thresholds", "a threshold stands here twice")
    yield from (Problem(where, why) for why in known.without_price(budget.models))
    for name in budget.models:
        if name not in known.models:
            hint = nearest(name, known.models)
            yield Problem(f"{where}.models", f'there is no model or route "{name}"{hint}')
