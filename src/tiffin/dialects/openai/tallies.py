"""What an answer made of rows (vectors, ranked documents) says it used, and that it is complete."""

from typing import Annotated

import msgspec
from msgspec import Meta

from tiffin.dialects.openai.errors import error_from_event
from tiffin.errors import UpstreamFailed
from tiffin.types.usage import Usage

Count = Annotated[int, Meta(ge=0, le=2**53)]
_NULL = msgspec.Raw(b"null")


class _Usage(msgspec.Struct, gc=False):
    prompt_tokens: Count | None = None
    input_tokens: Count | None = None
    total_tokens: Count | None = None


class _Meta(msgspec.Struct, gc=False):
    """Where Cohere's answers tell it."""

    tokens: _Usage | None = None


class _Rows(msgspec.Struct, gc=False):
    data: list[msgspec.Raw] | None = None
    results: list[msgspec.Raw] | None = None
    usage: msgspec.Raw = _NULL
    meta: msgspec.Raw = _NULL
    error: msgspec.Raw = _NULL


_ROWS = msgspec.json.Decoder(_Rows)
_USAGES = msgspec.json.Decoder(_Usage | None)
_METAS = msgspec.json.Decoder(_Meta | None)


def read_tally(body: bytes, rows: str, expected: int, *, trusted: bool) -> Usage:
    """The usage that an answer with so many `rows` reports; not `measured` where it doesn't.

    Raises `UpstreamFailed` where it is no such answer, and the error that it says it is.
    """
    try:
        told = _ROWS.decode(body)
    except msgspec.DecodeError as error:
        raise UpstreamFailed("the answer is none of the dialect's") from error
    if told.error != _NULL:
        raise error_from_event(body, trusted=trusted)
    found = getattr(told, rows)
    if found is None or len(found) != expected:
        count = "no" if found is None else len(found)
        raise UpstreamFailed(f"the answer has {count} '{rows}' where {expected} were asked for")
    try:
        usage = _USAGES.decode(told.usage)
        if usage is None and (meta := _METAS.decode(told.meta)) is not None:
            usage = meta.tokens
    except msgspec.ValidationError:
        usage = None
    if usage is None:
        return Usage(measured=False)
    counts = (usage.prompt_tokens, usage.input_tokens, usage.total_tokens)
    tokens = next((count for count in counts if count is not None), None)
    return Usage(prompt_tokens=tokens or 0, measured=tokens is not None)
