"""Budgets of money as values: so much a day or a month for a tenant, a project or a key."""

from collections.abc import Mapping
from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from tiffin.types.limits import Limits, ModelName, Rule

Money = Annotated[
    str,
    Meta(
        pattern=r"^[0-9]{1,12}([.][0-9]{1,12})?$(?!\n)",
        description='a decimal number in quotes, as "2500" or "0.15"',
    ),
]
CurrencyOrNone = Annotated[
    str, Meta(pattern=r"^([A-Z]{3})?$(?!\n)", description='three capitals, as "INR"')
]
Percent = Annotated[int, Meta(ge=1, le=1000)]


class Budget(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, gc=False):
    """`[tenants.T.budgets.B]`: `amount` of money `per` day or month, by the calendar of `[prices]`.

    A `hard` one is a limit of money as well: what could go over it is refused. Another never
    refuses anything. Each of the `thresholds`, in percent, is alerted of once in a period. `models`
    are those that count, none: all.
    """

    amount: Money
    currency: CurrencyOrNone = ""
    per: Literal["day", "month"] = "month"
    hard: bool = False
    thresholds: tuple[Percent, ...] = (50, 80, 100)
    models: tuple[ModelName, ...] = ()


def rule_of(budget: Budget) -> Rule:
    """The limit that a hard budget is."""
    return Rule(of="money", amount=float(budget.amount), per=budget.per, models=budget.models)


def with_budgets(limits: Limits, budgets: Mapping[str, Budget]) -> Limits:
    """Limits with what hard budgets add to them."""
    hard = tuple(rule_of(budget) for budget in budgets.values() if budget.hard)
    return msgspec.structs.replace(limits, rules=(*limits.rules, *hard)) if hard else limits
