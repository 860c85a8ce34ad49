"""One tensor of the Open Inference Protocol to an array and back, in JSON and in bytes.

In memory a tensor is a C-ordered numpy array: BYTES are `bytes` objects, BF16 the bits as uint16.
JSON's `null` is NaN in a floating tensor, both ways; an infinity can't be told in JSON. Only what
runs beside a model imports this module.
"""

from collections.abc import Callable
from functools import cache
from itertools import chain
from math import prod
from typing import Annotated, Any, Final

import msgspec
import numpy as np
from msgspec import Meta
from numpy.typing import NDArray

from tiffin.errors import InvalidRequest, RunFailed, SchemaViolation
from tiffin.types.tensors import DATATYPE_BYTES

Array = NDArray[Any]

DTYPES: Final[dict[str, Any]] = {
    "BOOL": np.dtype(np.bool_),
    "UINT8": np.dtype(np.uint8),
    "UINT16": np.dtype("<u2"),
    "UINT32": np.dtype("<u4"),
    "UINT64": np.dtype("<u8"),
    "INT8": np.dtype(np.int8),
    "INT16": np.dtype("<i2"),
    "INT32": np.dtype("<i4"),
    "INT64": np.dtype("<i8"),
    "FP16": np.dtype("<f2"),
    "BF16": np.dtype("<u2"),
    "FP32": np.dtype("<f4"),
    "FP64": np.dtype("<f8"),
    "BYTES": np.dtype(object),
}
"""The dtype that an array of each datatype has."""

FLOATING: Final = frozenset({"FP16", "BF16", "FP32", "FP64"})

# The first magnitude that no longer rounds to a finite number of the type.
_TOO_LARGE = {
    "FP16": 65520.0,
    "BF16": 3.3961775292304601e38,
    "FP32": 3.4028235677973366e38,
}
_INT_BITS = {"8": 8, "16": 16, "32": 32}
_MAX_DEPTH = 32

_encode = msgspec.json.encode
_encode_list: Callable[[Any], bytes] = msgspec.json.Encoder().encode


def from_json(what: str, datatype: str, shape: list[int], data: msgspec.Raw) -> Array:
    """The array that a tensor's JSON `data` (flat or nested) says; raises `SchemaViolation`.

    `what` names the tensor in messages: `input 'x'`.
    """
    text = bytes(data)
    depth = _depth(text)
    if depth == 0:
        raise SchemaViolation(f"{what}: data must be a list", param="inputs")
    try:
        values = _decoder(datatype, depth).decode(text)
    except msgspec.ValidationError as error:
        raise _wrong(what, datatype, error) from None
    except (msgspec.DecodeError, RecursionError) as error:
        raise SchemaViolation(f"{what}: data can't be read: {error}", param="inputs") from None
    if depth > 1:
        values = _flat(what, values, shape, depth)
    elif len(values) != prod(shape):
        raise _count(what, shape, prod(shape), len(values))
    return _shaped(what, _array(what, datatype, values), shape)


def from_bytes(what: str, datatype: str, shape: list[int], data: memoryview) -> Array:
    """The array that a tensor's bytes say; raises `SchemaViolation`. It may share their memory."""
    if datatype == "BYTES":
        return _strings(what, shape, data)
    dtype = DTYPES[datatype]
    expected = prod(shape) * DATATYPE_BYTES[datatype]
    if len(data) != expected:
        raise SchemaViolation(
            f"{what} of {datatype} {shape} takes {expected} bytes of binary data, not {len(data)}",
            param="inputs",
        )
    if datatype == "BOOL":
        bits = np.frombuffer(data, np.uint8)
        if bits.size and bits.max() > 1:
            raise SchemaViolation(f"{what}: a byte of a BOOL is 0 or 1", param="inputs")
        return _shaped(what, bits.view(np.bool_), shape)
    array = np.frombuffer(data, dtype)
    if not array.flags.aligned:
        array = array.copy()
    return _shaped(what, array, shape)


def to_json(name: str, datatype: str, array: Array) -> bytes:
    """An output's numbers as a flat JSON list; raises `RunFailed` for what JSON can't say."""
    if datatype == "BYTES":
        try:
            return _encode([item.decode() for item in array.ravel()])
        except UnicodeDecodeError:
            raise RunFailed(
                f"output '{name}' has bytes that aren't UTF-8, which JSON can't say;"
                f" ask for it with binary_data"
            ) from None
    if datatype == "BF16":
        array = from_bf16(array)
    told = _encode_list(array.ravel().tolist())
    if datatype in FLOATING and b"null" in told and np.isinf(array).any():
        raise RunFailed(
            f"output '{name}' has an infinite value, which JSON can't say;"
            f" ask for it with binary_data"
        )
    return told


def to_bytes(datatype: str, array: Array) -> bytes:
    """An output's numbers as bytes."""
    if datatype == "BYTES":
        return b"".join([len(item).to_bytes(4, "little") + item for item in array.ravel()])
    return array.tobytes()


