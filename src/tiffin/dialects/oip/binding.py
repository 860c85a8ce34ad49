"""An inference request bound to a model's signature, and arrays back to the response that it asked.

Everything that a request can be refused for is found here, before it queues. Only what runs beside
a model imports this module.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

import msgspec
from numpy.typing import NDArray

from tiffin.dialects.oip import arrays
from tiffin.dialects.oip.faults import check_kinds
from tiffin.dialects.oip.messages import (
    InferRequest,
    Parameters,
    RequestTensor,
    header_end,
    read_request,
)
from tiffin.errors import SchemaViolation, UnknownParameter, UnsupportedParameter
from tiffin.types.tensors import ANY, Signature, TensorSpec

BINARY: Final = "binary_data"
BINARY_SIZE: Final = "binary_data_size"
BINARY_OUTPUT: Final = "binary_data_output"

# Told by clients and without effect here: hints on content, and Triton's defaults.
HARMLESS: Final = frozenset(
    {"content_type", "headers", "priority", "timeout", "triton_enable_empty_final_response"}
)
# These ask for nothing when they are 0, empty or false, as Triton's clients send them.
OFF_BY_DEFAULT: Final = frozenset({"sequence_id", "sequence_start", "sequence_end"})

_encode = msgspec.json.encode


@dataclass(slots=True)
class Bound:
    """A request that the model can run. `rows` is 1 where rows aren't counted.

    `outputs` are the names that are wanted, in the order of the answer; `binary` those as bytes.
    """

    inputs: dict[str, NDArray[Any]]
    outputs: tuple[str, ...]
    rows: int
    binary: frozenset[str]
    id: str


class Binding:
    """Reads requests for one signature, and writes responses."""

    def __init__(self, signature: Signature, version: str) -> None:
        self._signature = signature
        self._version = version
        self._inputs = {spec.name: spec for spec in signature.inputs}
        # Most models take rows of a fixed shape: then one comparison says that a request fits.
        self._rests = {
            spec.name: list(spec.shape[1:]) if spec.shape[:1] == (ANY,) else None
            for spec in signature.inputs
        }
        self._needed = [spec.name for spec in signature.inputs if not spec.optional]
        self._all = tuple(spec.name for spec in signature.outputs)
        self._outputs = {s.name: s for s in (*signature.outputs, *signature.extra_outputs)}
        self._heads = {
            name: b'{"name":%b,"datatype":"%b","shape":' % (_encode(name), spec.datatype.encode())
            for name, spec in self._outputs.items()
        }

    def read(self, body: bytes, header_length: bytes | None) -> Bound:
        """A request's body as arrays that the model takes; raises `InvalidRequest`."""
        request = read_request(body, header_length)
        if request.parameters:
            _known(request.parameters, "parameters", (BINARY_OUTPUT,))
        tail = _NO_TAIL if header_length is None else _Tail(body, header_length)
        inputs: dict[str, NDArray[Any]] = {}
        for tensor in request.inputs:
            if tensor.name in inputs:
                raise SchemaViolation(f"input '{tensor.name}' is given twice", param="inputs")
            inputs[tensor.name] = self._input(tensor, tail)
        tail.check()
        for name in self._needed:
            if name not in inputs:
                raise SchemaViolation(
                    f"input '{name}' is missing; the model takes {_told(self._inputs[name])}",
                    param="inputs",
                )
        rows = self._rows(inputs)
        if request.outputs or request.parameters:
            outputs, binary = self._wanted(request)
        else:
            outputs, binary = self._all, _NONE
        return Bound(inputs, outputs, rows, binary, request.id)

    def write(
        self, name: str, bound: Bound, given: Mapping[str, NDArray[Any]]
    ) -> tuple[bytes, int]:
        """The response's body and the length of its JSON header, 0 where it is all JSON.

        `name` is the model as the client called it. Raises `RunFailed` for what JSON can't say.
        """
        parts = []
        tail = []
        for output in bound.outputs:
            array = given[output]
            spec = self._outputs[output]
            head = self._heads[output] + _encode(array.shape)
            if output in bound.binary:
                data = arrays.to_bytes(spec.datatype, array)
                tail.append(data)
                parts.append(b'%b,"parameters":{"binary_data_size":%d}}' % (head, len(data)))
            else:
                told = arrays.to_json(output, spec.datatype, array)
                parts.append(b'%b,"data":%b}' % (head, told))
        header = b'{"model_name":%b,"model_version":"%b"%b,"outputs":[%b]}' % (
            _encode(name),
            self._version.encode(),
            b',"id":' + _encode(bound.id) if bound.id else b"",
            b",".join(parts),
        )
        return (b"".join([header, *tail]), len(header)) if tail else (header, 0)

    def _input(self, tensor: RequestTensor, tail: "_Tail") -> NDArray[Any]:
        spec = self._inputs.get(tensor.name)
        if spec is None:
            names = ", ".join(self._inputs)
            raise UnknownParameter(
                f"there is no input '{tensor.name}'; the model takes: {names}", param="inputs"
            )
        shape = tensor.shape
        fits = (shape and shape[1:] == self._rests[spec.name]) or _fits(shape, spec.shape)
        if tensor.datatype != spec.datatype or not fits:
            raise SchemaViolation(
                f"input '{spec.name}' is {tensor.datatype} {tensor.shape};"
                f" the model takes {_told(spec)}",
                param="inputs",
            )
        return _tensor(f"input '{spec.name}'", tensor, tail)

    def _rows(self, inputs: Mapping[str, NDArray[Any]]) -> int:
        if not self._signature.batched or not inputs:
            return 1
        rows = -1
        for name, array in inputs.items():
            count = len(array)
            if count != rows and rows >= 0:
                told = ", ".join(f"{len(a)} in '{n}'" for n, a in inputs.items())
                raise SchemaViolation(
                    f"all inputs must have as many rows as each other, not {told}", param="inputs"
                )
            if count == 0:
                raise SchemaViolation(f"input '{name}' has no rows", param="inputs")
            rows = count
        return rows

    def _wanted(self, request: InferRequest) -> tuple[tuple[str, ...], frozenset[str]]:
        all_binary = request.parameters.get(BINARY_OUTPUT) is True
        if not request.outputs:
            return self._all, frozenset(self._all) if all_binary else _NONE
        names: list[str] = []
        binary = set()
        for output in request.outputs:
            if output.name not in self._outputs:
                raise UnknownParameter(
                    f"there is no output '{output.name}'; the model gives:"
                    f" {', '.join(self._outputs)}",
                    param="outputs",
                )
            if output.name in names:
                raise SchemaViolation(f"output '{output.name}' is asked for twice", param="outputs")
            names.append(output.name)
            if output.parameters:
                _known(output.parameters, "outputs.parameters", (BINARY,))
            if output.parameters.get(BINARY, all_binary) is True:
                binary.add(output.name)
        return tuple(names), frozenset(binary)


