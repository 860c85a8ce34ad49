"""Whether a converted model answers as its original does, on the same rows."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from tiffin.errors import ArtifactError

ALLOWED = 1e-4


def agree(got: NDArray[Any], expected: NDArray[Any], what: str, rows: str) -> str:
    """A sentence with the greatest difference; raises `ArtifactError` where it is too great.

    Numbers beyond 1 are compared relative to their size. Labels must be the same.
    """
    if got.shape != expected.shape:
        if got.size != expected.size:
            raise ArtifactError(
                f"the converted model's {what} have shape {got.shape}, the original's"
                f" {expected.shape}: it isn't imported"
            )
        got = got.reshape(expected.shape)
    if expected.dtype.kind not in "fiub" or got.dtype.kind not in "fiub":
        return _same(got, expected, what, rows)
    gap = _gap(got.astype(np.float64), expected.astype(np.float64))
    if not gap <= ALLOWED:
        raise ArtifactError(
            f"on {rows} the converted model's {what} differ from the original's by up to"
            f" {gap:.3g}, {ALLOWED:.0e} is allowed: it isn't imported"
        )
    return (
        f"on {rows}, {what} differ from the original's by at most {gap:.1e}"
        f" ({ALLOWED:.0e} is allowed)"
    )


def _gap(got: NDArray[Any], expected: NDArray[Any]) -> float:
    both = np.isnan(got) & np.isnan(expected)
    equal = both | (got == expected)  # infinities too
    with np.errstate(invalid="ignore"):
        gaps = np.where(equal, 0.0, np.abs(got - expected) / np.maximum(1.0, np.abs(expected)))
    return float("inf") if np.isnan(gaps).any() else float(gaps.max(initial=0.0))


def _same(got: NDArray[Any], expected: NDArray[Any], what: str, rows: str) -> str:
    wrong = int((got.astype(str) != expected.astype(str)).sum())
    if wrong:
        raise ArtifactError(
            f"on {rows} the converted model gives {wrong} other {what} than the original:"
            " it isn't imported"
        )
    return f"on {rows}, {what} are the original's"