def to_bf16(array: Array) -> Array:
    """Floating numbers as BF16's bits, rounded to the nearest even."""
    single = np.ascontiguousarray(array, np.float32)
    bits = single.view(np.uint32)
    rounded = (bits + (0x7FFF + ((bits >> 16) & 1))) >> 16
    # Rounding must not make an infinity of a NaN.
    return np.where(np.isnan(single), np.uint32(0x7FC0), rounded).astype(np.uint16)


def from_bf16(bits: Array) -> Array:
    """BF16's bits as FP32."""
    return (bits.astype(np.uint32) << 16).view(np.float32)


def _shaped(what: str, array: Array, shape: list[int]) -> Array:
    try:
        return array.reshape(shape)
    except ValueError:  # no elements, and still more than can be counted along the others
        raise SchemaViolation(f"{what} has an impossible shape: {shape}", param="inputs") from None


def _array(what: str, datatype: str, values: Any) -> Array:
    if datatype == "BYTES":
        array = np.empty(len(values), object)
        array[:] = [value.encode() for value in values]
        return array
    if datatype == "BF16":
        return to_bf16(np.array(values, np.float32))
    try:
        return np.array(values, DTYPES[datatype])
    except OverflowError:
        raise SchemaViolation(
            f"{what}: a value is out of the range of {datatype}", param="inputs"
        ) from None


def _strings(what: str, shape: list[int], data: memoryview) -> Array:
    count, at = prod(shape), 0
    if count * 4 > len(data):
        raise _cut(what)
    array = np.empty(count, object)
    for i in range(count):
        start = at + 4
        end = start + int.from_bytes(data[at:start], "little")
        if start > len(data) or end > len(data):
            raise _cut(what)
        array[i] = bytes(data[start:end])
        at = end
    if at != len(data):
        raise SchemaViolation(
            f"{what} has {len(data) - at} bytes after its {count} elements", param="inputs"
        )
    return _shaped(what, array, shape)


def _cut(what: str) -> SchemaViolation:
    return SchemaViolation(
        f"{what}: an element of BYTES is 4 bytes of length and then so many bytes; these end before"
        f" all elements of the shape have come",
        param="inputs",
    )


def _depth(text: bytes) -> int:
    """How many lists the first element is in."""
    depth = 0
    for byte in text:
        if byte == 0x5B:
            depth += 1
        elif byte not in b" \t\r\n":
            break
    return depth


def _flat(what: str, values: Any, shape: list[int], depth: int) -> Any:
    """Nested lists as one, once they are seen to have the shape that is claimed."""
    level, given = values, [len(values)]
    for _ in range(depth - 1):
        sizes = {len(item) for item in level}
        if len(sizes) > 1:
            raise SchemaViolation(
                f"{what}: the nested lists of data differ in length ({min(sizes)} and"
                f" {max(sizes)})",
                param="inputs",
            )
        given.append(sizes.pop() if sizes else 0)
        level = list(chain.from_iterable(level))
    if given != shape:
        raise SchemaViolation(
            f"{what} says the shape {shape}, and its data has {given}", param="inputs"
        )
    return level


def _count(what: str, shape: list[int], expected: int, given: int) -> SchemaViolation:
    return SchemaViolation(
        f"{what} of the shape {shape} takes {expected} values, not {given}", param="inputs"
    )


def _wrong(what: str, datatype: str, error: msgspec.ValidationError) -> InvalidRequest:
    message, _, where = str(error).partition(" - at `$")
    at = f" at data{where.rstrip('`')}" if where else ""
    return SchemaViolation(f"{what} of {datatype}: {message}{at}", param="inputs")


@cache
def _decoder(datatype: str, depth: int) -> msgspec.json.Decoder[Any]:
    """A decoder of lists in lists, `depth` of them, of what says a value of this datatype."""
    if depth > _MAX_DEPTH:
        raise SchemaViolation(f"data has lists in lists over {_MAX_DEPTH} deep", param="inputs")
    kind: Any
    if datatype == "BOOL":
        kind = bool
    elif datatype == "BYTES":
        kind = str
    elif datatype in FLOATING:
        bound = _TOO_LARGE.get(datatype)
        kind = (Annotated[float, Meta(gt=-bound, lt=bound)] if bound else float) | None
    else:
        kind = _integer(datatype)
    for _ in range(depth):
        kind = list[kind]
    return msgspec.json.Decoder(kind)


def _integer(datatype: str) -> Any:
    signed = datatype.startswith("INT")
    bits = _INT_BITS.get(datatype.removeprefix("U").removeprefix("INT"))
    if bits is None:  # a bound of 64 bits can't be given here: making the array finds it
        return int if signed else Annotated[int, Meta(ge=0)]
    low, high = (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1) if signed else (0, 2**bits - 1)
    return Annotated[int, Meta(ge=low, le=high)]
