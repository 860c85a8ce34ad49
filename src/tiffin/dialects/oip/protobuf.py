"""Protocol buffers on the wire, for messages that are structs here: read and written, nothing else.

A field's number is its place in the struct, from 1. Scalars that may be None are a choice: the last
one counts, and their struct has nothing else. Repeated floating numbers stay the bytes that they
came as, little-endian. Fields that a struct doesn't have are passed over; groups are refused.
Source: https://protobuf.dev/programming-guides/encoding
"""

import struct
from collections.abc import Iterator
from functools import cache
from types import NoneType, UnionType
from typing import Annotated, Any, Final, NamedTuple, TypeVar, Union, get_args, get_origin

import msgspec

from tiffin.errors import MalformedBody

# Each costs about a microsecond of the loop that all requests share; bytes are free.
MAX_ITEMS: Final = 50_000

Int32 = Annotated[int, "int32"]
Int64 = Annotated[int, "int64"]
UInt32 = Annotated[int, "uint32"]
UInt64 = Annotated[int, "uint64"]
Double = Annotated[float, "double"]
Floats = Annotated[bytes, "floats", 4]
"""Repeated single-precision numbers, as bytes."""
Doubles = Annotated[bytes, "floats", 8]
"""Repeated double-precision numbers, as bytes."""

VARINT, FIXED64, LENGTH, FIXED32 = 0, 1, 2, 5
BITS: Final = {"int32": 32, "int64": 64, "uint32": 32, "uint64": 64}
LONGEST_VARINT: Final = 10

M = TypeVar("M", bound=msgspec.Struct)


class Field(NamedTuple):
    """One field on the wire. `message` is the struct of a message, or of a map's values."""

    name: str
    kind: str
    repeated: bool = False
    choice: bool = False
    message: type[msgspec.Struct] | None = None
    width: int = 0

    @property
    def joined(self) -> bool:
        """Whether what came in several pieces is one value."""
        return self.kind == "floats" or (self.kind == "message" and not self.repeated)


def read(kind: type[M], data: bytes) -> M:
    """A message of this kind; raises `MalformedBody` where it is none or has too many parts."""
    return _Reader().message(kind, data)


def write(message: msgspec.Struct) -> bytes:
    """A message's bytes, fields in the order of their numbers."""
    return b"".join(_written(message))


@cache
def fields_of(kind: type[msgspec.Struct]) -> tuple[Field, ...]:
    """The fields of a message; number 1 is the first."""
    return tuple(_field(field.name, field.type) for field in msgspec.structs.fields(kind))


class _Reader:
    """Reads one message with all that is in it."""

    def __init__(self) -> None:
        self._left = MAX_ITEMS

    def message(self, kind: type[M], data: bytes) -> M:
        fields = fields_of(kind)
        found: dict[str, Any] = {}
        for number, wire, value in self._parts(data):
            if number <= len(fields):
                self._keep(found, fields[number - 1], wire, value)
        for field in fields:
            # A message given twice is one: so are its bytes, one after the other.
            if field.name in found and field.joined:
                whole = b"".join(found[field.name])
                told = self.message(field.message, whole) if field.message else whole
                found[field.name] = told
        return kind(**found)

    def _parts(self, data: bytes) -> Iterator[tuple[int, int, Any]]:
        """Numbers, wire types and values: an integer where it is a varint, else bytes."""
        at, end = 0, len(data)
        value: int | bytes
        while at < end:
            self._spend(1)
            key, at = varint(data, at)
            wire = key & 7
            if wire == VARINT:
                value, at = varint(data, at)
            else:
                size, at = self._size(wire, data, at)
                value, at = data[at : at + size], at + size
            if at > end or not key >> 3:
                raise MalformedBody("the message ends inside a field, or has a field 0")
            yield key >> 3, wire, value

    def _size(self, wire: int, data: bytes, at: int) -> tuple[int, int]:
        if wire == LENGTH:
            return varint(data, at)
        if wire in (FIXED64, FIXED32):
            return (8 if wire == FIXED64 else 4), at
        raise MalformedBody(f"the message has a field of the wire type {wire}")

    def _keep(self, found: dict[str, Any], field: Field, wire: int, value: Any) -> None:
        """Take a field's value in; one on the wire as another kind counts as unknown."""
        if field.kind == "floats":
            if wire == LENGTH or (wire != VARINT and len(value) == field.width):
                if len(value) % field.width:
                    raise MalformedBody(f"{field.name} ends inside a number")
                found.setdefault(field.name, []).append(value)
        elif field.repeated:
            found.setdefault(field.name, []).extend(self._values(field, wire, value))
        elif field.kind == "map" and wire == LENGTH:
            key, entry = self._entry(field, value)
            found.setdefault(field.name, {})[key] = entry
        elif field.kind == "message" and wire == LENGTH:
            found.setdefault(field.name, []).append(value)
        else:
            for one in self._values(field, wire, value):
                if field.choice:
                    found.clear()
                found[field.name] = one

    def _values(self, field: Field, wire: int, value: Any) -> Iterator[Any]:
        """The values of a scalar or of messages: none, one, or a packed list of integers."""
        if field.kind in BITS or field.kind == "bool":
            if wire == VARINT:
                yield _integer(field.kind, value)
            elif wire == LENGTH and field.repeated:
                at = 0
                while at < len(value):
                    self._spend(1)
                    one, at = varint(value, at)
                    yield _integer(field.kind, one)
        elif field.kind == "double":
            if wire == FIXED64:
                yield struct.unpack("<d", value)[0]
        elif wire == LENGTH:
            if field.kind == "string":
                yield _text(field.name, value)
            else:
                yield self.message(field.message, value) if field.message else value

    def _entry(self, field: Field, data: bytes) -> tuple[str, msgspec.Struct]:
        """One entry of a map: field 1 is its key, 2 its value."""
        key, values = "", []
        for number, wire, value in self._parts(data):
            if number == 1 and wire == LENGTH:
                key = _text(field.name, value)
            elif number == 2 and wire == LENGTH:
                values.append(value)
        assert field.message is not None  # noqa: S101 - every map's values are messages
        return key, self.message(field.message, b"".join(values))

    def _spend(self, items: int) -> None:
        self._left -= items
        if self._left < 0:
            raise MalformedBody(
                f"the message has more than {MAX_ITEMS} parts; send large tensors as raw contents"
            )


