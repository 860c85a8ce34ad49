"""The Open Inference Protocol's `infer` as a dialect of the walk: only the header is looked at.

A target is sent the client's bytes: what is read here is what a request is, never its numbers.
"""

import re
from collections.abc import Iterator
from math import prod

import msgspec

from tiffin.dialects.dialect import (
    JSON_CONTENT,
    Extent,
    Forward,
    Piece,
    Portion,
    Reading,
    Told,
    Whole,
)
from tiffin.dialects.oip import errors
from tiffin.dialects.oip.binary import SIZE, answer_strings, size_of, strings_of
from tiffin.dialects.oip.faults import check_kinds, explained, refuse_duplicates, refused
from tiffin.dialects.oip.messages import (
    HEADER_LENGTH,
    InferRequest,
    InferResponse,
    Parameters,
    RequestedOutput,
    RequestTensor,
    header_end,
    read_request,
)
from tiffin.dialects.oip.paths import path_of, place_of
from tiffin.errors import (
    EndpointNotFound,
    InvalidRequest,
    MalformedBody,
    SchemaViolation,
    TiffinError,
    UnsupportedParameter,
    UpstreamFailed,
)
from tiffin.ports.exchange import Exchange, Headers
from tiffin.types.snapshot import Plan, Target
from tiffin.types.tensors import DATATYPE_BYTES
from tiffin.types.usage import Usage

MAX_TENSORS = 256
# More objects than that many tensors and their parameters are; what has more isn't decoded.
MAX_OBJECTS = 2_000
MAX_TIMEOUT_US = 86_400_000_000
BINARY = b"application/octet-stream"
# It names memory of the server's machine, which is nobody's to name from outside.
FORBIDDEN = "shared_memory"

# A string matches closed or not, so that hostile quotes cost one pass.
_STRING_OR_OBJECT = re.compile(rb'"[^"\\]*+(?:\\.[^"\\]*+)*+(?:"|\\?\Z)|{', re.DOTALL)
_REPLY = msgspec.json.Decoder(InferResponse)


class InferDialect:
    """Reads requests to `/v2/models/{model}[/versions/{version}]/infer`."""

    def read(self, exchange: Exchange, body: bytes) -> "InferAsked":
        """The request that path and body spell; raises `InvalidRequest`."""
        place = place_of(exchange.path)
        if place is None or place.verb != "infer":
            raise EndpointNotFound("expected /v2/models/{model}[/versions/{version}]/infer")
        encoding = exchange.header(b"content-encoding")
        if encoding is not None and encoding.lower() != b"identity":
            raise UnsupportedParameter("send the body without a content-encoding")
        length = exchange.header(HEADER_LENGTH)
        return InferAsked(place.name, body, length)

    def error(self, error: TiffinError) -> tuple[int, Headers, bytes]:
        """`{"error": message}` with the status of the table."""
        return errors.error_response(error)

    def stream_error(self, error: TiffinError) -> bytes:
        """The same object; there are no streams of tensors."""
        return errors.error_body(error)


