"""What a token takes where an engine's inside can't be seen: fitted to the time of whole requests.

The time that requests held a slot is taken for a·(prompt - cached) + b·cached + c·completion, none
of a, b, c below 0, by least squares over what the ledger summed; a sum of n requests scatters like
n, so it counts 1/n.
"""

from collections.abc import Iterable, Mapping, Sequence
from itertools import combinations
from math import sqrt
from typing import Final

import msgspec

from tiffin.ports.ledger import Moments, Sum

LEAST_ROWS: Final = 8
"""Of fewer sums nothing is said."""

_TOKENS: Final = 3
_PICO: Final = 1000
_SINGULAR: Final = 1e-9

Matrix = Sequence[Sequence[float]]


class Fit(msgspec.Struct, frozen=True, kw_only=True):
    """Picoseconds that a `model` takes for a token: of the prompt read anew (`prefill`), found in a
    cache (`cached`), made (`decode`). `error` is the share of the time's squares that this doesn't
    explain, as a root; it was fitted to so many `rows` of sums.
    """

    model: str
    prefill_ps: int
    cached_ps: int
    decode_ps: int
    error: float
    rows: int

    def weight_ps(self, one: Sum) -> int:
        """What requests should have taken, by their tokens."""
        prompt = max(0, one.prompt_tokens)
        cached = min(max(0, one.cached_tokens), prompt)
        made = max(0, one.completion_tokens)
        return self.prefill_ps * (prompt - cached) + self.cached_ps * cached + self.decode_ps * made


def fits_of(found: Iterable[Moments]) -> dict[str, Fit]:
    """The fits of models, by name; without those of which too little is known."""
    fits = (fitted(one) for one in found)
    return {fit.model: fit for fit in fits if fit is not None}


def fitted(one: Moments) -> Fit | None:
    """The fit that least squares give, where the model was used enough."""
    square = one.products[-1][-1]
    if one.rows < LEAST_ROWS or square <= 0:
        return None
    # Of three weights the best is among the best of each choice of them that are above 0.
    best: dict[int, float] = {}
    least = square
    for count in range(1, _TOKENS + 1):
        for chosen in combinations(range(_TOKENS), count):
            weights = _solved(one.products, chosen)
            if weights is None or min(weights.values()) < 0:
                continue
            rest = _residual(one.products, weights)
            if rest < least:
                best, least = weights, rest
    picos = [round(best.get(at, 0.0) * _PICO) for at in range(_TOKENS)]
    if not any(picos):
        return None
    return Fit(
        model=one.target,
        prefill_ps=picos[0],
        cached_ps=picos[1],
        decode_ps=picos[2],
        error=sqrt(max(0.0, least) / square),
        rows=one.rows,
    )


def _solved(products: Matrix, chosen: Sequence[int]) -> dict[int, float] | None:
    """The weights of these alone, by elimination; None where they can't be told apart."""
    scale = [sqrt(products[at][at]) for at in chosen]
    if not all(scale):
        return None
    rows = [
        [products[a][b] / (scale[i] * scale[j]) for j, b in enumerate(chosen)]
        + [products[a][_TOKENS] / scale[i]]
        for i, a in enumerate(chosen)
    ]
    for at, row in enumerate(rows):  # what is above 0 in a matrix of products needs no pivots
        if row[at] < _SINGULAR:
            return None
        for other in rows:
            if other is not row:
                factor = other[at] / row[at]
                other[:] = [a - factor * b for a, b in zip(other, row, strict=True)]
    return {
        at: row[-1] / row[i] / scale[i]
        for i, (at, row) in enumerate(zip(chosen, rows, strict=True))
    }


def _residual(products: Matrix, weights: Mapping[int, float]) -> float:
    """The squares that these weights leave unexplained."""
    signed = {**weights, _TOKENS: -1.0}
    return sum(a * b * products[i][j] for i, a in signed.items() for j, b in signed.items())
