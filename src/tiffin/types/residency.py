"""Where data may go: classes of data in order, and regions by name."""

from typing import Literal, get_args

DataClass = Literal["", "public", "internal", "confidential", "restricted"]
"""How sensitive data is, from what everybody may see upwards; empty is not said."""

_RANK: dict[str, int] = {name: rank for rank, name in enumerate(get_args(DataClass))}
_PUBLIC = _RANK["public"]

SOMEWHERE = "?"
"""The region of what computes in several."""


def holds(cleared: str, data_class: str) -> bool:
    """Whether a place that is cleared for one class may get data of another.

    A place that nobody cleared gets public data alone, an unknown class goes nowhere.
    """
    if not data_class:
        return True
    wanted = _RANK.get(data_class)
    return wanted is not None and wanted <= max(_RANK.get(cleared, 0), _PUBLIC)


def highest(one: str, other: str) -> str:
    """The more sensitive of two classes; one that isn't known is more so than all others."""
    return max(one, other, key=lambda name: _RANK.get(name, len(_RANK)))


def lowest(cleared: list[str]) -> str:
    """What all of several places are cleared for."""
    return min(cleared, key=lambda one: _RANK.get(one, 0))
