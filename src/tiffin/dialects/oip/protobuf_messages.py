"""The protocol's messages over gRPC (`inference.GRPCInferenceService`), fields in wire order.

Source: the numbers of https://github.com/kserve/open-inference-protocol and Triton's extensions.
"""

import msgspec

from tiffin.dialects.oip.protobuf import (
    Double,
    Doubles,
    Floats,
    Int32,
    Int64,
    UInt32,
    UInt64,
)


class Flag(msgspec.Struct, frozen=True):
    """Whether a server lives, is ready, or a model is: the answers to all three."""

    true: bool = False


class Nothing(msgspec.Struct, frozen=True):
    """A message without fields."""


class NamedModel(msgspec.Struct, frozen=True):
    """Asks about a model, or a version of it."""

    name: str = ""
    version: str = ""


class ServerTold(msgspec.Struct, frozen=True):
    """Who serves, and which extensions it knows."""

    name: str = ""
    version: str = ""
    extensions: list[str] = []


class TensorTold(msgspec.Struct, frozen=True):
    """One input or output of a model."""

    name: str = ""
    datatype: str = ""
    shape: list[Int64] = []


class ModelTold(msgspec.Struct, frozen=True):
    """What a model takes and gives."""

    name: str = ""
    versions: list[str] = []
    platform: str = ""
    inputs: list[TensorTold] = []
    outputs: list[TensorTold] = []


class Choice(msgspec.Struct, frozen=True):
    """The value of a parameter."""

    bool_param: bool | None = None
    int64_param: Int64 | None = None
    string_param: str | None = None
    double_param: Double | None = None
    uint64_param: UInt64 | None = None


class Contents(msgspec.Struct, frozen=True):
    """A tensor's elements, flat, in the one field that its datatype has."""

    bool_contents: list[bool] = []
    int_contents: list[Int32] = []
    int64_contents: list[Int64] = []
    uint_contents: list[UInt32] = []
    uint64_contents: list[UInt64] = []
    fp32_contents: Floats = b""
    fp64_contents: Doubles = b""
    bytes_contents: list[bytes] = []


class Tensor(msgspec.Struct, frozen=True):
    """An input or an output; its elements are here or among the raw contents beside it."""

    name: str = ""
    datatype: str = ""
    shape: list[Int64] = []
    parameters: dict[str, Choice] = {}
    contents: Contents | None = None


class WantedOutput(msgspec.Struct, frozen=True):
    """An output that is asked for."""

    name: str = ""
    parameters: dict[str, Choice] = {}


class InferCall(msgspec.Struct, frozen=True):
    """A request for tensors."""

    model_name: str = ""
    model_version: str = ""
    id: str = ""
    parameters: dict[str, Choice] = {}
    inputs: list[Tensor] = []
    outputs: list[WantedOutput] = []
    raw_input_contents: list[bytes] = []


class InferReply(msgspec.Struct, frozen=True):
    """Its answer."""

    model_name: str = ""
    model_version: str = ""
    id: str = ""
    parameters: dict[str, Choice] = {}
    outputs: list[Tensor] = []
    raw_output_contents: list[bytes] = []


class StreamReply(msgspec.Struct, frozen=True):
    """An answer inside a stream, or what went wrong with one request of it."""

    error_message: str = ""
    infer_response: InferReply | None = None


class IndexCall(msgspec.Struct, frozen=True):
    """Asks for the repository's models; `ready` leaves out those that aren't."""

    repository_name: str = ""
    ready: bool = False


class IndexRow(msgspec.Struct, frozen=True):
    """A model of the repository."""

    name: str = ""
    version: str = ""
    state: str = ""
    reason: str = ""


class IndexReply(msgspec.Struct, frozen=True):
    """The repository's models."""

    models: list[IndexRow] = []


class SwitchChoice(msgspec.Struct, frozen=True):
    """The value of a parameter of a load or unload."""

    bool_param: bool | None = None
    int64_param: Int64 | None = None
    string_param: str | None = None
    bytes_param: bytes | None = None


class SwitchCall(msgspec.Struct, frozen=True):
    """Asks to load or unload a model."""

    repository_name: str = ""
    model_name: str = ""
    parameters: dict[str, SwitchChoice] = {}
