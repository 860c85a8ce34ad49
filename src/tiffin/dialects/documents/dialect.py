"""`POST /v1/documents/{model}`: an image or a PDF in, its lines of text out.

The document comes as the body itself, as the file of a form, or as base64 in JSON. A target gets
its bytes alone, whichever way they came.
"""

import re
from binascii import Error, a2b_base64
from collections.abc import Iterator
from typing import Final
from urllib.parse import quote, unquote

import msgspec

from tiffin.dialects.dialect import Extent, Forward, Portion, Reading, Told, Whole
from tiffin.dialects.documents.reply import DocumentReply
from tiffin.dialects.forms import read_form
from tiffin.dialects.reader import Reader
from tiffin.errors import (
    EndpointNotFound,
    SchemaViolation,
    UnknownParameter,
    UpstreamFailed,
)
from tiffin.ports.exchange import Exchange
from tiffin.ports.guard import Piece
from tiffin.types.snapshot import Plan, Target
from tiffin.types.usage import Usage

PATH: Final = b"/v1/documents/"
PARTS: Final = ("document", "file")
"""What the file's part of a form may be called."""

_JSON: Final = (b"content-type", b"application/json")
_DATA_URL: Final = re.compile(r"data:[\w.+/-]*;base64,")
_BYTES: Final = b"content-type: application/octet-stream\r\n"


class DocumentRequest(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A document as JSON: `document` is base64 of its bytes, a `data:` URL too."""

    document: str


_REQUESTS = Reader(DocumentRequest)
_REPLY = msgspec.json.Decoder(DocumentReply)


def read_document(exchange: Exchange, body: bytes) -> "DocumentAsked":
    """The document that a request to `/v1/documents/{model}` carries; raises `InvalidRequest`."""
    name = exchange.path[len(PATH) :].decode("latin-1")
    if not name or "/" in name:
        raise EndpointNotFound("expected /v1/documents/{model}")
    document = document_of(exchange.header(b"content-type"), body)
    return DocumentAsked(unquote(name, errors="replace"), document)


class DocumentAsked:
    """One document; satisfies `dialects.dialect.Asked`."""

    __slots__ = ("_document", "model")

    operation = "document"
    streaming = False
    timeout_s = 0.0
    batch = False
    leaves_prefix = False
    offers_tools = False
    end_user = ""
    cached_as = "document"

    def __init__(self, model: str, document: bytes) -> None:
        self.model = model
        self._document = document

    def check(self, plan: Plan) -> None:
        """Raise `SchemaViolation` where there is no document."""
        if not self._document:
            raise SchemaViolation("the document is empty", param="document")

    def pieces(self) -> Iterator[Piece]:
        """A document can't be looked into before it is read."""
        yield Piece("document", None)

    def extent(self) -> Extent:
        """Pages, nobody knows how many."""
        return Extent(pages=1)

    def portions(self) -> Iterator[Portion]:
        """The document."""
        yield Portion("files", "document", 1)
        yield Portion("file_bytes", "document", len(self._document))

    def shorten(self, tokens: int) -> None:
        """What is read is as long as it is."""

    def canonical(self) -> bytes:
        """The document, whichever way it came."""
        return b"%b\n%b" % (self.model.encode(), self._document)

    def forward(self, target: Target) -> Forward:
        """The document's bytes."""
        name = quote(target.upstream_model or target.model, safe="")
        return Forward(PATH + name.encode(), _BYTES, self._document)

    def whole(self, told: Told, target: Target) -> Whole:
        """The answer as it came."""
        return Whole([_JSON], told.body, told.usage or Usage(measured=False))

    def reading(self, target: Target) -> Reading:
        """There is no stream to read; raises `UpstreamFailed`."""
        raise UpstreamFailed(f"'{target.model}' streams, and documents aren't streamed")

    def settle(self) -> None:
        """Nothing is kept of it."""

    def answer_text(self, body: bytes) -> str:
        """All lines of all pages."""
        reply = _REPLY.decode(body)
        return "\n".join(line.text for page in reply.pages for line in page.lines)


def document_of(content_type: bytes | None, body: bytes) -> bytes:
    """The document in a body of this kind; raises `InvalidRequest`."""
    kind = (content_type or b"").partition(b";")[0].strip().lower()
    if kind == b"multipart/form-data":
        return _from_form(content_type, body)
    if kind == b"application/json":
        return _from_json(body)
    return body


def _from_form(content_type: bytes | None, body: bytes) -> bytes:
    parts = read_form(content_type, body)
    for part in parts:
        if part.name not in PARTS:
            name = part.name[:40]
            raise UnknownParameter(f"there is no field '{name}'; send 'document'", param=name)
    if len(parts) != 1:
        raise SchemaViolation(
            f"expected one file called 'document', given {len(parts)}", param="document"
        )
    return body[parts[0].start : parts[0].end]


def _from_json(body: bytes) -> bytes:
    text = _REQUESTS.read(body)[0].document
    try:
        head = _DATA_URL.match(text)
        return a2b_base64(text[head.end() :] if head else text, strict_mode=True)
    except (Error, ValueError):
        raise SchemaViolation("'document' must be base64 of its bytes", param=PARTS[0]) from None
