"""What a chat's answer says, whole or in chunks, for dialects that tell it in their own shape."""

from typing import Any

import msgspec

from tiffin.errors import UpstreamFailed


class Function(msgspec.Struct):
    """A call's function, or the part of it that a chunk brings."""

    name: str | None = None
    arguments: str | None = None


class Call(msgspec.Struct):
    """A part of a call."""

    index: int = 0
    id: str | None = None
    function: Function | None = None


class Delta(msgspec.Struct):
    """What a chunk adds to a choice."""

    content: str | None = None
    refusal: str | None = None
    tool_calls: list[Call] | None = None


class ChunkChoice(msgspec.Struct):
    """A choice in a chunk. `stop_reason` is the stop text that ended it, where a server tells."""

    index: int = 0
    delta: Delta | None = None
    finish_reason: str | None = None
    stop_reason: Any = None


class Chunk(msgspec.Struct):
    """A stream's event."""

    choices: list[ChunkChoice] | None = None


class WholeFunction(msgspec.Struct):
    """A whole call's function; `arguments` is JSON text."""

    name: str
    arguments: str


class WholeCall(msgspec.Struct):
    """A whole call."""

    id: str
    function: WholeFunction


class Said(msgspec.Struct):
    """A whole answer's message."""

    content: str | None = None
    refusal: str | None = None
    tool_calls: list[WholeCall] | None = None


class WholeChoice(msgspec.Struct):
    """A whole choice; `stop_reason` as in a chunk."""

    message: Said
    finish_reason: str | None = None
    stop_reason: Any = None


class _Completion(msgspec.Struct):
    choices: list[WholeChoice]


CHUNKS = msgspec.json.Decoder(Chunk)
_COMPLETIONS = msgspec.json.Decoder(_Completion)


def only_choice(body: bytes) -> WholeChoice:
    """The one choice of a whole answer; raises `UpstreamFailed` where it is none."""
    try:
        [choice] = _COMPLETIONS.decode(body).choices
    except (msgspec.DecodeError, ValueError) as error:
        raise UpstreamFailed("the answer is not one chat completion") from error
    return choice
