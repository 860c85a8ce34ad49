"""The schemas of the OpenAPI document for vectors and rankings: requests and answers."""

from typing import Any

import msgspec

from tiffin.dialects.openai.embeddings import FORMATS
from tiffin.dialects.openai.openapi_schemas import REF, Schema, open_object, ref, simplify
from tiffin.dialects.openai.parameters import WITHOUT_EFFECT
from tiffin.dialects.openai.rerank import LOCAL_UNSUPPORTED
from tiffin.types.texts import MAX_INPUTS, EmbeddingRequest, RerankRequest


def texts_schemas() -> dict[str, Schema]:
    """Everything about texts that aren't answered in text, by name."""
    _, found = msgspec.json.schema_components(
        [EmbeddingRequest, RerankRequest], ref_template=REF + "{name}"
    )
    for schema in found.values():
        simplify(schema)
    for request in ("EmbeddingRequest", "RerankRequest"):
        fields = found[request]["properties"]
        fields["user"]["description"] = f"Accepted without effect: {WITHOUT_EFFECT['user']}."
        for name in LOCAL_UNSUPPORTED:
            fields.pop(name, None)
    _amend_embedding(found["EmbeddingRequest"]["properties"])
    return {**found, **_answers()}


def _amend_embedding(fields: dict[str, Any]) -> None:
    text: Schema = {"type": "string", "minLength": 1}
    ids: Schema = {
        "type": "array",
        "minItems": 1,
        "items": {"type": "integer", "minimum": 0, "maximum": 2**31 - 1},
    }
    several = {"type": "array", "minItems": 1, "maxItems": MAX_INPUTS}
    fields["input"] = {
        "description": "One text or several, as strings or as the model's own token ids.",
        "anyOf": [text, {**several, "items": text}, ids, {**several, "items": ids}],
    }
    fields["encoding_format"] = {"enum": [*FORMATS, None]}


def _answers() -> dict[str, Schema]:
    count: Schema = {"type": "integer", "minimum": 0}
    tokens = open_object({"prompt_tokens": count, "total_tokens": count}, "prompt_tokens")
    vector: Schema = {"anyOf": [{"type": "array", "items": {"type": "number"}}, {"type": "string"}]}
    row = open_object({"object": {"const": "embedding"}, "index": count, "embedding": vector})
    result = open_object(
        {
            "index": count,
            "relevance_score": {"type": "number"},
            "document": ref("Document"),
        },
        "document",
    )
    return {
        "Embeddings": open_object(
            {
                "object": {"const": "list"},
                "data": {"type": "array", "items": row},
                "model": {"type": "string"},
                "usage": tokens,
            },
            "usage",
        ),
        "Ranking": open_object(
            {
                "id": {"type": "string"},
                "model": {"type": "string"},
                "results": {"type": "array", "items": result},
                "usage": tokens,
            },
            "id",
            "model",
            "usage",
        ),
    }
