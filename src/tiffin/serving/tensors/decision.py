"""What a score means: a label, the score itself, and the features that moved it, given on request.

Reasons are found by occlusion: each feature in turn gets its reference value, and how much the
score falls by that is the feature's effect. It explains this model's score, not the world.
"""

import math
from collections.abc import Iterator, Mapping
from typing import Any, Final

import msgspec
import numpy as np
from numpy.typing import NDArray

from tiffin.config.models import Decision
from tiffin.dialects.oip.arrays import FLOATING, from_bf16
from tiffin.errors import LoadFailed, RunFailed, SchemaViolation
from tiffin.types.tensors import ANY, Signature, TensorSpec

Arrays = Mapping[str, NDArray[Any]]

DECISION: Final = "decision"
SCORE: Final = "score"
REASONS: Final = "reasons"
MAX_REASON_ROWS: Final = 256
"""Rows of one request that reasons are given for: each takes as many runs' rows as features."""


class Reason(msgspec.Struct, frozen=True):
    """A feature, and how much higher the score is than with the feature's reference value."""

    feature: str
    effect: float


class Deciding:
    """Makes the extra outputs of one model; raises `LoadFailed` where its settings don't fit it."""

    def __init__(self, settings: Decision, signature: Signature) -> None:
        self._settings = settings
        self.output = _score_output(settings, signature)
        self._threshold = np.float32(settings.threshold)
        self._labels = tuple(label.encode() for label in settings.labels)
        self._explains = bool(settings.features and settings.reference)
        self._columns = _columns(settings, signature) if self._explains else []
        names = {spec.name for spec in signature.outputs} & {DECISION, SCORE, REASONS}
        if names:
            raise LoadFailed(f"the model has outputs of its own called {', '.join(sorted(names))}")

    @property
    def specs(self) -> tuple[TensorSpec, ...]:
        """The extra outputs that this model has."""
        told = [(DECISION, "BYTES"), (SCORE, "FP32")]
        if self._explains:
            told.append((REASONS, "BYTES"))
        return tuple(TensorSpec(name=name, datatype=kind, shape=(ANY,)) for name, kind in told)

    def scores(self, outputs: Arrays) -> NDArray[np.float32]:
        """One score a row, from the model's own output; raises `RunFailed`."""
        given = outputs[self.output]
        array = from_bf16(given) if given.dtype == np.uint16 else given.astype(np.float32)
        if array.ndim == 2:
            column = self._settings.column if array.shape[1] > 1 else 0
            if column < array.shape[1]:
                array = array[:, column]
        if array.ndim != 1:
            raise RunFailed(
                f"the score is to be column {self._settings.column} of '{self.output}', which has"
                f" the shape {list(array.shape)}"
            )
        return array

    def decisions(self, scores: NDArray[np.float32]) -> NDArray[Any]:
        """One label a row; raises `RunFailed` for a score that is no number."""
        if np.isnan(scores).any():
            raise RunFailed("the model gave NaN as a score, so nothing can be decided")
        low, high = self._labels
        labels = np.empty(len(scores), object)
        labels[:] = [high if above else low for above in scores >= self._threshold]
        return labels

    def variants(self, inputs: Arrays) -> Iterator[Arrays]:
        """For each row of a request, that row and after it one with each feature occluded."""
        rows = len(next(iter(inputs.values())))
        if rows > MAX_REASON_ROWS:
            raise SchemaViolation(
                f"reasons are given for at most {MAX_REASON_ROWS} rows at once, not {rows}",
                param="outputs",
            )
        features = self._settings.features
        for row in range(rows):
            copies = {
                name: np.repeat(array[row : row + 1], len(features) + 1, axis=0)
                for name, array in inputs.items()
            }
            for number, value in enumerate(self._settings.reference, 1):
                name, column = self._columns[number - 1]
                where = (number, ...) if column is None else (number, column)
                copies[name][where] = value
            yield copies

    def reasons(self, scores: NDArray[np.float32]) -> bytes:
        """From the scores of one row's variants to the features that moved it most, as JSON."""
        effects = (float(scores[0]) - float(score) for score in scores[1:])
        told = [
            Reason(feature, effect)
            for feature, effect in zip(self._settings.features, effects, strict=True)
            if math.isfinite(effect)
        ]
        told.sort(key=lambda reason: -abs(reason.effect))
        return msgspec.json.encode(told[: self._settings.reasons])


def _score_output(settings: Decision, signature: Signature) -> str:
    floating = [spec.name for spec in signature.outputs if spec.datatype in FLOATING]
    name = settings.output or (floating[0] if len(floating) == 1 else "")
    if name not in floating:
        raise LoadFailed(
            f"decision.output must name the output with the scores, one of: {', '.join(floating)}"
        )
    return name


def _columns(settings: Decision, signature: Signature) -> list[tuple[str, int | None]]:
    """Where each feature is: an input's column, or an input of its own."""
    features, inputs = settings.features, signature.inputs
    if len(settings.reference) != len(features):
        raise LoadFailed(
            f"decision.reference has {len(settings.reference)} values for {len(features)} features"
        )
    if any(spec.datatype in ("BYTES", "BF16") for spec in inputs):
        raise LoadFailed("reasons need inputs that are numbers (and not BF16)")
    if len(inputs) == 1 and len(inputs[0].shape) == 2 and inputs[0].shape[1] in (-1, len(features)):
        return [(inputs[0].name, column) for column in range(len(features))]
    if len(inputs) == len(features):
        names = [spec.name for spec in inputs]
        return [(name, None) for name in (features if set(features) == set(names) else names)]
    raise LoadFailed(
        f"decision.features has {len(features)} names; the model takes"
        f" {', '.join(f'{spec.name} {list(spec.shape)}' for spec in inputs)}"
    )
