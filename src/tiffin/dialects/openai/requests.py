"""Bytes to one typed text request and back."""

from typing import Any

import msgspec

from tiffin.dialects.reader import Reader
from tiffin.types.text import (
    ChatRequest,
    CompletionRequest,
    DetokenizeRequest,
    StreamOptions,
    TextRequest,
    TokenizeRequest,
)

KINDS: dict[str, type[TextRequest]] = {
    "chat": ChatRequest,
    "completion": CompletionRequest,
    "tokenize": TokenizeRequest,
    "detokenize": DetokenizeRequest,
}

_ENCODER = msgspec.json.Encoder()
_WITH_USAGE = StreamOptions(include_usage=True)
_READERS: dict[str, Reader[Any]] = {kind: Reader(cls) for kind, cls in KINDS.items()}


def decode(kind: str, body: bytes) -> TextRequest:
    """The request of this kind that `body` spells; raises what `read` does."""
    return read(kind, body)[0]


def read(kind: str, body: bytes) -> tuple[TextRequest, bytes]:
    """The request of this kind that `body` spells, and its canonical spelling.

    Raises `MalformedBody`, `SchemaViolation` or `UnknownParameter` with the parameter's path.
    """
    return _READERS[kind].read(body)


def encode(request: TextRequest, *, model: str) -> bytes:
    """The canonical body to forward: the target's model name, and usage asked of every stream."""
    if isinstance(request, ChatRequest | CompletionRequest) and request.stream:
        streamed = msgspec.structs.replace(request, model=model, stream_options=_WITH_USAGE)
        return _ENCODER.encode(streamed)
    return _ENCODER.encode(msgspec.structs.replace(request, model=model))
