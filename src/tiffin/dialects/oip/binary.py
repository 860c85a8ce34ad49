"""Strings in tensors and how many bytes follow a header, without a library of arrays."""

from collections.abc import Iterator
from typing import Any

import msgspec

from tiffin.dialects.oip.faults import refused, shown
from tiffin.dialects.oip.messages import (
    InferResponse,
    Parameters,
    RequestTensor,
    ResponseTensor,
    header_end,
)

SIZE = "binary_data_size"
PREFIX_BYTES = 4

_REPLY = msgspec.json.Decoder(InferResponse)


def size_of(tensor: RequestTensor | ResponseTensor) -> int | None:
    """How many bytes a tensor has after the header; None where its data is in the header.

    Raises `SchemaViolation` for a size that is none.
    """
    size = tensor.parameters.get(SIZE)
    if size is None:
        return None
    if type(size) is not int or size < 0:
        where = f"'{tensor.name}'.parameters.{SIZE}"
        raise refused(where, f"expected an integer from 0, given {shown(size)}")
    return size


def strings_of(data: msgspec.Raw, part: bytes | None) -> Iterator[str | None]:
    """The elements of a BYTES tensor from its JSON or its bytes; None for one that isn't text."""
    if part is not None:
        yield from _prefixed(part)
    elif memoryview(data).nbytes:
        yield from _flat(msgspec.json.decode(data))


def answer_strings(body: bytes, length: bytes) -> str:
    """All strings of a reply's BYTES outputs, one a line; bytes that aren't text are left out."""
    end = header_end(body, length or None)
    reply = _REPLY.decode(memoryview(body)[:end])
    found = list(_words(reply.parameters))
    at = end
    for tensor in reply.outputs:
        size = size_of(tensor)
        if tensor.datatype == "BYTES":
            part = body[at : at + size] if size is not None else None
            data = tensor.data if isinstance(tensor.data, msgspec.Raw) else msgspec.Raw(b"")
            found += [text for text in strings_of(data, part) if text is not None]
        at += size or 0
    return "\n".join(found)


def _words(parameters: Parameters) -> Iterator[str]:
    return (value for value in parameters.values() if isinstance(value, str))


def _prefixed(part: bytes) -> Iterator[str | None]:
    """Elements that each begin with their length, four bytes in little-endian order."""
    at = 0
    while at < len(part):
        begin = at + PREFIX_BYTES
        at = begin + int.from_bytes(part[at:begin], "little")
        if at > len(part):
            yield None
            return
        try:
            yield part[begin:at].decode()
        except UnicodeDecodeError:
            yield None


def _flat(value: Any) -> Iterator[str | None]:
    waiting = [value]
    while waiting:
        value = waiting.pop()
        if isinstance(value, list):
            waiting += reversed(value)
        else:
            yield value if isinstance(value, str) else None
