"""What a conversation of messages asks last."""

from typing import Protocol

import msgspec

from tiffin.dialects.dialect import Question
from tiffin.types.messages import Block, MessagesRequest


class Requesting(Protocol):
    """What holds a request, and the header lines that it needs."""

    request: MessagesRequest
    content: bytes


def question_of(asked: Requesting) -> Question | None:
    """The last turn, where it is the user's and is text."""
    *turns, last = asked.request.messages
    text = last.content
    if isinstance(text, list):
        text = (text[0].text or "") if text else ""
        if last.content != [Block(type="text", text=text)]:
            return None
    if last.role != "user":
        return None
    rest = [*turns, msgspec.structs.replace(last, content="")]
    meant = msgspec.structs.replace(asked.request, messages=rest, metadata=None)
    return Question(text, msgspec.json.encode(meant) + asked.content)
