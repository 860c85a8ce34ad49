"""Which engine is to run a model, from what was measured: by its objective, and never a wrong one.

A pure function of figures; the order in which they are given doesn't matter.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from math import exp, log
from typing import Final

from tiffin.types.calibration import Measured

REFERENCE: Final = "llamacpp"
"""The engine that runs what no other may: it computes with the file's own weights."""
MAX_DRIFT: Final = 0.1
MIN_SAME: Final = 0.9
MARGIN: Final = 1.15
"""How much better than the reference another must be: below, it's noise."""
MIN_ALONE: Final = 0.75
"""The part of the reference's speed that a lone answer must keep at least."""


@dataclass(frozen=True, slots=True)
class Aim:
    """What the choice is for: `ttft_ms` is the objective for a first token (0: none), `slots` how
    many answers run at once at most."""

    ttft_ms: float = 0.0
    slots: int = 4


@dataclass(frozen=True, slots=True)
class Choice:
    """An engine and why."""

    engine: str
    why: str


def agrees(one: Measured) -> bool:
    """Whether it chooses as the reference does, as far as rounding lets it."""
    return one.drift <= MAX_DRIFT and one.same >= MIN_SAME


def pace(one: Measured, slots: int) -> float:
    """Tokens per second, the geometric mean over all measured numbers of answers up to `slots`."""
    rates = [rate for many, rate in one.tokens_per_s.items() if many <= max(slots, 1)]
    if not rates or min(rates) <= 0:
        return 0.0
    return exp(sum(map(log, rates)) / len(rates))


def choose(measured: Sequence[Measured], aim: Aim) -> Choice:
    """The engine for this aim; the reference where no other is right and clearly better."""
    own = next((one for one in measured if one.engine == REFERENCE and not one.failed), None)
    refused: list[str] = []
    rivals: list[Measured] = []
    for one in sorted(measured, key=lambda one: one.engine):
        if one.engine == REFERENCE:
            continue
        if one.failed:
            refused.append(f"{one.engine} can't run it: {one.failed}")
        elif not agrees(one):
            refused.append(
                f"{one.engine} answers differently: {one.drift:.2f} off on average, the same first"
                f" choice in {one.same:.0%}"
            )
        else:
            rivals.append(one)
    if own is None:
        return _without_reference(measured, rivals, refused, aim)
    for one in sorted(rivals, key=lambda one: (-pace(one, aim.slots), one.engine)):
        why = _better(one, own, aim)
        if why:
            return Choice(one.engine, why)
    lost = [f"{one.engine} isn't clearly better" for one in rivals]
    return Choice(REFERENCE, "; ".join(refused + lost) or "it is the only one")


def _without_reference(
    measured: Sequence[Measured], rivals: Sequence[Measured], refused: list[str], aim: Aim
) -> Choice:
    failed = next((one.failed for one in measured if one.engine == REFERENCE), "not measured")
    if not rivals:
        return Choice(REFERENCE, "; ".join([f"{REFERENCE} failed too: {failed}", *refused]))
    best = max(rivals, key=lambda one: (pace(one, aim.slots), one.engine))
    return Choice(best.engine, f"{REFERENCE} can't run it: {failed}")


def _better(one: Measured, own: Measured, aim: Aim) -> str:
    """Why it is better than the reference for this aim; empty where it isn't."""
    gain = _ratio(pace(one, aim.slots), pace(own, aim.slots))
    if aim.ttft_ms:
        if own.ttft_ms > aim.ttft_ms and one.ttft_ms * MARGIN <= own.ttft_ms:
            return f"first token in {one.ttft_ms:.0f} ms instead of {own.ttft_ms:.0f}"
        if one.ttft_ms > max(aim.ttft_ms, own.ttft_ms):
            return ""
    alone = _ratio(one.tokens_per_s.get(1, 0.0), own.tokens_per_s.get(1, 0.0))
    if gain >= MARGIN and alone >= MIN_ALONE:
        return f"{gain:.1f} times the tokens per second at up to {aim.slots} answers at once"
    return ""


def _ratio(one: float, other: float) -> float:
    return one / other if other > 0 else 0.0
