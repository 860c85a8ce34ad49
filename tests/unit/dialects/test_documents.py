"""Documents as a dialect of the walk: every way in leads to the same bytes."""

from base64 import b64encode
from typing import Any

import msgspec
import pytest

from tiffin.dialects.dialect import Told
from tiffin.dialects.documents.dialect import DocumentAsked, read_document
from tiffin.dialects.documents.openapi import paths, schemas
from tiffin.dialects.documents.reply import DocumentLine, DocumentPage, DocumentReply, DocumentUsage
from tiffin.errors import (
    EndpointNotFound,
    InvalidRequest,
    MalformedBody,
    SchemaViolation,
    UnknownParameter,
)
from tiffin.testing.exchange import FakeExchange
from tiffin.types.snapshot import Plan, Target
from tiffin.types.usage import Usage

JSON = b"application/json"
CONTENT = b"%PDF-\x00\xff\r\n--x\r\n"
TARGET = Target(model="ocr", revision="r", kind="pipeline")
PLAN = Plan(name="ocr", identity="i", targets=(TARGET,))


def form(name: str = "document", *, parts: int = 1) -> tuple[bytes, bytes]:
    part = (
        b"--limit\r\ncontent-disposition: form-data; name=%b; filename=a.pdf\r\n"
        b"content-type: application/pdf\r\n\r\n%b\r\n" % (name.encode(), CONTENT)
    )
    return b'multipart/form-data; boundary="limit"', part * parts + b"--limit--\r\n"


def told(document: Any) -> tuple[bytes, bytes]:
    return b"application/json; charset=utf-8", msgspec.json.encode(document)


def asked(kind: bytes, body: bytes, path: bytes = b"/v1/documents/ocr") -> DocumentAsked:
    headers = [(b"content-type", kind)] if kind else []
    return read_document(FakeExchange(b"POST", path, headers=headers), body)


ENCODED = b64encode(CONTENT).decode()


@pytest.mark.parametrize(
    ("kind", "body"),
    [
        (b"application/pdf", CONTENT),
        (b"", CONTENT),
        (b"application/x-www-form-urlencoded", CONTENT),
        form(),
        form("file"),
        told({"document": ENCODED}),
        told({"document": "data:application/pdf;base64," + ENCODED}),
    ],
)
def test_every_way_in_leads_to_the_same_bytes(kind: bytes, body: bytes) -> None:
    request = asked(kind, body)
    request.check(PLAN)
    path, headers, content = request.forward(TARGET)
    assert (path, content) == (b"/v1/documents/ocr", CONTENT)
    assert headers == b"content-type: application/octet-stream\r\n"
    assert request.canonical() == asked(b"", CONTENT).canonical()
    assert [(piece.param, piece.text) for piece in request.pieces()] == [("document", None)]


@pytest.mark.parametrize(
    ("kind", "body", "error", "message"),
    [
        (*told({}), SchemaViolation, "'document' is required"),
        (*told([]), SchemaViolation, "the body must be an object, not an array"),
        (*told({"document": 1}), SchemaViolation, "'document' must be a string"),
        (*told({"document": "a?"}), SchemaViolation, "must be base64"),
        (*told({"document": "YQ==", "page": 1}), UnknownParameter, "'page'"),
        (b"application/json", b"{", MalformedBody, "not JSON"),
        (b"application/json", b"\xff", MalformedBody, "not UTF-8"),
        (
            JSON,
            b'{"document":"YQ==","document":"Yg=="}',
            MalformedBody,
            "'document' is given twice",
        ),
        (JSON, b'{"document":"YQ==","documen\\u0074":"Yg=="}', MalformedBody, "given twice"),
        (*form("image"), UnknownParameter, "no field 'image'"),
        (*form(parts=2), SchemaViolation, "given 2"),
        (b"multipart/form-data", b"", MalformedBody, "boundary"),
    ],
)
def test_what_is_wrong_is_named(
    kind: bytes, body: bytes, error: type[InvalidRequest], message: str
) -> None:
    with pytest.raises(error, match=message):
        asked(kind, body)


def test_nothing_is_no_document() -> None:
    with pytest.raises(SchemaViolation, match="empty"):
        asked(b"image/png", b"").check(PLAN)


@pytest.mark.parametrize("path", [b"/v1/documents/", b"/v1/documents/a/b"])
def test_a_path_names_one_model(path: bytes) -> None:
    with pytest.raises(EndpointNotFound):
        asked(b"", CONTENT, path)
    assert asked(b"", CONTENT, b"/v1/documents/a%2Fb").model == "a/b"


def test_the_answer_is_passed_on_and_its_words_can_be_guarded() -> None:
    corner = (0.0, 0.0)
    line = DocumentLine("Total: 5", 0.9, (corner, corner, corner, corner))
    pages = [DocumentPage(10, 20, [line, line]), DocumentPage(10, 20, [])]
    body = msgspec.json.encode(DocumentReply("ocr", pages, DocumentUsage(2, 400, 3)))
    usage = Usage(pages=2, pixels=400)
    request = asked(b"", CONTENT)
    whole = request.whole(Told(body, b"application/json", usage=usage), TARGET)
    assert (whole.body, whole.usage) == (body, usage)
    assert request.answer_text(body) == "Total: 5\nTotal: 5"


def test_the_endpoint_is_described() -> None:
    [described] = paths().values()
    assert set(described["post"]["requestBody"]["content"]) == {
        *("application/pdf", "image/*", "multipart/form-data", "application/json")
    }
    assert {"DocumentRequest", "DocumentReply", "DocumentLine"} <= set(schemas())
