"""Tokens for runtimes that have no vocabulary: a byte of UTF-8 plus 1, and 0 for a start."""

from typing import Final

from tiffin.errors import SchemaViolation
from tiffin.types.text import Message, Tool

TOKENS: Final = 257


class Tokenizing:
    """The part of `ports.text_runtime.TextRuntime` that turns texts into tokens and back."""

    async def tokenize(
        self,
        *,
        text: str | None,
        messages: list[Message] | None,
        tools: list[Tool] | None,
        special: bool,
    ) -> list[int]:
        """Bytes plus one; 0 first where `special` and a text."""
        if messages is not None:
            return of_messages(messages)
        return [0] * special + tokens(text or "")

    async def detokenize(self, tokens: list[int]) -> str:
        """The text of such tokens."""
        return text_of(ids(tokens))


def said(message: Message) -> str:
    """What a message says."""
    if isinstance(message.content, list):
        return "".join(part.text or "" for part in message.content)
    return message.content or ""


def prompts(asked: str | list[str | int | list[int]]) -> list[list[int]]:
    """The prompts of a completion."""
    if isinstance(asked, str):
        return [tokens(asked)]
    numbers = [token for token in asked if isinstance(token, int)]
    if numbers:
        return [ids(numbers)]
    return [tokens(text) if isinstance(text, str) else ids(_list(text)) for text in asked]


def of_messages(messages: list[Message]) -> list[int]:
    """All that messages say, one after the other."""
    return [token for message in messages for token in (0, *tokens(said(message)))]


def tokens(text: str) -> list[int]:
    """A text's."""
    return [byte + 1 for byte in text.encode()]


def ids(given: list[int]) -> list[int]:
    """Tokens as a client gave them; raises `SchemaViolation` where one is none."""
    for at, token in enumerate(given):
        if not isinstance(token, int) or not 0 <= token < TOKENS:
            raise SchemaViolation(f"{token} is no token of this model", param=f"tokens[{at}]")
    return list(given)


def text_of(given: list[int]) -> str:
    """The text that tokens are of."""
    return bytes(token - 1 for token in given if token).decode("utf-8", "replace")


def _list(value: int | list[int]) -> list[int]:
    return [value] if isinstance(value, int) else value
