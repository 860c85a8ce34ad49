"""What a request means without what changes no answer but its form, and what it asks last."""

from typing import Protocol, TypeVar

import msgspec

from tiffin.dialects.dialect import Question
from tiffin.types.text import ChatRequest, Part, TextRequest

_ASIDE = (
    *("stream", "stream_options", "user", "safety_identifier", "metadata", "store"),
    *("prompt_cache_key", "prompt_cache_retention"),
)

R = TypeVar("R", bound=msgspec.Struct)


class Requesting(Protocol):
    """What holds a request."""

    request: TextRequest


def as_meant(request: R) -> R:
    """The request without what changes no answer but its form; itself where it has none of that."""
    aside = {name: None for name in _ASIDE if getattr(request, name, None) is not None}
    return msgspec.structs.replace(request, **aside) if aside else request


def question_of(asked: Requesting) -> Question | None:
    """A chat's last message, where it is the user's and is text."""
    request = asked.request
    if not isinstance(request, ChatRequest):
        return None
    last = request.messages[-1]
    text = _only_text(last.content) if last.role == "user" else None
    if text is None:
        return None
    messages = [*request.messages[:-1], msgspec.structs.replace(last, content="")]
    rest = msgspec.structs.replace(as_meant(request), messages=messages)
    return Question(text, msgspec.json.encode(rest))


def _only_text(content: str | list[Part] | None) -> str | None:
    if isinstance(content, list):
        return content[0].text if len(content) == 1 and content[0].type == "text" else None
    return content
