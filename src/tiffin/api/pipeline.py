"""A pipeline's inbound edge: inference, documents where it reads them, metadata and health."""

from collections.abc import Mapping
from itertools import groupby
from typing import Any, Final
from urllib.parse import unquote

import msgspec
import numpy as np
from numpy.typing import NDArray

from tiffin.api.hop import context_of, failures_told, usage_header
from tiffin.dialects.documents import reply as documents
from tiffin.dialects.oip.binding import Binding
from tiffin.dialects.oip.messages import (
    HEADER_LENGTH,
    ModelMetadata,
    ModelReady,
    TensorMetadata,
    version_of,
)
from tiffin.dialects.oip.paths import MODELS, place_of
from tiffin.errors import EndpointNotFound
from tiffin.ports.exchange import Exchange, Headers
from tiffin.serving.pipeline.replica import PipelineReplica
from tiffin.serving.pipeline.run import Tally
from tiffin.telemetry.metrics import Meter
from tiffin.types.tensors import TensorSpec
from tiffin.types.usage import Usage

DOCUMENTS: Final = b"/v1/documents/"
DOCUMENT: Final = "document"
READ: Final = ("text", "confidence", "box", "page", "size")
"""The outputs of a pipeline that reads documents, whose input is `document` (UINT8, its bytes)."""

JSON: Final = (b"content-type", b"application/json")
_PASSED_ON: Final = (
    b"traceparent",
    b"x-tiffin-tenant",
    b"x-tiffin-request",
    b"x-tiffin-attempt",
    b"x-tiffin-priority",
    b"x-tiffin-weight",
)


class PipelineApi:
    """Answers exchanges from one pipeline."""

    def __init__(
        self, replica: PipelineReplica, meter: Meter, *, revision: str, max_body_bytes: int
    ) -> None:
        self._replica = replica
        self._meter = meter
        self._version = version_of(revision)
        self._max_body_bytes = max_body_bytes
        self._binding: Binding | None = None

    async def __call__(self, exchange: Exchange) -> None:
        """Answer one exchange; cancelling this stops the work behind it."""
        tally = Tally()
        with failures_told(exchange, tally.spent):
            await self._route(exchange, tally)

    async def _route(self, exchange: Exchange, tally: Tally) -> None:
        path, method = exchange.path, exchange.method
        if method == b"GET":
            self._look_up(exchange)
        elif path.startswith(DOCUMENTS):
            name = unquote(path[len(DOCUMENTS) :].decode("latin-1"))
            await self._document(exchange, name, tally)
        elif (place := place_of(path)) is not None and place.verb == "infer":
            await self._infer(exchange, place.model, tally)
        else:
            raise _nothing_there(exchange)

    def _look_up(self, exchange: Exchange) -> None:
        path = exchange.path
        if path == b"/v2/health/live":
            exchange.respond(200, [JSON], b'{"live":true}')
        elif path == b"/v2/health/ready":
            self._replica.check()
            exchange.respond(200, [JSON], b'{"ready":true}')
        elif path == b"/metrics.json":
            exchange.respond(200, [JSON], self._meter.state())
        elif path.startswith(MODELS) and (place := place_of(path)) is not None:
            self._replica.check()
            told: ModelMetadata | ModelReady
            if place.verb == "ready":
                told = ModelReady(name=place.model, ready=True)
            elif not place.verb:
                told = self._metadata(place.model)
            else:
                raise _nothing_there(exchange)
            exchange.respond(200, [JSON], msgspec.json.encode(told))
        else:
            raise _nothing_there(exchange)

    async def _infer(self, exchange: Exchange, model: str, tally: Tally) -> None:
        self._replica.check()
        binding = self._bound()
        body = await exchange.body(self._max_body_bytes)
        request = binding.read(body, exchange.header(HEADER_LENGTH))
        found, usage = await self._replica.infer(
            request.inputs,
            request.outputs,
            context_of(exchange, self._replica.clock),
            passed_on(exchange),
            tally,
        )
        request.outputs = tuple(name for name in request.outputs if name in found)
        answer, length = binding.write(model, request, found)
        headers: Headers = [JSON]
        if length:
            headers = [
                (b"content-type", b"application/octet-stream"),
                (HEADER_LENGTH, b"%d" % length),
            ]
        exchange.respond(200, [*headers, usage_header(usage)], answer)

    async def _document(self, exchange: Exchange, model: str, tally: Tally) -> None:
        self._replica.check()
        signature = self._replica.graph.signature
        if DOCUMENT not in {spec.name for spec in signature.inputs}:
            raise EndpointNotFound(f"the pipeline '{model}' takes no document")
        body = await exchange.body(self._max_body_bytes)
        inputs = {DOCUMENT: np.frombuffer(body, np.uint8)}
        found, usage = await self._replica.infer(
            inputs,
            READ,
            context_of(exchange, self._replica.clock),
            passed_on(exchange),
            tally,
        )
        answer = documents.encode(document_reply(model, found, usage))
        exchange.respond(200, [JSON, usage_header(usage)], answer)

    def _bound(self) -> Binding:
        if self._binding is None:
            self._binding = Binding(self._replica.graph.signature, self._version)
        return self._binding

    def _metadata(self, model: str) -> ModelMetadata:
        signature = self._replica.graph.signature
        return ModelMetadata(
            name=model,
            versions=[self._version],
            platform="tiffin_pipeline",
            inputs=[_told(spec) for spec in signature.inputs],
            outputs=[_told(spec) for spec in signature.outputs],
        )


def document_reply(
    model: str, found: Mapping[str, NDArray[Any]], usage: Usage
) -> documents.DocumentReply:
    """A document's outputs as its answer; lines come page by page."""
    pages = [documents.DocumentPage(int(width), int(height), []) for width, height in found["size"]]
    numbers = range(len(found["page"]))
    for page, lines in groupby(numbers, key=lambda at: int(found["page"][at])):
        pages[page].lines.extend(_line(found, at) for at in lines)
    spent = documents.DocumentUsage(usage.pages, usage.pixels, usage.prepare_ns // 1_000_000)
    return documents.DocumentReply(model, pages, spent)


def _line(found: Mapping[str, NDArray[Any]], at: int) -> documents.DocumentLine:
    a, b, c, d = ((round(float(x), 1), round(float(y), 1)) for x, y in found["box"][at])
    text = found["text"][at].decode()
    return documents.DocumentLine(text, round(float(found["confidence"][at]), 4), (a, b, c, d))


def passed_on(exchange: Exchange) -> bytes:
    """The header lines of a request that go along to the models of its steps."""
    found = ((name, exchange.header(name)) for name in _PASSED_ON)
    return b"".join(b"%b: %b\r\n" % (name, value) for name, value in found if value is not None)


def _told(spec: TensorSpec) -> TensorMetadata:
    return TensorMetadata(spec.name, spec.datatype, list(spec.shape))


def _nothing_there(exchange: Exchange) -> EndpointNotFound:
    shown = exchange.path.decode("latin-1")[:80]
    return EndpointNotFound(f"a pipeline has no {exchange.method.decode('latin-1')[:10]} {shown}")
