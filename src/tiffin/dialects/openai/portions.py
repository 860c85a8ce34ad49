"""How much of what a text request asks for, by its fields: what caps are held against."""

from collections.abc import Iterator
from typing import Any

import msgspec

from tiffin.dialects.dialect import Portion
from tiffin.types.text import ChatRequest, CompletionRequest, Part, TextRequest

# Of base64 three bytes are four characters.
_INLINE = "data:"


def portions(request: TextRequest) -> Iterator[Portion]:
    """What a request asks for, field by field."""
    if isinstance(request, ChatRequest):
        yield from _chat(request)
    elif isinstance(request, CompletionRequest):
        yield from _completion(request)


def _chat(request: ChatRequest) -> Iterator[Portion]:
    for name in ("max_tokens", "max_completion_tokens"):
        if (most := getattr(request, name)) is not None:
            yield Portion("output_tokens", name, most)
    yield from _choices(request)
    if request.tools is not None:
        yield Portion("tools", "tools", len(request.tools))
        schemas = [tool.function.parameters for tool in request.tools if tool.function.parameters]
        yield Portion("schema_bytes", "tools", sum(map(_size, schemas)))
    if isinstance(request.functions, list):
        yield Portion("tools", "functions", len(request.functions))
        yield Portion("schema_bytes", "functions", _size(request.functions))
    form = request.response_format
    if form is not None and form.json_schema is not None and form.json_schema.definition:
        field = "response_format.json_schema.schema"
        yield Portion("schema_bytes", field, _size(form.json_schema.definition))
    yield from _attachments(request)


def _completion(request: CompletionRequest) -> Iterator[Portion]:
    if request.max_tokens is not None:
        yield Portion("output_tokens", "max_tokens", request.max_tokens)
    yield from _choices(request)
    if request.best_of is not None:
        yield Portion("choices", "best_of", request.best_of)
    prompt = request.prompt
    if isinstance(prompt, list):
        ids = isinstance(prompt[0], int)
        yield Portion("input_tokens" if ids else "rows", "prompt", len(prompt))


def _choices(request: ChatRequest | CompletionRequest) -> Iterator[Portion]:
    if request.n is not None:
        yield Portion("choices", "n", request.n)
    if request.stop is not None:
        yield Portion("stops", "stop", 1 if isinstance(request.stop, str) else len(request.stop))


def _attachments(request: ChatRequest) -> Iterator[Portion]:
    """Images and files of all messages, how many of them are links, and how large others are."""
    count = {"images": 0, "files": 0, "links": 0}
    for at, message in enumerate(request.messages):
        content = message.content
        for number, part in enumerate(content if isinstance(content, list) else ()):
            if part.type == "text":
                continue
            count["images" if part.type == "image_url" else "files"] += 1
            text = text_of(part)
            if "://" in text[:16]:
                count["links"] += 1
            elif text:
                field = f"messages[{at}].content[{number}].{part.type}"
                yield Portion("file_bytes", field, _decoded_bytes(text))
    for of, amount in count.items():
        if amount:
            yield Portion(of, "messages", amount)


def text_of(part: Part) -> str:
    """An attachment's address, or its content as text; empty where it is referred to otherwise."""
    given: Any = part.image_url or part.input_audio or part.file
    if isinstance(given, dict):
        given = next((given[key] for key in ("url", "data", "file_data") if key in given), "")
    return given if isinstance(given, str) else ""


def _decoded_bytes(text: str) -> int:
    """How many bytes base64 stands for, whether or not it is in a `data:` URL."""
    start = text.find(",") + 1 if text.startswith(_INLINE) else 0
    return (len(text) - start) * 3 // 4


def _size(value: Any) -> int:
    return len(msgspec.json.encode(value))