class InferAsked:
    """One request for tensors; satisfies `dialects.dialect.Asked`."""

    __slots__ = (
        "_answer_header",
        "_body",
        "_end",
        "_length",
        "cached_as",
        "model",
        "operation",
        "request",
        "rows",
        "streaming",
        "timeout_s",
    )

    leaves_prefix = False
    offers_tools = False
    end_user = ""
    batch = False

    def __init__(self, model: str, body: bytes, length: bytes | None) -> None:
        self._end = end = header_end(body, length)
        if body.count(b"{", 0, end) > MAX_OBJECTS and _objects(body[:end]) > MAX_OBJECTS:
            raise MalformedBody(f"the header has more than {MAX_OBJECTS} objects")
        try:
            self.request = request = read_request(body, length)
        except SchemaViolation as error:
            raise explained(error, body[:end]) from None
        _check_fields(request)
        refuse_duplicates(request, body, end)
        self._body = body
        self._length = length
        self._answer_header = b""
        self.model = model
        self.operation = "infer"
        self.streaming = False
        self.cached_as = "tensors"
        self.timeout_s = _timeout_s(request.parameters)
        shape = request.inputs[0].shape
        self.rows = max(0, shape[0]) if shape else 1

    def check(self, plan: Plan) -> None:
        """What the fields mean together."""
        _once("inputs", self.request.inputs)
        _once("outputs", self.request.outputs)
        _check_parameters("parameters", self.request.parameters)
        for at, output in enumerate(self.request.outputs):
            if output.parameters:
                _check_parameters(f"outputs[{at}].parameters", output.parameters)
        binary = 0
        for at, tensor in enumerate(self.request.inputs):
            binary += self._check_tensor(at, tensor)
        told = len(self._body) - self._end
        if binary != told:
            raise InvalidRequest(
                f"expected {binary} bytes after the header, the sum of the inputs'"
                f" binary_data_size, given {told}"
            )

    def pieces(self) -> Iterator[Piece]:
        """Every string; tensors of numbers as what can't be looked into."""
        request = self.request
        yield Piece("id", request.id)
        yield from _parameter_strings("parameters", request.parameters)
        at_byte = self._end
        for at, tensor in enumerate(request.inputs):
            size = size_of(tensor)
            where = f"inputs[{at}]"
            yield Piece(f"{where}.name", tensor.name)
            yield from _parameter_strings(f"{where}.parameters", tensor.parameters)
            if tensor.datatype == "BYTES":
                part = self._body[at_byte : at_byte + size] if size is not None else None
                for index, text in enumerate(strings_of(tensor.data, part)):
                    yield Piece(f"{where}.data[{index}]", text)
            else:
                yield Piece(f"{where}.data", None)
            at_byte += size or 0
        for at, output in enumerate(request.outputs):
            yield Piece(f"outputs[{at}].name", output.name)
            yield from _parameter_strings(f"outputs[{at}].parameters", output.parameters)

    def extent(self) -> Extent:
        """Its rows."""
        return Extent(rows=self.rows)

    def portions(self) -> Iterator[Portion]:
        """Its rows."""
        yield Portion("rows", "inputs", self.rows)

    def shorten(self, tokens: int) -> None:
        """Tensors have the shape that they have."""

    def canonical(self) -> bytes:
        """The body as it came (the answer repeats its id), after where it was sent to."""
        return b"%b %b\n%b" % (
            self.model.encode(),
            self._length or b"",
            self._body,
        )

    def forward(self, target: Target) -> Forward:
        """The body as it came, to the target's name for the model."""
        content = JSON_CONTENT
        if self._length is not None:
            content = b"content-type: %b\r\n%b: %d\r\n" % (BINARY, HEADER_LENGTH, self._end)
        return Forward(path_of(target.upstream_model or target.model, "infer"), content, self._body)

    def whole(self, told: Told, target: Target) -> Whole:
        """The answer as it came; what isn't ours must be an answer of this protocol."""
        if target.kind == "remote":
            _check_reply(told, target)
        self._answer_header = told.inference_header
        headers = [errors.JSON]
        if told.inference_header:
            headers = [(b"content-type", BINARY), (HEADER_LENGTH, told.inference_header)]
        return Whole(headers, told.body, told.usage or Usage(rows=self.rows, measured=False))

    def reading(self, target: Target) -> Reading:
        """There is no stream to read; raises `UpstreamFailed`."""
        raise UpstreamFailed(f"'{target.model}' streams, and tensors aren't streamed")

    def settle(self) -> None:
        """Nothing is kept of it."""

    def answer_text(self, body: bytes) -> str:
        """All strings of the answer."""
        return answer_strings(body, self._answer_header)

    def _check_tensor(self, at: int, tensor: RequestTensor) -> int:
        """Raise what is wrong with one input; returns how many bytes it has after the header."""
        if prod(tensor.shape) > len(self._body):  # an element takes a byte at least
            raise refused(
                f"{_place(at, tensor)}.shape",
                f"expected the {prod(tensor.shape)} elements of the shape {tensor.shape},"
                f" given a body of {len(self._body)} bytes",
            )
        size = None
        if tensor.parameters:
            _check_parameters(f"{_place(at, tensor)}.parameters", tensor.parameters)
            size = size_of(tensor)
        if memoryview(tensor.data).nbytes:
            if size is not None:
                raise refused(_place(at, tensor), f"expected data or {SIZE}, given both")
            return 0
        if size is None:
            raise refused(_place(at, tensor), f"expected data or a {SIZE}, given neither")
        if self._length is None:
            raise refused(
                f"{_place(at, tensor)}.parameters.{SIZE}",
                "expected the header Inference-Header-Content-Length beside it, given none",
            )
        width = DATATYPE_BYTES[tensor.datatype]
        if width and size != width * prod(tensor.shape):
            raise refused(
                f"{_place(at, tensor)}.parameters.{SIZE}",
                f"expected {width * prod(tensor.shape)} bytes of {tensor.datatype} by the shape"
                f" {tensor.shape}, given {size}",
            )
        return size


