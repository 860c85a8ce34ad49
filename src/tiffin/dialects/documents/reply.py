"""What was read from a document, as JSON: pages of lines, their texts and where they stand."""

import msgspec

Point = tuple[float, float]


class DocumentLine(msgspec.Struct, frozen=True):
    """A line of text. `box` has its corners in the page's pixels, clockwise from where the text
    begins above; `confidence` is from 0 to 1."""

    text: str
    confidence: float
    box: tuple[Point, Point, Point, Point]


class DocumentPage(msgspec.Struct, frozen=True):
    """A page and its lines in the order in which they are read; sizes are pixels."""

    width: int
    height: int
    lines: list[DocumentLine]


class DocumentUsage(msgspec.Struct, frozen=True):
    """What reading took: `prepare_ms` went into everything but the models."""

    pages: int
    pixels: int
    prepare_ms: int


class DocumentReply(msgspec.Struct, frozen=True):
    """The whole answer."""

    model: str
    pages: list[DocumentPage]
    usage: DocumentUsage


def encode(reply: DocumentReply) -> bytes:
    """The answer's bytes."""
    return msgspec.json.encode(reply)
