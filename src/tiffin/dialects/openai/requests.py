"""Bytes to one typed text request and back."""

from typing import Any

import msgspec

from tiffin.dialects.reader import Reader
from tiffin.types.profiles import PLAIN, Profile
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


def encode(request: TextRequest, *, model: str, profile: Profile = PLAIN) -> bytes:
    """The canonical body to forward: the target's model name, and usage asked of every stream.

    In the words that a server of this `profile` knows.
    """
    changed: dict[str, Any] = {"model": model if profile.names_model else msgspec.UNSET}
    if isinstance(request, ChatRequest | CompletionRequest):
        if request.stream:
            changed["stream_options"] = _WITH_USAGE if profile.asks_usage else None
        changed |= dict.fromkeys(profile.unsent & set(request.__struct_fields__))
    if isinstance(request, ChatRequest):
        changed |= _as_known(request, profile)
    return _ENCODER.encode(msgspec.structs.replace(request, **changed))


def _as_known(request: ChatRequest, profile: Profile) -> dict[str, Any]:
    """What a profile changes in a chat: the limit's name, and participants' names."""
    changed: dict[str, Any] = {}
    if profile.limit_name:
        limit = request.max_completion_tokens or request.max_tokens
        changed = dict.fromkeys(("max_tokens", "max_completion_tokens"))
        changed[profile.limit_name] = limit
    if "messages.name" in profile.unsent:
        changed["messages"] = [
            msgspec.structs.replace(message, name=None) if message.name else message
            for message in request.messages
        ]
    return changed
