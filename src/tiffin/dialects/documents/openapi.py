"""The documents' part of the OpenAPI document: one path and its schemas."""

from http import HTTPStatus
from typing import Any, Final

import msgspec

from tiffin.dialects.documents.dialect import DocumentRequest
from tiffin.dialects.documents.reply import DocumentReply
from tiffin.dialects.statuses import STATUS

JSON: Final = "application/json"
REF: Final = "#/components/schemas/"

# Generators of requests don't look at `contentEncoding`.
BASE64 = (
    "^(data:[A-Za-z0-9.+/-]*;base64,)?([A-Za-z0-9+/]{4})*([A-Za-z0-9+/]{2}==|[A-Za-z0-9+/]{3}=)?$"
)

Schema = dict[str, Any]

DESCRIPTION = """\
Send the file itself, or as a form's file, or as base64 in JSON. Images are PNG, JPEG, TIFF, WebP, \
BMP and GIF. A file that is encrypted, broken or too large is told so in a 4xx."""


def paths() -> Schema:
    """The endpoint."""
    binary = {"schema": {"type": "string", "format": "binary"}}
    form = {
        "type": "object",
        "properties": {"document": {"type": "string", "format": "binary"}},
        "required": ["document"],
        "additionalProperties": False,
    }
    name = {"type": "string", "minLength": 1, "maxLength": 256}
    return {
        "/v1/documents/{model}": {
            "post": {
                "operationId": "readDocument",
                "summary": "Read the text of an image or a PDF",
                "description": DESCRIPTION,
                "tags": ["Documents"],
                "parameters": [{"name": "model", "in": "path", "required": True, "schema": name}],
                "requestBody": {
                    "required": True,
                    "content": {
                        "application/pdf": binary,
                        "image/*": binary,
                        "multipart/form-data": {"schema": form},
                        JSON: _told("DocumentRequest"),
                    },
                },
                "responses": {
                    "200": {
                        "description": "The lines of every page",
                        "content": {JSON: _told("DocumentReply")},
                    },
                    **_errors(),
                },
            }
        }
    }


def schemas() -> Schema:
    """What it takes and gives, by name."""
    kinds = (DocumentRequest, DocumentReply)
    _, found = msgspec.json.schema_components(kinds, ref_template=REF + "{name}")
    request = found["DocumentRequest"]
    request["additionalProperties"] = False
    request["properties"]["document"] |= {
        "contentEncoding": "base64",
        "minLength": 4,
        "pattern": BASE64,
    }
    return found


def _errors() -> Schema:
    """Every status that an error may have."""
    content = {JSON: _told("Error")}
    return {
        str(status): {"description": HTTPStatus(status).phrase, "content": content}
        for status in sorted(set(STATUS.values()))
    }


def _told(schema: str) -> Schema:
    return {"schema": {"$ref": REF + schema}}
