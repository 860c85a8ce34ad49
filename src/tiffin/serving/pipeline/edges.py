"""What flows along a pipeline's edges, and whether one end fits the other.

A type is written `FP32[-1,3]`; `*` after it says that there are many of these (pages, lines), each
of its own size: a step that takes one of them runs once for each.
"""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Final

from tiffin.errors import ConfigInvalid
from tiffin.types.tensors import ANY, DATATYPE_BYTES, TensorSpec

_SPELLED: Final = re.compile(r"([A-Z0-9]+)\[((?:-?\d+)(?:,-?\d+)*|)\](\*?)(\??)")


@dataclass(frozen=True, slots=True)
class EdgeType:
    """A datatype and a shape (-1: any size); `many` of them; `optional` may be left out."""

    datatype: str
    shape: tuple[int, ...]
    many: bool = False
    optional: bool = False

    def __str__(self) -> str:
        sizes = ",".join(str(size) for size in self.shape)
        return f"{self.datatype}[{sizes}]{'*' * self.many}"


def edge_type(spelled: str) -> EdgeType:
    """`BYTES[-1]`, `UINT8[-1,-1,3]*`, `FP32[1]?` (optional); raises `ConfigInvalid`."""
    found = _SPELLED.fullmatch(spelled.replace(" ", ""))
    if found is None or found[1] not in DATATYPE_BYTES:
        raise ConfigInvalid(f'found "{spelled}", expected a type such as FP32[-1,3]')
    sizes = tuple(int(size) for size in found[2].split(",")) if found[2] else ()
    if any(size < ANY for size in sizes):
        raise ConfigInvalid(f'"{spelled}": a dimension is -1 (any size) or a size')
    return EdgeType(found[1], sizes, bool(found[3]), bool(found[4]))


def of_tensor(spec: TensorSpec) -> EdgeType:
    """A model's input or output as an edge's end."""
    return EdgeType(spec.datatype, spec.shape, optional=spec.optional)


def fits(given: EdgeType, taken: EdgeType) -> bool:
    """Whether what is given can be what is taken, as far as can be said before there is a value.

    Many where one is taken fit: the step runs for each. One where many are taken is one of them.
    """
    return given.datatype == taken.datatype and agree(given.shape, taken.shape)


def agree(one: Sequence[int], other: Sequence[int]) -> bool:
    """Whether two shapes can be the same."""
    return len(one) == len(other) and all(
        a == b or ANY in (a, b) for a, b in zip(one, other, strict=True)
    )


def narrowed(one: EdgeType, other: EdgeType) -> EdgeType:
    """Of two types that fit, the one that both allow."""
    shape = tuple(b if a == ANY else a for a, b in zip(one.shape, other.shape, strict=True))
    return replace(one, shape=shape, optional=one.optional and other.optional)


def joined(types: Sequence[EdgeType]) -> EdgeType | None:
    """What comes of several sources joined along the first dimension; None where they can't be.

    Only one of them may have run, so a type that fits for all is one that fits for each.
    """
    first = types[0]
    if len(types) == 1:
        return first
    for other in types[1:]:
        same = (other.datatype, other.many, len(other.shape)) == (
            first.datatype,
            first.many,
            len(first.shape),
        )
        if not same or not first.shape or not agree(first.shape[1:], other.shape[1:]):
            return None
    shape = [_common(kind.shape[at] for kind in types) for at in range(len(first.shape))]
    if not first.many:
        shape[0] = ANY
    return replace(first, shape=tuple(shape), optional=all(kind.optional for kind in types))


def _common(sizes: Iterable[int]) -> int:
    found = set(sizes)
    return found.pop() if len(found) == 1 else ANY
