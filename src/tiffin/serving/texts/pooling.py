"""From what a graph gives for texts to vectors and scores; plain arithmetic on arrays."""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tiffin.errors import RunFailed, SchemaViolation

Vector = NDArray[np.float32]


def pooled(given: NDArray[Any], tokens: int, how: str) -> Vector:
    """The vector of one text from `[tokens and padding, width]`: its first token's, or the mean."""
    if how == "cls":
        return np.asarray(given[0], np.float32)
    return np.asarray(given[:tokens].mean(axis=0, dtype=np.float32))


def finished(vectors: Sequence[Vector], dimensions: int, *, normalize: bool) -> list[bytes]:
    """Vectors cut to `dimensions` (0: whole) and then brought to length 1, as little-endian floats.

    Raises `SchemaViolation` where they have fewer, `RunFailed` where one isn't made of finite
    numbers: JSON couldn't tell it.
    """
    stacked = np.stack(vectors)
    if dimensions > stacked.shape[1]:
        raise SchemaViolation(
            f"'dimensions' must be at most {stacked.shape[1]} for this model", param="dimensions"
        )
    if dimensions:
        stacked = stacked[:, :dimensions]
    if normalize:
        length = np.sqrt(np.square(stacked).sum(axis=1, keepdims=True))
        stacked = stacked / np.maximum(length, np.float32(1e-12))
    if not np.isfinite(stacked).all():
        raise RunFailed("the model gave a vector with numbers that aren't finite")
    return [row.tobytes() for row in stacked.astype("<f4", copy=False)]


def score(logits: NDArray[Any]) -> float:
    """How relevant one pair is, from 0 to 1: of one logit the logistic function, of two softmax.

    Raises `RunFailed` where it isn't a number.
    """
    logit = float(logits[-1]) - (float(logits[0]) if logits.size == 2 else 0.0)
    if not math.isfinite(logit):
        raise RunFailed("the model gave a score that isn't a finite number")
    return 0.5 + 0.5 * math.tanh(logit / 2)
