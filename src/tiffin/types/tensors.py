"""Tensors by name, type and shape: what a model takes and gives. No numbers, no library of them.

Datatypes are the Open Inference Protocol's (V2): `BOOL`, `INT8` … `UINT64`, `FP16`, `BF16`,
`FP32`, `FP64`, `BYTES`. A dimension of -1 may have any size.
"""

from typing import Final

import msgspec

DATATYPE_BYTES: Final[dict[str, int]] = {
    "BOOL": 1,
    "UINT8": 1,
    "UINT16": 2,
    "UINT32": 4,
    "UINT64": 8,
    "INT8": 1,
    "INT16": 2,
    "INT32": 4,
    "INT64": 8,
    "FP16": 2,
    "BF16": 2,
    "FP32": 4,
    "FP64": 8,
    "BYTES": 0,
}
"""Bytes of one element; 0 where elements differ in length."""

ANY: Final = -1


class TensorSpec(msgspec.Struct, frozen=True, kw_only=True):
    """One input or output as the model declares it. `optional` inputs may be left out."""

    name: str
    datatype: str
    shape: tuple[int, ...]
    optional: bool = False


class Signature(msgspec.Struct, frozen=True, kw_only=True):
    """What a model takes and gives.

    `batched` says that the first dimension of every input and output counts independent rows, so
    that rows of several requests may run as one. `extra_outputs` are given only when asked for by
    name (a decision, a label, reasons).
    """

    inputs: tuple[TensorSpec, ...]
    outputs: tuple[TensorSpec, ...]
    extra_outputs: tuple[TensorSpec, ...] = ()
    batched: bool = False
