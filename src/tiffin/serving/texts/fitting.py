"""How a graph that reads texts is fed, and where its answer comes out: found once, at load."""

from dataclasses import dataclass
from typing import Any, Final, Protocol

import numpy as np
from numpy.typing import NDArray

from tiffin.errors import LoadFailed
from tiffin.ports.tokenizer import Tokens
from tiffin.types.tensors import ANY, Signature, TensorSpec

IDS: Final = "input_ids"
MASK: Final = "attention_mask"
TYPES: Final = "token_type_ids"
POSITIONS: Final = "position_ids"

PAIR: Final = ("query", "document")
"""The inputs of a model that puts a pair's tokens together itself."""

_INTEGERS: Final = {"INT64": np.int64, "INT32": np.int32}
_FLOATS: Final = ("FP32", "FP16", "FP64")


class Manner(Protocol):
    """How a model reads texts, as its section says: `OnnxModel` is one, and so is `Whole`."""

    @property
    def task(self) -> str:
        """`embed` or `rerank`."""
        ...

    @property
    def pooling(self) -> str:
        """How a text's vector is made of its tokens'; `none` where the model does that."""
        ...

    @property
    def normalize(self) -> bool:
        """Whether vectors are brought to length 1."""
        ...

    @property
    def max_tokens(self) -> int:
        """The longest text."""
        ...

    @property
    def dimensions(self) -> bool:
        """Whether vectors may be cut on request."""
        ...


@dataclass(frozen=True, slots=True)
class Whole:
    """The manner of a model that gives vectors or scores of whole texts."""

    task: str
    max_tokens: int
    dimensions: bool = False
    pooling: str = "none"
    normalize: bool = True


@dataclass(frozen=True, slots=True)
class Fitting:
    """Which inputs the graph has, by type; `length` is the only one it takes, 0 any.

    `output` is the one that answers: `by_token` says that it has a vector for each token, `width`
    how many numbers are in its last dimension, 0 where the graph doesn't say.
    """

    inputs: tuple[tuple[str, Any], ...]
    length: int
    output: str
    by_token: bool
    width: int

    def arrays(self, tokens: Tokens, length: int) -> dict[str, NDArray[Any]]:
        """One row: the tokens, then zeros up to `length`; or the texts of a pair."""
        if self.inputs and self.inputs[0][0] in PAIR:
            return {
                name: np.array([[tokens.texts[PAIR.index(name)].encode()]], dtype)
                for name, dtype in self.inputs
            }
        count = len(tokens.ids)
        row: dict[str, NDArray[Any]] = {}
        for name, dtype in self.inputs:
            array = np.zeros((1, length), dtype)
            if name == IDS:
                array[0, :count] = tokens.ids
            elif name == MASK:
                array[0, :count] = 1
            elif name == TYPES:
                array[0, :count] = tokens.type_ids
            else:
                array[0] = np.arange(length)
            row[name] = array
        return row


def fitting(signature: Signature, model: Manner) -> Fitting:
    """How this model's graph is fed; raises `LoadFailed` where it isn't one that reads texts."""
    if model.task == "rerank" and {spec.name for spec in signature.inputs} == set(PAIR):
        pair = tuple((name, object) for name in PAIR)
        return Fitting(pair, length=0, output=_ranked(signature).name, by_token=False, width=1)
    inputs = [_input(spec) for spec in signature.inputs if not spec.optional or spec.name == TYPES]
    named = {name for name, _ in inputs}
    if IDS not in named:
        raise LoadFailed(f"the graph has no input '{IDS}', so it doesn't read texts")
    lengths = {spec.shape[1] for spec in signature.inputs if spec.name in named}
    [*fixed] = lengths - {ANY}
    if len(fixed) > 1:
        raise LoadFailed("the graph's inputs differ in length")
    if fixed and MASK not in named:
        raise LoadFailed(f"the graph has a fixed length and no '{MASK}' to tell what is padding")
    output = _ranked(signature) if model.task == "rerank" else _vector(signature, model)
    return Fitting(
        inputs=tuple(inputs),
        length=fixed[0] if fixed else 0,
        output=output.name,
        by_token=len(output.shape) == 3,
        width=max(0, output.shape[-1]),
    )


def _input(spec: TensorSpec) -> tuple[str, Any]:
    if spec.name not in (IDS, MASK, TYPES, POSITIONS):
        raise LoadFailed(f"the graph has an input '{spec.name}', which a text doesn't give")
    if spec.datatype not in _INTEGERS or len(spec.shape) != 2:
        raise LoadFailed(f"the graph's input '{spec.name}' isn't a batch of whole numbers")
    return spec.name, _INTEGERS[spec.datatype]


def _vector(signature: Signature, model: Manner) -> TensorSpec:
    rank = 2 if model.pooling == "none" else 3
    for spec in signature.outputs:
        if spec.datatype in _FLOATS and len(spec.shape) == rank:
            return spec
    what = "one vector a text" if rank == 2 else "one vector a token"
    raise LoadFailed(
        f'the graph has no output with {what}, which pooling = "{model.pooling}" needs'
    )


def _ranked(signature: Signature) -> TensorSpec:
    for spec in signature.outputs:
        if spec.datatype in _FLOATS and len(spec.shape) in (1, 2):
            if len(spec.shape) == 2 and spec.shape[1] not in (ANY, 1, 2):
                raise LoadFailed(f"the graph tells {spec.shape[1]} classes; a reranker has 1 or 2")
            return spec
    raise LoadFailed("the graph has no output with a score for each pair")
