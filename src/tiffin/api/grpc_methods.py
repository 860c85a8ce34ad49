"""The methods of `inference.GRPCInferenceService`: each as a request to the site, and its answer.

Every method is one request over HTTP to the same site, so keys, limits, accounts and refusals are
the same. Statistics, shared memory, traces and logs aren't offered.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

import msgspec

from tiffin.api.grpc_exchange import CallExchange
from tiffin.dialects.oip import messages
from tiffin.dialects.oip.faults import refused
from tiffin.dialects.oip.messages import HEADER_LENGTH
from tiffin.dialects.oip.protobuf import read, write
from tiffin.dialects.oip.protobuf_infer import (
    model_path,
    plain,
    reply_of,
    spelled,
)
from tiffin.dialects.oip.protobuf_messages import (
    Flag,
    IndexCall,
    IndexReply,
    IndexRow,
    InferCall,
    InferReply,
    ModelTold,
    NamedModel,
    Nothing,
    ServerTold,
    SwitchCall,
    TensorTold,
)
from tiffin.errors import InvalidRequest

Headers = Mapping[bytes, bytes]
Asking = Callable[[bytes, Headers], CallExchange]

NOBODY: Final = b"/v2/models//infer"
"""Where a request goes whose model can't be read: it is refused, by somebody who is known."""


@dataclass(slots=True, frozen=True)
class Method:
    """`ask` reads a message into a request; `told` writes the answer to one that went well.

    `unready`: that a thing isn't ready is an answer, not an error.
    """

    ask: Asking
    told: Callable[[CallExchange], bytes]
    unready: bool = False


def ask_infer(message: bytes, headers: Headers) -> CallExchange:
    """A request for tensors; what can't be read is the fault of its exchange."""
    try:
        call = read(InferCall, message)
        if not call.model_name:
            raise refused("model_name", "expected a model's name, given none")
        request = spelled(call)
    except InvalidRequest as error:
        return CallExchange(b"POST", NOBODY, headers, fault=error)
    sized = {**headers, HEADER_LENGTH: b"%d" % request.header_length}
    return CallExchange(b"POST", request.path, sized, request.body)


def told_infer(exchange: CallExchange) -> InferReply:
    """The answer to a request for tensors."""
    return reply_of(exchange.sent, exchange.answer.get(HEADER_LENGTH))


def methods() -> dict[str, Method]:
    """All of them that answer one message with one, by name."""
    return {
        "ServerLive": Method(_page(b"/v2/health/live"), _flag),
        "ServerReady": Method(_page(b"/v2/health/ready"), _flag, unready=True),
        "ServerMetadata": Method(_page(b"/v2"), _server),
        "ModelReady": Method(_about("ready"), _flag, unready=True),
        "ModelMetadata": Method(_about(""), _model),
        "ModelInfer": Method(ask_infer, lambda exchange: write(told_infer(exchange))),
        "RepositoryIndex": Method(_index, _rows),
        "RepositoryModelLoad": Method(_switch("load"), _nothing),
        "RepositoryModelUnload": Method(_switch("unload"), _nothing),
    }


def _page(path: bytes) -> Asking:
    return lambda message, headers: CallExchange(b"GET", path, headers)


def _about(verb: str) -> Asking:
    def ask(message: bytes, headers: Headers) -> CallExchange:
        named = read(NamedModel, message)
        if not named.name:
            raise refused("name", "expected a model's name, given none")
        return CallExchange(b"GET", model_path(named.name, named.version, verb), headers)

    return ask


def _index(message: bytes, headers: Headers) -> CallExchange:
    body = msgspec.json.encode({"ready": read(IndexCall, message).ready})
    return CallExchange(b"POST", b"/v2/repository/index", headers, body)


def _switch(verb: str) -> Asking:
    def ask(message: bytes, headers: Headers) -> CallExchange:
        call = read(SwitchCall, message)
        if not call.model_name:
            raise refused("model_name", "expected a model's name, given none")
        path = b"/v2/repository" + model_path(call.model_name, "", verb).removeprefix(b"/v2")
        body = msgspec.json.encode({"parameters": plain(call.parameters)})
        return CallExchange(b"POST", path, headers, body)

    return ask


def _flag(exchange: CallExchange) -> bytes:
    return write(Flag(exchange.status == 200))


def _nothing(exchange: CallExchange) -> bytes:
    return write(Nothing())


def _server(exchange: CallExchange) -> bytes:
    told = msgspec.json.decode(exchange.sent, type=messages.ServerMetadata)
    return write(ServerTold(told.name, told.version, told.extensions))


def _model(exchange: CallExchange) -> bytes:
    told = msgspec.json.decode(exchange.sent, type=messages.ModelMetadata)
    inputs, outputs = (
        [TensorTold(one.name, one.datatype, one.shape) for one in tensors]
        for tensors in (told.inputs, told.outputs)
    )
    return write(ModelTold(told.name, told.versions, told.platform, inputs, outputs))


def _rows(exchange: CallExchange) -> bytes:
    rows = msgspec.json.decode(exchange.sent, type=list[messages.IndexedModel])
    return write(
        IndexReply([IndexRow(row.name, row.version, row.state, row.reason) for row in rows])
    )
