"""How much of what a Messages request asks for, by its fields: what caps are held against."""

from collections.abc import Iterator
from typing import Any

import msgspec

from tiffin.dialects.dialect import Portion
from tiffin.types.messages import Block, CountRequest, MessagesRequest

_ATTACHED = {"image": "images", "document": "files"}


def portions(request: MessagesRequest | CountRequest) -> Iterator[Portion]:
    """What a request asks for, field by field."""
    if isinstance(request, MessagesRequest):
        yield Portion("output_tokens", "max_tokens", request.max_tokens)
        if request.stop_sequences:
            yield Portion("stops", "stop_sequences", len(request.stop_sequences))
    if request.tools is not None:
        yield Portion("tools", "tools", len(request.tools))
        schemas = [tool.input_schema for tool in request.tools if tool.input_schema]
        yield Portion("schema_bytes", "tools", sum(map(_size, schemas)))
    form = request.output_config.format if request.output_config else None
    if form is not None:
        yield Portion("schema_bytes", "output_config.format", _size(form))
    yield from _attachments(request)


def links(request: MessagesRequest | CountRequest) -> Iterator[tuple[str, str]]:
    """The addresses of images and documents, and where each is."""
    for at, turn in enumerate(request.messages):
        for block, where in _blocks(turn.content, f"messages[{at}].content"):
            if block.source is not None and isinstance(url := block.source.get("url"), str):
                yield url, f"{where}.source.url"


def _attachments(request: MessagesRequest | CountRequest) -> Iterator[Portion]:
    """Images and files of all messages, how many of them are links, and how large others are."""
    count = {"images": 0, "files": 0, "links": 0}
    for at, turn in enumerate(request.messages):
        for block, where in _blocks(turn.content, f"messages[{at}].content"):
            of = _ATTACHED.get(block.type)
            if of is None or block.source is None:
                continue
            count[of] += 1
            count["links"] += "url" in block.source
            inline = block.source.get("data")
            if isinstance(inline, str):
                yield Portion("file_bytes", f"{where}.source", len(inline) * 3 // 4)
    for of, amount in count.items():
        if amount:
            yield Portion(of, "messages", amount)


def _blocks(content: Any, where: str) -> Iterator[tuple[Block, str]]:
    """Every block, those inside tools' results too."""
    for at, block in enumerate(content if isinstance(content, list) else ()):
        place = f"{where}[{at}]"
        yield block, place
        yield from _blocks(block.content, f"{place}.content")


def _size(value: Any) -> int:
    return len(msgspec.json.encode(value))