def _check_fields(request: InferRequest) -> None:
    """What the structs leave open about single fields."""
    for name, given in (("inputs", request.inputs), ("outputs", request.outputs)):
        if len(given) > MAX_TENSORS:
            raise refused(name, f"expected at most {MAX_TENSORS}, given {len(given)}")
    if not request.inputs:
        raise refused("inputs", "expected at least one, given none")
    for at, tensor in enumerate(request.inputs):
        data = memoryview(tensor.data)
        if data.nbytes and data[0] != 0x5B:
            where = f"inputs[{at}].data"
            raise refused(where, f"expected a list for '{tensor.name}', given another kind")


def _timeout_s(parameters: Parameters) -> float:
    """The parameter `timeout`, which Triton counts in microseconds; 0 is none."""
    given = parameters.get("timeout", 0)
    if isinstance(given, bool) or not isinstance(given, int) or not 0 <= given <= MAX_TIMEOUT_US:
        raise refused("parameters.timeout", f"expected whole microseconds up to {MAX_TIMEOUT_US}")
    return given / 1e6


def _objects(header: bytes) -> int:
    """How many objects a text has, whatever its strings have."""
    return sum(found[0] == b"{" for found in _STRING_OR_OBJECT.finditer(header))


def _place(at: int, tensor: RequestTensor) -> str:
    return f"inputs[{at}] ('{tensor.name}')"


def _once(kind: str, tensors: list[RequestTensor] | list[RequestedOutput]) -> None:
    if len(tensors) > 1 and len({tensor.name for tensor in tensors}) < len(tensors):
        names = [tensor.name for tensor in tensors]
        twice = next(name for at, name in enumerate(names) if name in names[:at])
        raise refused(kind, f"expected every name once, given '{twice}' twice")


def _check_parameters(where: str, parameters: Parameters) -> None:
    check_kinds(where, parameters)
    for name in parameters:
        if name.startswith(FORBIDDEN):
            raise UnsupportedParameter(
                f"{where}: '{name}' isn't supported; send the tensor's data", param=where
            )


def _parameter_strings(where: str, parameters: Parameters) -> Iterator[Piece]:
    for name, value in parameters.items():
        yield Piece(where, name)
        if isinstance(value, str):
            yield Piece(f"{where}.{name}", value)


def _check_reply(told: Told, target: Target) -> None:
    """Raise `UpstreamFailed` where somebody's upstream answered with anything else."""
    try:
        end = header_end(told.body, told.inference_header or None)
        _REPLY.decode(memoryview(told.body)[:end])
    except (InvalidRequest, msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise UpstreamFailed(
            f"'{target.model}' didn't answer in the Open Inference Protocol"
        ) from error
