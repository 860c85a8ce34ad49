"""An ONNX file as bytes: its own notes read, outputs added, without the library for it.

The format is protobuf, in which a message's repeated fields may come in several parts: a model with
more outputs is the file with a few bytes after it. Field numbers are those of onnx.proto3.
"""

from collections.abc import Iterator
from typing import Final

_MODEL_GRAPH: Final = 7
_MODEL_OPSET: Final = 8
_MODEL_NOTES: Final = 14
_GRAPH_NODE: Final = 1
_GRAPH_INITIALIZER: Final = 5
_GRAPH_OUTPUT: Final = 12
_BYTES: Final = 2  # protobuf's wire type of texts, bytes and messages
_FLOAT: Final = 1  # TensorProto.DataType
_INT64: Final = 7
_LAST: Final = (1 << 64) - 1  # -1 as a varint
_AXES: Final = "tiffin_last_axis"
_AXES_ARE_INPUT: Final = 18  # from this version of the operators on

CLASSES: Final = "classes"
CONFIDENCE: Final = "confidence"

DATATYPES: Final = {
    "tensor(bool)": "BOOL",
    "tensor(uint8)": "UINT8",
    "tensor(uint16)": "UINT16",
    "tensor(uint32)": "UINT32",
    "tensor(uint64)": "UINT64",
    "tensor(int8)": "INT8",
    "tensor(int16)": "INT16",
    "tensor(int32)": "INT32",
    "tensor(int64)": "INT64",
    "tensor(float16)": "FP16",
    "tensor(bfloat16)": "BF16",
    "tensor(float)": "FP32",
    "tensor(double)": "FP64",
    "tensor(string)": "BYTES",
}
"""The protocol's names of onnxruntime's types."""


def notes(model: bytes) -> dict[str, str]:
    """What the file's maker noted in it (`metadata_props`), by key."""
    found = {}
    for number, value in _fields(memoryview(model)):
        if number == _MODEL_NOTES and not isinstance(value, int):
            entry = {key: _text(part) for key, part in _fields(value)}
            found[entry.get(1, "")] = entry.get(2, "")
    return found


def with_best(model: bytes, output: str) -> bytes:
    """The model with two more outputs: where the last axis of `output` is largest (`classes`,
    INT64), and how large (`confidence`, FP32)."""
    flat = _field(1, b"keepdims") + _number(3, 0) + _number(20, 2)
    axis = _field(1, b"axis") + _number(3, _LAST) + _number(20, 2)
    graph = [_node("ArgMax", [output], CLASSES, [axis, flat])]
    if _opset(model) < _AXES_ARE_INPUT:
        axes = _field(1, b"axes") + _number(8, _LAST) + _number(20, 7)
        graph.append(_node("ReduceMax", [output], CONFIDENCE, [axes, flat]))
    else:
        graph.append(_node("ReduceMax", [output, _AXES], CONFIDENCE, [flat]))
        values = _number(1, 1) + _number(2, _INT64) + _number(7, _LAST)
        graph.append(_field(_GRAPH_INITIALIZER, values + _field(8, _AXES.encode())))
    graph += [_output(CLASSES, _INT64), _output(CONFIDENCE, _FLOAT)]
    return model + _field(_MODEL_GRAPH, b"".join(graph))


def _opset(model: bytes) -> int:
    """The version of the operators that it is written in."""
    for number, value in _fields(memoryview(model)):
        if number == _MODEL_OPSET and not isinstance(value, int):
            entry = dict(_fields(value))
            version = entry.get(2, 0)
            if isinstance(version, int) and not _text(entry.get(1, memoryview(b""))):
                return version
    return 0


def _text(value: int | memoryview) -> str:
    return "" if isinstance(value, int) else bytes(value).decode("utf-8", "replace")


def _node(kind: str, taken: list[str], given: str, attributes: list[bytes]) -> bytes:
    parts = [_field(1, name.encode()) for name in taken]
    parts += [_field(2, given.encode()), _field(4, kind.encode())]
    parts += [_field(5, attribute) for attribute in attributes]
    return _field(_GRAPH_NODE, b"".join(parts))


def _output(name: str, kind: int) -> bytes:
    tensor = _field(1, _number(1, kind))
    return _field(_GRAPH_OUTPUT, _field(1, name.encode()) + _field(2, tensor))


def _field(number: int, value: bytes) -> bytes:
    return _varint(number << 3 | _BYTES) + _varint(len(value)) + value


def _number(number: int, value: int) -> bytes:
    return _varint(number << 3) + _varint(value)


def _varint(value: int) -> bytes:
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def _fields(message: memoryview) -> Iterator[tuple[int, int | memoryview]]:
    """The fields by number: numbers, and the bytes of all that has any."""
    at = 0
    while at < len(message):
        tag, at = _read_varint(message, at)
        kind = tag & 7
        if kind == 0:
            value, at = _read_varint(message, at)
            yield tag >> 3, value
        elif kind == _BYTES:
            size, at = _read_varint(message, at)
            yield tag >> 3, message[at : at + size]
            at += size
        else:
            at += 8 if kind == 1 else 4


def _read_varint(message: memoryview, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = message[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, at
        shift += 7
