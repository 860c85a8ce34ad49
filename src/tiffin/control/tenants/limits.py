"""Limits and budgets that come through the API hold to the rules of the configuration's."""

from collections.abc import Mapping

from tiffin.config.budgets import broken_budgets
from tiffin.config.limits import Known, broken_limits
from tiffin.config.schema import Config
from tiffin.errors import SchemaViolation
from tiffin.types.budgets import Budget
from tiffin.types.snapshot import Limits


def check_limits(limits: Limits, level: str, config: Config) -> None:
    """Raise `SchemaViolation` at the first that can't be meant, or can't be enforced."""
    for problem in broken_limits(limits, level, "limits", _known(config)):
        raise SchemaViolation(str(problem), param=problem.where)


def check_budgets(budgets: Mapping[str, Budget], limits: Limits, config: Config) -> None:
    """Raise `SchemaViolation` at the first that can't be counted, beside these limits."""
    known, currency = _known(config), config.prices.currency
    for problem in broken_budgets(budgets, limits, "", known, currency):
        raise SchemaViolation(str(problem), param=problem.where)


def _known(config: Config) -> Known:
    priced = bool(config.prices.models or config.prices.machines)
    return Known([*config.models, *config.routes], priced)
