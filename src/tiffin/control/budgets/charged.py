"""What gateways have charged to limits of money, as they last said it: reservations are in it."""

from collections.abc import Mapping
from pathlib import Path

import msgspec

from tiffin.control.budgets.held import Held
from tiffin.types.json_file import read_json
from tiffin.types.limits import Standing, Standings

Charged = Mapping[tuple[str, str, tuple[str, ...]], int]
"""Pico-units by whose limit it is, its period and its models."""


def charged_in(run: Path, now_ns: int) -> Charged:
    """What is charged now, by the files of a run folder; what isn't of this period is left out."""
    newest: dict[tuple[str, str, tuple[str, ...]], tuple[int, int]] = {}
    for path in run.glob("*.limits.json"):
        try:
            told = read_json(path, Standings)
        except (OSError, msgspec.MsgspecError):
            continue
        for one in told.limits:
            if not _is_budget(one) or now_ns > told.at_ns + int(one.resets_s * 1e9):
                continue
            at_ns = one.asked_ns or told.at_ns
            place = (one.holder, one.rule.per, one.rule.models)
            newest[place] = max(newest.get(place, (0, 0)), (at_ns, one.whole - one.left))
    return {place: charged for place, (_, charged) in newest.items()}


def charged_to(held: Held, charged: Charged) -> int | None:
    """What is charged to a budget; None where no gateway says, as of one that isn't hard."""
    if not held.budget.hard:
        return None
    return charged.get((held.holder, held.budget.per, held.budget.models))


def _is_budget(one: Standing) -> bool:
    return one.rule.of == "money" and not one.rule.each and not one.rule.shadow
