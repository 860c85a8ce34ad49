"""A BERT-like encoder computed with numpy in FP64, straight from the formulas.

It shares nothing with the graph but the weights and the names, so that one can check the other.
"""

import math

import numpy as np
from numpy.typing import NDArray

from tiffin.adapters.importers.encoder_shape import EncoderShape
from tiffin.adapters.importers.weights import Weights

Doubles = NDArray[np.float64]
Ids = NDArray[np.int64]


def forward(
    shape: EncoderShape, weights: Weights, prefix: str, ids: Ids, lengths: list[int]
) -> list[Doubles]:
    """The hidden states [T,H] of each text alone, or its score [1]; padding isn't computed."""
    return [
        _Text(shape, weights, prefix).run(row[:length])
        for row, length in zip(ids, lengths, strict=True)
    ]


class _Text:
    """One text through all layers."""

    def __init__(self, shape: EncoderShape, weights: Weights, prefix: str) -> None:
        self._shape = shape
        self._weights = weights
        self._prefix = prefix

    def run(self, ids: Ids) -> Doubles:
        shape = self._shape
        first = shape.first_position
        x = self._rows("word", ids)
        x = x + self._rows("position", np.arange(first, first + len(ids)))
        if shape.types:
            x = x + self._rows("type", np.zeros_like(ids))
        x = self._norm(x, shape.names["norm"])
        for number in range(shape.layers):
            x = self._layer(x, shape.names["layer"].format(number))
        return self._score(x[0]) if shape.score else x

    def _layer(self, x: Doubles, layer: str) -> Doubles:
        names, heads = self._shape.names, self._shape.heads
        q, k, v = (self._map(x, layer + names[one]) for one in ("query", "key", "value"))
        width = self._shape.hidden // heads
        parts = []
        for head in range(heads):
            at = slice(head * width, (head + 1) * width)
            scores = q[:, at] @ k[:, at].T / math.sqrt(width)
            weight = np.exp(scores - scores.max(axis=1, keepdims=True))
            parts.append(weight / weight.sum(axis=1, keepdims=True) @ v[:, at])
        told = self._map(np.concatenate(parts, axis=1), layer + names["mixed"])
        x = self._norm(x + told, layer + names["mixed_norm"])
        inner = self._bend(self._map(x, layer + names["up"]))
        return self._norm(x + self._map(inner, layer + names["down"]), layer + names["down_norm"])

    def _bend(self, x: Doubles) -> Doubles:
        if self._shape.activation == "relu":
            return np.maximum(x, 0.0)
        if self._shape.activation == "gelu":
            below = np.vectorize(math.erf)(x / math.sqrt(2.0))
        else:
            below = np.tanh(math.sqrt(2.0 / math.pi) * (x + 0.044715 * x**3))
        bent: Doubles = 0.5 * x * (1.0 + below)
        return bent

    def _score(self, x: Doubles) -> Doubles:
        if "classifier.dense.weight" in self._weights:
            return self._map(
                np.tanh(self._map(x, "classifier.dense", own=False)),
                "classifier.out_proj",
                own=False,
            )
        if "pre_classifier.weight" in self._weights:
            inner = np.maximum(self._map(x, "pre_classifier", own=False), 0.0)
        else:
            inner = np.tanh(self._map(x, "pooler.dense"))
        return self._map(inner, "classifier", own=False)

    def _map(self, x: Doubles, name: str, *, own: bool = True) -> Doubles:
        weight, bias = self._get(f"{name}.weight", own=own), self._get(f"{name}.bias", own=own)
        mapped: Doubles = x @ weight.T + bias
        return mapped

    def _norm(self, x: Doubles, name: str) -> Doubles:
        centred = x - x.mean(axis=-1, keepdims=True)
        spread = np.sqrt((centred**2).mean(axis=-1, keepdims=True) + self._shape.epsilon)
        normed: Doubles = centred / spread * self._get(f"{name}.weight") + self._get(f"{name}.bias")
        return normed

    def _rows(self, table: str, at: Ids) -> Doubles:
        return self._weights[self._prefix + self._shape.names[table]][at].astype(np.float64)

    def _get(self, name: str, *, own: bool = True) -> Doubles:
        return self._weights[(self._prefix if own else "") + name].astype(np.float64)
