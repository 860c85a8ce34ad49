"""A request for tensors over gRPC as the same request over HTTP, and the answer back.

Over HTTP it has the binary form: a JSON header and the tensors' bytes. Nothing is checked here that
the dialect checks; what is refused is what can't be said in that form.
"""

import struct
from collections.abc import Iterator, Mapping
from itertools import chain
from math import nan
from typing import Any, Final, NamedTuple
from urllib.parse import quote

import msgspec

from tiffin.dialects.oip.binary import PREFIX_BYTES, SIZE, size_of
from tiffin.dialects.oip.faults import refused, shown
from tiffin.dialects.oip.messages import InferResponse, Parameters, ResponseTensor, header_end
from tiffin.dialects.oip.paths import MODELS
from tiffin.dialects.oip.protobuf_messages import (
    Choice,
    Contents,
    InferCall,
    InferReply,
    SwitchChoice,
    Tensor,
)
from tiffin.errors import InvalidRequest, TiffinError, UpstreamFailed

MAX_INT64: Final = 2**63 - 1

# Which field of `Contents` has a datatype's elements, and how one is packed.
FIELDS: Final = {
    "BOOL": ("bool_contents", "?"),
    "INT8": ("int_contents", "b"),
    "INT16": ("int_contents", "h"),
    "INT32": ("int_contents", "i"),
    "INT64": ("int64_contents", "q"),
    "UINT8": ("uint_contents", "B"),
    "UINT16": ("uint_contents", "H"),
    "UINT32": ("uint_contents", "I"),
    "UINT64": ("uint64_contents", "Q"),
    "FP32": ("fp32_contents", "f"),
    "FP64": ("fp64_contents", "d"),
    "BYTES": ("bytes_contents", ""),
}
# Those that only an answer in JSON needs.
_PACKED: Final = {**{name: code for name, (_, code) in FIELDS.items()}, "FP16": "e"}
_FLOATING: Final = ("FP16", "BF16", "FP32", "FP64")
UNREADABLE: Final = (
    msgspec.DecodeError,
    InvalidRequest,
    LookupError,
    ValueError,
    RecursionError,
    struct.error,
)
_REPLY = msgspec.json.Decoder(InferResponse)


class Spelled(NamedTuple):
    """A request over HTTP: its path, how long the JSON header is, the body."""

    path: bytes
    header_length: int
    body: bytes


def model_path(model: str, version: str, verb: str = "") -> bytes:
    """The path of a model, of one version where one is given."""
    parts = [quote(model, safe="")]
    if version:
        parts += ["versions", quote(version, safe="")]
    if verb:
        parts.append(verb)
    return MODELS + "/".join(parts).encode()


def spelled(call: InferCall) -> Spelled:
    """The same request over HTTP, all answers as bytes; raises `InvalidRequest`."""
    raw = call.raw_input_contents
    if raw and len(raw) != len(call.inputs):
        raise refused(
            "raw_input_contents",
            f"expected one for each of the {len(call.inputs)} inputs, given {len(raw)}",
        )
    inputs: list[dict[str, Any]] = []
    tail = []
    for at, tensor in enumerate(call.inputs):
        data = _elements(f"inputs[{at}]", tensor, raw[at] if raw else None)
        tail.append(data)
        inputs.append(
            {
                "name": tensor.name,
                "shape": tensor.shape,
                "datatype": tensor.datatype,
                "parameters": {**plain(tensor.parameters), SIZE: len(data)},
            }
        )
    header: dict[str, Any] = {"id": call.id} if call.id else {}
    header["parameters"] = {**plain(call.parameters), "binary_data_output": True}
    header["inputs"] = inputs
    if call.outputs:
        header["outputs"] = [
            {"name": one.name, "parameters": {**plain(one.parameters), "binary_data": True}}
            for one in call.outputs
        ]
    head = msgspec.json.encode(header)
    path = model_path(call.model_name, call.model_version, "infer")
    return Spelled(path, len(head), b"".join([head, *tail]))


