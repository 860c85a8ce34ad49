"""What the endpoints beside `infer` say and are asked: metadata, readiness, the repository."""

from collections.abc import Sequence
from typing import Final

import msgspec

from tiffin.dialects.oip.faults import check_kinds
from tiffin.dialects.oip.messages import (
    IndexedModel,
    IndexRequest,
    ModelMetadata,
    ModelReady,
    Parameters,
    ServerLive,
    ServerMetadata,
    ServerReady,
    TensorMetadata,
    version_of,
)
from tiffin.dialects.reader import Reader
from tiffin.errors import UnsupportedParameter, UpstreamFailed
from tiffin.types.snapshot import Plan

EXTENSIONS: Final = (
    "binary_tensor_data",
    "model_repository",
    "model_repository(unload_dependents)",
)
SERVER: Final = "tiffin"
UNLOAD_PARAMETERS: Final = ("unload_dependents",)


class Tensors(msgspec.Struct, frozen=True):
    """What a model takes and gives, as its server says; a text model has none."""

    platform: str = ""
    inputs: list[TensorMetadata] = []
    outputs: list[TensorMetadata] = []


class _Switch(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    parameters: Parameters = {}


_TENSORS = msgspec.json.Decoder(Tensors)
_INDEX = Reader(IndexRequest)
_SWITCH = Reader(_Switch)


def read_tensors(body: bytes, model: str) -> Tensors:
    """A server's metadata of a model; raises `UpstreamFailed` where it is none."""
    try:
        return _TENSORS.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise UpstreamFailed(f"'{model}' has metadata of another form: {error}") from error


def versions_of(plan: Plan) -> list[str]:
    """The version of the one model that a name stands for; a route has none of its own."""
    return [version_of(plan.targets[0].revision)] if len(plan.targets) == 1 else []


def metadata_body(plan: Plan, labels: Sequence[str], tensors: Tensors) -> bytes:
    """A model's metadata, under its public name, with our version of it and its others' labels."""
    told = ModelMetadata(
        plan.name, [*versions_of(plan), *labels], tensors.platform, tensors.inputs, tensors.outputs
    )
    return msgspec.json.encode(told)


def server_body(version: str) -> bytes:
    """Who serves."""
    return msgspec.json.encode(ServerMetadata(SERVER, version, list(EXTENSIONS)))


def live_body() -> bytes:
    """The server answers."""
    return msgspec.json.encode(ServerLive(live=True))


def ready_body() -> bytes:
    """The server takes requests."""
    return msgspec.json.encode(ServerReady(ready=True))


def model_ready_body(name: str) -> bytes:
    """The model takes requests."""
    return msgspec.json.encode(ModelReady(name, ready=True))


def index_body(models: Sequence[IndexedModel]) -> bytes:
    """The repository's models."""
    return msgspec.json.encode(models)


def only_ready(body: bytes) -> bool:
    """Whether a request for the index wants ready models alone; raises `InvalidRequest`."""
    return bool(body.strip()) and _INDEX.read(body)[0].ready


def check_switch(body: bytes, allowed: Sequence[str] = ()) -> None:
    """Raise `InvalidRequest` where a load or unload asks for what can't be done."""
    if not body.strip():
        return
    parameters = _SWITCH.read(body)[0].parameters
    for name in parameters:
        if name not in allowed:
            raise UnsupportedParameter(
                f"'{name[:80]}' isn't supported: a model is what the configuration says",
                param="parameters",
            )
    check_kinds("parameters", parameters)