_NONE: Final[frozenset[str]] = frozenset()


class _Tail:
    """The bytes after the header, taken by the inputs in their order."""

    __slots__ = ("_at", "_body")

    def __init__(self, body: bytes, header_length: bytes | None) -> None:
        self._body = body
        self._at = header_end(body, header_length)

    def take(self, what: str, size: object) -> memoryview:
        """The next `size` bytes."""
        if not isinstance(size, int) or isinstance(size, bool) or size < 0:
            raise SchemaViolation(
                f"{what}: binary_data_size is a number of bytes, not {size!r}", param="inputs"
            )
        left = len(self._body) - self._at
        if size > left:
            raise SchemaViolation(
                f"{what} says {size} bytes of binary data, and {left} are left", param="inputs"
            )
        view = memoryview(self._body)[self._at : self._at + size]
        self._at += size
        return view

    def check(self) -> None:
        """Nothing may be left over."""
        if self._at != len(self._body):
            raise SchemaViolation(
                f"{len(self._body) - self._at} bytes after the header belong to no input",
                param="inputs",
            )


_NO_TAIL: Final = _Tail(b"", None)


def _tensor(what: str, tensor: RequestTensor, tail: _Tail) -> NDArray[Any]:
    if tensor.parameters:
        _known(tensor.parameters, "inputs.parameters", (BINARY_SIZE, BINARY))
        if BINARY_SIZE in tensor.parameters:
            if tensor.data:
                raise SchemaViolation(f"{what} has data and binary data", param="inputs")
            data = tail.take(what, tensor.parameters[BINARY_SIZE])
            return arrays.from_bytes(what, tensor.datatype, tensor.shape, data)
    if not tensor.data:
        raise SchemaViolation(f"{what} has no data", param="inputs")
    return arrays.from_json(what, tensor.datatype, tensor.shape, tensor.data)


def _fits(given: list[int], taken: tuple[int, ...]) -> bool:
    if len(given) != len(taken):
        return False
    for size, wanted in zip(given, taken, strict=True):
        if size != wanted and wanted != ANY:
            return False
    return True


def _told(spec: TensorSpec) -> str:
    return f"{spec.datatype} {list(spec.shape)}"


def _known(parameters: Parameters, where: str, honoured: tuple[str, ...]) -> None:
    check_kinds(where, parameters)
    for name, value in parameters.items():
        if name in honoured or name in HARMLESS or (name in OFF_BY_DEFAULT and not value):
            continue
        raise UnsupportedParameter(f"{where}: '{name}' can't be honoured here", param=where)
