"""The inbound edge of a replica of tensors: the Open Inference Protocol over one model.

What the gateway says about a request comes in `x-tiffin-*` headers; what the request used goes back
in `x-tiffin-usage`. Errors are in OpenAI's shape, as everywhere on the hop.
"""

from collections.abc import Awaitable, Callable
from typing import Any, Final, NamedTuple
from urllib.parse import unquote

import msgspec

from tiffin.api.hop import context_of, failures_told
from tiffin.dialects.oip.binding import Binding
from tiffin.dialects.oip.messages import (
    HEADER_LENGTH,
    ModelMetadata,
    ModelReady,
    TensorMetadata,
    is_version,
    version_of,
)
from tiffin.errors import (
    DeadlineExceeded,
    EndpointNotFound,
    MethodNotAllowed,
    ModelNotFound,
    TiffinError,
)
from tiffin.ports.exchange import Exchange
from tiffin.serving.tensors.measures import TensorMeasures
from tiffin.serving.tensors.replica import TensorReplica
from tiffin.telemetry.metrics import Meter
from tiffin.types.tensors import TensorSpec
from tiffin.types.usage import Usage

JSON: Final = (b"content-type", b"application/json")
BYTES: Final = (b"content-type", b"application/octet-stream")
USAGE: Final = b"x-tiffin-usage"
MODELS: Final = b"/v2/models/"
KNOWN_PATHS: Final = 64

Answer = Callable[[Exchange, str], Awaitable[None]]


class Identity(NamedTuple):
    """Which model this is: the digest of its revision, and what runs it."""

    revision: str
    platform: str


class TensorReplicaApi:
    """Answers exchanges from one replica, under whatever name the model is called by."""

    def __init__(
        self,
        replica: TensorReplica,
        identity: Identity,
        meter: Meter,
        measures: TensorMeasures,
        max_body_bytes: int,
    ) -> None:
        self._replica = replica
        self._identity = identity
        self._version = version_of(identity.revision)
        self._meter = meter
        self._measures = measures
        self._max_body_bytes = max_body_bytes
        self._monotonic = replica.clock.monotonic
        self._binding: Binding | None = None
        self._paths: dict[bytes, tuple[bytes, Answer, str]] = {
            b"/v2/health/live": (b"GET", self._live, ""),
            b"/v2/health/ready": (b"GET", self._ready, ""),
            b"/metrics.json": (b"GET", self._metrics, ""),
        }

    async def __call__(self, exchange: Exchange) -> None:
        """Answer one exchange; cancelling this stops the work behind it."""
        with failures_told(exchange):
            method, answer, name = self._paths.get(exchange.path) or self._find(exchange.path)
            if exchange.method != method:
                allowed = method.decode()
                raise MethodNotAllowed(f"this endpoint takes {allowed} only", allowed=allowed)
            await answer(exchange, name)

    def _find(self, path: bytes) -> tuple[bytes, Answer, str]:
        """What a path means; those that mean something are remembered."""
        parts = path.removeprefix(MODELS).split(b"/") if path.startswith(MODELS) else []
        if len(parts) >= 3 and parts[1] == b"versions":
            version = parts[2].decode("latin-1")
            if not is_version(version, self._identity.revision):
                raise ModelNotFound(
                    f"the model has no version '{version[:64]}'; it has {self._version}"
                )
            del parts[1:3]
        found: tuple[bytes, Answer] | None = None
        match parts:
            case [_, b"infer"]:
                found = (b"POST", self._infer)
            case [_, b"ready"]:
                found = (b"GET", self._model_ready)
            case [_]:
                found = (b"GET", self._metadata)
        if found is None:
            raise EndpointNotFound(f"a replica has no {path.decode('latin-1')[:80]}")
        known = (*found, unquote(parts[0].decode("latin-1")))
        if len(self._paths) < KNOWN_PATHS:
            self._paths[path] = known
        return known

    async def _infer(self, exchange: Exchange, name: str) -> None:
        monotonic = self._monotonic
        try:
            self._replica.check()
            binding = self._binding or self._bound()
            context = context_of(exchange, self._replica.clock)
            body = await exchange.body(self._max_body_bytes)
            began = monotonic()
            if began >= context.deadline:
                raise DeadlineExceeded("the deadline had passed before the request could be read")
            bound = binding.read(body, exchange.header(HEADER_LENGTH))
            read_s = monotonic() - began
            ran = await self._replica.infer(
                bound.inputs, bound.outputs, rows=bound.rows, context=context
            )
            answered = monotonic()
            data, header_length = binding.write(name, bound, ran.outputs)
        except TiffinError as error:
            self._measures.failed(error)
            raise
        except BaseException:  # the client left
            self._measures.failed(None)
            raise
        wrote_s = monotonic() - answered
        self._measures.shaped(read_s, wrote_s)
        told = (USAGE, _told(ran.usage, read_s + wrote_s))
        if header_length:
            length = (HEADER_LENGTH, b"%d" % header_length)
            exchange.respond(200, [BYTES, told, length], data)
        else:
            exchange.respond(200, [JSON, told], data)

    async def _metadata(self, exchange: Exchange, name: str) -> None:
        self._replica.check()
        signature = self._replica.signature
        _respond(
            exchange,
            ModelMetadata(
                name=name,
                versions=[self._version],
                platform=self._identity.platform,
                inputs=[_metadata_of(spec) for spec in signature.inputs],
                outputs=[
                    _metadata_of(spec) for spec in (*signature.outputs, *signature.extra_outputs)
                ],
            ),
        )

    async def _model_ready(self, exchange: Exchange, name: str) -> None:
        self._replica.check()
        _respond(exchange, ModelReady(name, True))

    async def _live(self, exchange: Exchange, _: str) -> None:
        _respond(exchange, {"live": True})

    async def _ready(self, exchange: Exchange, _: str) -> None:
        self._replica.check()
        _respond(exchange, {"ready": True})

    async def _metrics(self, exchange: Exchange, _: str) -> None:
        exchange.respond(200, [JSON], self._meter.state())

    def _bound(self) -> Binding:
        self._binding = Binding(self._replica.signature, self._version)
        return self._binding


def _told(usage: Usage, prepare_s: float) -> bytes:
    """A usage as JSON, of what isn't zero; written out because every answer has one."""
    return b'{"queue_ns":%d,"device_ns":%d,"prepare_ns":%d,"rows":%d,"reason":"%b"}' % (
        usage.queue_ns,
        usage.device_ns,
        prepare_s * 1e9,
        usage.rows,
        usage.reason.encode(),
    )


def _metadata_of(spec: TensorSpec) -> TensorMetadata:
    return TensorMetadata(name=spec.name, datatype=spec.datatype, shape=list(spec.shape))


def _respond(exchange: Exchange, answer: Any) -> None:
    exchange.respond(200, [JSON], msgspec.json.encode(answer))
