"""Limits and budgets that come through the API hold to the rules of the configuration's."""

from collections.abc import Mapping

from tiffin.config.budgets import broken_budgets
from tiffin.config.limits import broken_limits
from tiffin.config.rules import known_of
from tiffin.config.schema import Config
from tiffin.errors import SchemaViolation
from tiffin.types.budgets import Budget
from tiffin.types.snapshot import Limits


def check_limits(limits: Limits, level: str, config: Config) -> None:
    """Raise `SchemaViolation` at the first that can't be meant, or can't be enforced."""
    for problem in broken_limits(limits, level, "limits", known_of(config)):
        raise SchemaViolation(str(problem), param=problem.where)


def check_budgets(budgets: Mapping[str, Budget], limits: Limits, config: Config) -> None:
    """Raise `SchemaViolation` at the first that can't be counted, beside these limits."""
    known, currency = known_of(config), config.prices.currency
    for problem in broken_budgets(budgets, limits, "", known, currency):
        raise SchemaViolation(str(problem), param=problem.where)
