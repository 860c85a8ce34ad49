"""The Open Inference Protocol's messages (V2, with Triton's binary data): read without the numbers.

A tensor's JSON `data` stays the bytes that it came as, so the header of a large request is read at
the cost of finding its end. With binary data the header is the first part of the body, and the
tensors' bytes follow it in the order of the inputs that give a `binary_data_size`.
Source: https://github.com/kserve/open-inference-protocol and Triton's extension_binary_data.
"""

import json
import re
from collections.abc import Mapping
from types import MappingProxyType
from typing import Annotated, Final, Literal

import msgspec
from msgspec import Meta

from tiffin.errors import InvalidRequest, MalformedBody, SchemaViolation, UnknownParameter

HEADER_LENGTH: Final = b"inference-header-content-length"
"""The HTTP header that says how long the JSON header before binary data is, in lower case."""

Datatype = Literal[
    "BOOL", "UINT8", "UINT16", "UINT32", "UINT64", "INT8", "INT16", "INT32", "INT64",
    "FP16", "BF16", "FP32", "FP64", "BYTES",
]  # fmt: skip
Size = Annotated[int, Meta(ge=0, le=2**40)]
Shape = Annotated[list[Size], Meta(max_length=32)]
Name = Annotated[str, Meta(min_length=1, max_length=512)]
Parameters = dict[str, str | bool | int | float | None]

KINDS: Final[Mapping[str, tuple[type, ...]]] = MappingProxyType(
    {
        "binary_data": (bool,),
        "binary_data_output": (bool,),
        "binary_data_size": (int,),
        "classification": (int,),
        "content_type": (str,),
        "headers": (str,),
        "priority": (int,),
        "sequence_end": (bool,),
        "sequence_id": (int, str),
        "sequence_start": (bool,),
        "timeout": (int,),
        "triton_enable_empty_final_response": (bool,),
        "unload_dependents": (bool,),
    }
)
"""What the values of parameters are that mean something in the protocol or its extensions."""

NO_DATA: Final = msgspec.Raw(b"")
NO_PARAMETERS: Final[Parameters] = {}
MAX_READ_AGAIN_BYTES: Final = 262_144
UNKNOWN_FIELD: Final = re.compile(r"contains unknown field `(.*?)`")


class RequestTensor(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One input: its numbers are in `data`, or in the bytes after the header."""

    name: Name
    shape: Shape
    datatype: Datatype
    data: msgspec.Raw = NO_DATA
    parameters: Parameters = NO_PARAMETERS


class RequestedOutput(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """An output that is wanted; `binary_data` in its parameters asks for bytes."""

    name: Name
    parameters: Parameters = NO_PARAMETERS


class InferRequest(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The header of a request; without `outputs`, all that the model gives are wanted."""

    inputs: list[RequestTensor]
    id: str = ""
    parameters: Parameters = NO_PARAMETERS
    outputs: list[RequestedOutput] = []


class ResponseTensor(msgspec.Struct, frozen=True, omit_defaults=True):
    """One output; its numbers are in `data`, or in the bytes after the header."""

    name: str
    datatype: str
    shape: list[int]
    parameters: Parameters = NO_PARAMETERS
    data: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET


class InferResponse(msgspec.Struct, frozen=True, omit_defaults=True):
    """The header of a response."""

    model_name: str
    outputs: list[ResponseTensor]
    model_version: str = ""
    id: str = ""
    parameters: Parameters = NO_PARAMETERS


class TensorMetadata(msgspec.Struct, frozen=True):
    """One input or output of a model; -1 stands for a dimension of any size."""

    name: str
    datatype: str
    shape: list[int]


class ModelMetadata(msgspec.Struct, frozen=True):
    """What a model takes and gives."""

    name: str
    versions: list[str]
    platform: str
    inputs: list[TensorMetadata]
    outputs: list[TensorMetadata]


class ServerMetadata(msgspec.Struct, frozen=True):
    """Who serves, and which extensions of the protocol it knows."""

    name: str
    version: str
    extensions: list[str]


class ServerLive(msgspec.Struct, frozen=True):
    """The server answers."""

    live: bool


class ServerReady(msgspec.Struct, frozen=True):
    """The server can take requests. (The specification's text calls this field `live` too.)"""

    ready: bool


class ModelReady(msgspec.Struct, frozen=True):
    """A model can take requests."""

    name: str
    ready: bool


class IndexRequest(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Asks for the repository's models; `ready` leaves out those that aren't."""

    ready: bool = False


class IndexedModel(msgspec.Struct, frozen=True):
    """A model of the repository; `state` is READY, UNAVAILABLE, LOADING or UNLOADING."""

    name: str
    version: str
    state: str
    reason: str = ""


class ErrorReply(msgspec.Struct, frozen=True):
    """What an error looks like."""

    error: str


_INFER: Final = msgspec.json.Decoder(InferRequest)


def read_request(body: bytes, header_length: bytes | None) -> InferRequest:
    """The header of a request whose HTTP header `HEADER_LENGTH` is given; raises `InvalidRequest`.

    The bytes after it begin at `header_end`.
    """
    end = header_end(body, header_length)
    header = body if end == len(body) else memoryview(body)[:end]
    try:
        return _decoded(header)
    except msgspec.ValidationError as error:
        raise _fault(str(error)) from None
    except (msgspec.DecodeError, ValueError, OverflowError, RecursionError) as error:
        raise MalformedBody(f"the body isn't JSON that can be read: {error}") from None


def header_end(body: bytes, header_length: bytes | None) -> int:
    """Where the JSON header ends in the body; raises `InvalidRequest`."""
    if header_length is None:
        return len(body)
    if not header_length.isdigit() or len(header_length) > 12 or int(header_length) > len(body):
        told = header_length[:20].decode("latin-1")
        raise InvalidRequest(
            f"Inference-Header-Content-Length is {told!r}, and the body has {len(body)} bytes"
        )
    return int(header_length)


def is_version(text: str, revision: str) -> bool:
    """Whether a version in a path names this revision: 8 to 64 first hex digits of its digest."""
    return 8 <= len(text) <= 64 and revision.removeprefix("sha256:").startswith(text)


def version_of(revision: str) -> str:
    """A revision as its metadata lists it: 12 hex digits."""
    return revision.removeprefix("sha256:")[:12]


def _decoded(header: bytes | memoryview) -> InferRequest:
    try:
        return _INFER.decode(header)
    except msgspec.ValidationError as error:
        if "got `float`" not in str(error) or len(header) > MAX_READ_AGAIN_BYTES:
            raise
    # To JSON Schema, and to clients that only have one kind of number, 1.0 is an integer.
    tree = json.loads(bytes(header), parse_float=_number, parse_constant=_no_number)
    return _INFER.decode(msgspec.json.encode(tree))


def _number(text: str) -> int | float:
    value = float(text)
    return int(value) if value.is_integer() else value


def _no_number(text: str) -> float:
    raise ValueError(f"{text} isn't JSON; a missing value is null")


def _fault(told: str) -> InvalidRequest:
    """A decoder's complaint with the field at fault, by the way to it in the body."""
    message, _, where = told.partition(" - at `$")
    param = where.rstrip("`").removeprefix(".") or None
    unknown = UNKNOWN_FIELD.search(message)
    if unknown is not None:
        name = unknown.group(1)
        return UnknownParameter(
            f"there is no field '{name}' here", param=f"{param}.{name}" if param else name
        )
    shown = f"{param}: {message}" if param else message
    return SchemaViolation(shown, param=param)
