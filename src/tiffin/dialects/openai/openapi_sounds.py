"""The transcriptions' part of the OpenAPI document: one path and its schemas."""

from tiffin.dialects.openai.openapi import JSON, PLAIN, operation
from tiffin.dialects.openai.openapi_schemas import Schema, closed_object, open_object, ref
from tiffin.dialects.openai.transcriptions import FORMATS, MAX_NAME, MAX_PROMPT

VTT = "text/vtt"


def paths() -> Schema:
    """The endpoint."""
    text: Schema = {"type": "string"}
    answers = {JSON: ref("Transcript"), PLAIN: text, VTT: text}
    return {
        "/v1/audio/transcriptions": {
            "post": {
                **operation("createTranscription", "What is said in a sound file", answers),
                "requestBody": {
                    "required": True,
                    "content": {"multipart/form-data": {"schema": ref("TranscriptionForm")}},
                },
            }
        }
    }


def schemas() -> dict[str, Schema]:
    """The form and the answer."""
    form: Schema = {
        "file": {"type": "string", "format": "binary", "minLength": 1},
        "model": {"type": "string", "minLength": 1, "maxLength": MAX_NAME},
        "language": {"type": "string", "pattern": "^[A-Za-z]{2,8}$"},
        "prompt": {"type": "string", "maxLength": MAX_PROMPT},
        "response_format": {"enum": list(FORMATS), "default": "json"},
        "temperature": {"type": "number", "minimum": 0, "maximum": 1},
    }
    answer = open_object({"text": {"type": "string"}, "usage": {"type": "object"}}, "usage")
    return {
        "TranscriptionForm": closed_object(form, *form.keys() - {"file", "model"}),
        "Transcript": answer,
    }
