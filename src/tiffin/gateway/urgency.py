"""Whether somebody waits for an answer: interactive work goes before batch work."""

from typing import Final

from tiffin.dialects.dialect import Asked
from tiffin.errors import InvalidRequest
from tiffin.ports.exchange import Exchange

PRIORITY: Final = b"x-tiffin-priority"


def is_batch(exchange: Exchange, asked: Asked) -> bool:
    """By the client's header, else by a field of its dialect (OpenAI's `service_tier: "flex"`).

    Raises `InvalidRequest` for a header that says neither `batch` nor `interactive`.
    """
    said = exchange.header(PRIORITY)
    if said is None:
        return asked.batch
    word = said.strip()
    if word not in (b"batch", b"interactive"):
        shown = word[:40].decode("latin-1")
        raise InvalidRequest(f"x-tiffin-priority is '{shown}'; give 'batch' or 'interactive'")
    return word == b"batch"