def reply_of(body: bytes, header_length: bytes | None) -> InferReply:
    """An answer over HTTP as one over gRPC; raises `UpstreamFailed` where it is none."""
    try:
        end = header_end(body, header_length)
        told = _REPLY.decode(memoryview(body)[:end])
        outputs, raw = [], []
        for tensor in told.outputs:
            size = size_of(tensor)
            raw.append(body[end : end + size] if size is not None else _from_json(tensor))
            end += size or 0
            if end > len(body):
                raise ValueError(f"the output '{tensor.name}' is cut")
            parameters = {name: it for name, it in tensor.parameters.items() if name != SIZE}
            kept = choices(parameters)
            outputs.append(Tensor(tensor.name, tensor.datatype, tensor.shape, kept))
    except UNREADABLE as error:
        raise UpstreamFailed("the answer has a form that can't be told over gRPC") from error
    version = told.model_version
    return InferReply(told.model_name, version, told.id, choices(told.parameters), outputs, raw)


def plain(parameters: Mapping[str, Choice] | Mapping[str, SwitchChoice]) -> dict[str, Any]:
    """Parameters as JSON has them; bytes become their number, for they have no name there."""
    return {name: _value(choice) for name, choice in parameters.items()}


def choices(parameters: Parameters) -> dict[str, Choice]:
    """Parameters of JSON as gRPC has them; one that is null is left out."""
    found = {name: _choice(value) for name, value in parameters.items()}
    return {name: choice for name, choice in found.items() if choice is not None}


def _value(choice: Choice | SwitchChoice) -> Any:
    given = [value for value in msgspec.structs.astuple(choice) if value is not None]
    value = given[0] if given else None
    return len(value) if isinstance(value, bytes) else value


def _choice(value: str | bool | int | float | None) -> Choice | None:
    if isinstance(value, bool):
        return Choice(bool_param=value)
    if isinstance(value, int):
        return Choice(uint64_param=value) if value > MAX_INT64 else Choice(int64_param=value)
    if isinstance(value, float):
        return Choice(double_param=value)
    return None if value is None else Choice(string_param=value)


def _elements(where: str, tensor: Tensor, raw: bytes | None) -> bytes:
    """The bytes of one input, from whichever place it has them."""
    given = _given(tensor.contents)
    if raw is not None:
        if given:
            raise refused(where, "expected contents or raw_input_contents, given both")
        return raw
    if not given:
        return b""
    field, code = FIELDS.get(tensor.datatype, ("raw_input_contents", ""))
    if list(given) != [field]:
        told = " and ".join(given)
        raise refused(
            f"{where}.contents", f"expected {field} for {shown(tensor.datatype)}, given {told}"
        )
    value = given[field]
    if isinstance(value, bytes):
        return value
    if field == "bytes_contents":
        return _prefixed(value)
    try:
        return struct.pack(f"<{len(value)}{code}", *value)
    except struct.error:
        raise refused(
            f"{where}.contents", f"expected {tensor.datatype}, given a number outside of it"
        ) from None


def _given(contents: Contents | None) -> dict[str, Any]:
    """The fields that have elements."""
    if contents is None:
        return {}
    return {name: value for name, value in msgspec.structs.asdict(contents).items() if value}


def _prefixed(elements: list[bytes]) -> bytes:
    """Elements of any length, each after four bytes with its length."""
    heads = [len(one).to_bytes(PREFIX_BYTES, "little") for one in elements]
    return b"".join(chain.from_iterable(zip(heads, elements, strict=True)))


def _from_json(tensor: ResponseTensor) -> bytes:
    """The bytes of an output that came as JSON, as from servers without the binary form."""
    if tensor.data is msgspec.UNSET:
        raise ValueError(f"the output '{tensor.name}' has no data")
    values = list(_flat(msgspec.json.decode(tensor.data)))
    if tensor.datatype == "BYTES":
        return _prefixed([str(value).encode() for value in values])
    if tensor.datatype in _FLOATING:
        values = [nan if value is None else value for value in values]
    if tensor.datatype == "BF16":
        singles = struct.pack(f"<{len(values)}f", *values)
        return b"".join([singles[at + 2 : at + 4] for at in range(0, len(singles), 4)])
    return struct.pack(f"<{len(values)}{_PACKED[tensor.datatype]}", *values)


def _flat(value: Any) -> Iterator[Any]:
    if isinstance(value, list):
        for inner in value:
            yield from _flat(inner)
    else:
        yield value


def error_of(body: bytes) -> str:
    """The message of an error over HTTP."""
    try:
        return str(msgspec.json.decode(body, type=dict[str, Any])["error"])
    except (msgspec.DecodeError, KeyError):
        return TiffinError.slug
