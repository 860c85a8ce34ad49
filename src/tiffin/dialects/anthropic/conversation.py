"""A Messages request's conversation as a chat's, and where each of its parts comes from."""

from typing import Any, TypeVar

import msgspec

from tiffin.dialects.faults import shown
from tiffin.dialects.openai.parameters import not_supported
from tiffin.errors import SchemaViolation
from tiffin.types.messages import Block, Content, Turn
from tiffin.types.text import FunctionCall, Message, Part, ToolCall

ROLES = ("user", "assistant", "system")
# What a model thought is told to nobody but the one that thought it.
_THOUGHTS = ("thinking", "redacted_thinking")
_FAILED = "Error: "
V = TypeVar("V")


class Conversation:
    """Messages as they are collected; `places` says where each came from."""

    def __init__(self) -> None:
        self.messages: list[Message] = []
        self.places: dict[str, str] = {}

    def system(self, content: Content, where: str) -> None:
        """What the system says: text alone."""
        parts, places = _texts(content, where)
        self._add(Message(role="system", content=_content(parts)), where, places)

    def turn(self, turn: Turn, where: str) -> None:
        """One turn; raises `SchemaViolation` or `UnsupportedParameter` that names the block."""
        match turn.role:
            case "user":
                self._user(turn.content, where)
            case "assistant":
                self._assistant(turn.content, where)
            case "system":
                self.system(turn.content, where)
            case _:
                raise SchemaViolation(
                    f"'{where}.role' must be one of {', '.join(ROLES)}, not '{shown(turn.role)}'",
                    param=f"{where}.role",
                )

    def _add(self, message: Message, where: str, parts: list[str]) -> None:
        at = f"messages[{len(self.messages)}]"
        self.messages.append(message)
        self.places[at] = where
        if isinstance(message.content, list):
            self.places |= {f"{at}.content[{n}]": part for n, part in enumerate(parts)}

    def _user(self, content: Content, where: str) -> None:
        """Texts and images in a row are one message, each tool's result is one of its own."""
        parts: list[Part] = []
        places: list[str] = []
        blocks = _blocks(content, where)
        if not blocks:
            raise SchemaViolation(f"'{where}.content' must not be empty", param=f"{where}.content")
        for block, at in blocks:
            if block.type == "tool_result":
                self._said(parts, places, where)
                parts, places = [], []
                self._result(block, at)
            else:
                parts.append(_part(block, at))
                places.append(at)
        self._said(parts, places, where)

    def _said(self, parts: list[Part], places: list[str], where: str) -> None:
        if parts:
            self._add(Message(role="user", content=_content(parts)), where, places)

    def _result(self, block: Block, where: str) -> None:
        name = _needed(block.tool_use_id, f"{where}.tool_use_id")
        content = block.content
        if isinstance(content, dict):
            raise SchemaViolation(
                f"'{where}.content' must be a text or a list of blocks", param=f"{where}.content"
            )
        parts, places = _texts(content or "", where)
        if block.is_error:
            parts.insert(0, Part(type="text", text=_FAILED))
            places.insert(0, where)
        text = "".join(part.text or "" for part in parts)
        self._add(Message(role="tool", content=text, tool_call_id=name), where, places)

    def _assistant(self, content: Content, where: str) -> None:
        texts: list[Part] = []
        places: list[str] = []
        calls: list[ToolCall] = []
        for block, at in _blocks(content, where):
            if block.type == "text":
                texts.append(_part(block, at))
                places.append(at)
            elif block.type == "tool_use":
                calls.append(_call(block, at))
            elif block.type not in _THOUGHTS:
                raise not_supported(f"{at}.type")
        message = Message(
            role="assistant", content=_content(texts) if texts else None, tool_calls=calls or None
        )
        if texts or calls:  # what says nothing is no turn
            self._add(message, where, places)


def _blocks(content: Content, where: str) -> list[tuple[Block, str]]:
    if isinstance(content, str):
        return [(Block(type="text", text=content), f"{where}.content")] if content else []
    return [(block, f"{where}.content[{at}]") for at, block in enumerate(content)]


def _texts(content: Content, where: str) -> tuple[list[Part], list[str]]:
    """The blocks of what may have text alone, and where each is."""
    found = [(_part(block, at), at) for block, at in _blocks(content, where)]
    for part, at in found:
        if part.type != "text":
            raise not_supported(f"{at}.type")
    return [part for part, _ in found], [at for _, at in found]


def _content(parts: list[Part]) -> str | list[Part]:
    only = parts[0] if len(parts) == 1 else None
    if only is not None and only.type == "text":
        return only.text or ""
    return parts or ""


def _part(block: Block, where: str) -> Part:
    match block.type:
        case "text":
            return Part(type="text", text=_needed(block.text, f"{where}.text"))
        case "image":
            source = _needed(block.source, f"{where}.source")
            return Part(type="image_url", image_url={"url": _address(source, f"{where}.source")})
    raise not_supported(f"{where}.type")


def _address(source: dict[str, Any], where: str) -> str:
    match source:
        case {"type": "base64", "media_type": str(kind), "data": str(data)}:
            return f"data:{kind};base64,{data}"
        case {"type": "url", "url": str(url)}:
            return url
    raise not_supported(f"{where}.type")


def _call(block: Block, where: str) -> ToolCall:
    name = _needed(block.name, f"{where}.name")
    given = block.input if block.input is not None else {}
    if not isinstance(given, dict):
        raise SchemaViolation(f"'{where}.input' must be an object", param=f"{where}.input")
    function = FunctionCall(name=name, arguments=msgspec.json.encode(given).decode())
    return ToolCall(id=_needed(block.id, f"{where}.id"), type="function", function=function)


def _needed(value: V | None, param: str) -> V:
    if value is None:
        raise SchemaViolation(f"'{param}' is required", param=param)
    return value
