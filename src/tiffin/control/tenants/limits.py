"""Limits that come through the API hold to the same rules as those of the configuration."""

from tiffin.config.limits import Known, broken_limits
from tiffin.config.schema import Config
from tiffin.errors import SchemaViolation
from tiffin.types.snapshot import Limits


def check_limits(limits: Limits, level: str, config: Config) -> None:
    """Raise `SchemaViolation` at the first that can't be meant, or can't be enforced."""
    priced = bool(config.prices.models or config.prices.machines)
    known = Known([*config.models, *config.routes], priced)
    for problem in broken_limits(limits, level, "limits", known):
        raise SchemaViolation(str(problem), param=problem.where)