def varint(data: bytes, at: int) -> tuple[int, int]:
    """The integer that begins at a place, and where it ends; raises `MalformedBody`."""
    value = shift = 0
    for byte in data[at : at + LONGEST_VARINT]:
        value |= (byte & 0x7F) << shift
        shift += 7
        if byte < 0x80:
            return value & 0xFFFF_FFFF_FFFF_FFFF, at + shift // 7
    raise MalformedBody("the message ends inside a number, or has one that is too long")


def _integer(kind: str, value: int) -> int | bool:
    if kind == "bool":
        return value != 0
    bits = BITS[kind]
    value &= (1 << bits) - 1
    return value - (1 << bits) if kind[0] == "i" and value >> (bits - 1) else value


def _text(name: str, value: bytes) -> str:
    try:
        return value.decode()
    except UnicodeDecodeError:
        raise MalformedBody(f"{name} isn't UTF-8") from None


def _field(name: str, given: Any) -> Field:
    """A field's kind by the type that the struct gives it."""
    origin, args = get_origin(given), get_args(given)
    if origin in (Union, UnionType):
        inner = next(arg for arg in args if arg is not NoneType)
        found = _field(name, inner)
        return found._replace(choice=found.kind != "message")
    if origin is list:
        return _field(name, args[0])._replace(repeated=True)
    if origin is dict:
        return Field(name, "map", message=args[1])
    if origin is Annotated:
        return Field(name, args[1], width=args[2] if len(args) > 2 else 0)
    plain = {str: "string", bytes: "bytes", bool: "bool"}
    if given in plain:
        return Field(name, plain[given])
    return Field(name, "message", message=given)


def _written(message: msgspec.Struct) -> Iterator[bytes]:
    for number, field in enumerate(fields_of(type(message)), 1):
        value = getattr(message, field.name)
        if value is None or not (value or field.choice):
            continue
        if field.kind == "map":
            for key, entry in value.items():
                inside = _put(1, "string", key) + _put(2, "message", entry)
                yield _sized(number, inside)
        elif field.kind == "floats":
            yield from (_sized_head(number, value), value)
        elif not field.repeated:
            yield _put(number, field.kind, value)
        elif field.kind in BITS or field.kind == "bool":
            yield _sized(number, b"".join([_varint(one) for one in value]))
        else:
            for one in value:
                if field.kind == "bytes":  # the large ones, without a copy
                    yield from (_sized_head(number, one), one)
                else:
                    yield _put(number, field.kind, one)


def _put(number: int, kind: str, value: Any) -> bytes:
    """One value with its key."""
    if kind == "double":
        return _varint(number << 3 | FIXED64) + struct.pack("<d", value)
    if kind in BITS or kind == "bool":
        return _varint(number << 3 | VARINT) + _varint(value)
    if kind == "string":
        value = value.encode()
    elif kind == "message":
        value = write(value)
    return _sized(number, value)


def _sized(number: int, value: bytes) -> bytes:
    return _sized_head(number, value) + value


def _sized_head(number: int, value: bytes) -> bytes:
    return _varint(number << 3 | LENGTH) + _varint(len(value))


def _varint(value: int) -> bytes:
    if 0 <= value < 0x80:
        return bytes((value,))
    value &= 0xFFFF_FFFF_FFFF_FFFF
    out = bytearray()
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)
