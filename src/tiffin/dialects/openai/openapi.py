"""The OpenAPI 3.1 document of the public HTTP interface, made from the code that serves it."""

from http import HTTPStatus
from importlib.metadata import version
from typing import Any

import msgspec

from tiffin.dialects.openai.errors import TABLE
from tiffin.dialects.openai.openapi_schemas import (
    Schema,
    ref,
    reply_schemas,
    request_schemas,
)
from tiffin.dialects.openai.openapi_texts import texts_schemas

JSON = "application/json"
EVENTS = "text/event-stream"
PLAIN = "text/plain"

DESCRIPTION = """\
OpenAI's interface, served by your own models. What a model can't honour is refused by the \
parameter's name; parameters that only some remote models honour are not listed here. \
A request may be refused for reasons that no schema can tell (an unknown model, too long a prompt, \
a limit), always with the `Error` object. A request with the header `Idempotency-Key` is done \
once: its answer is given again for a day."""


def document() -> bytes:
    """The whole document as JSON."""
    return msgspec.json.format(msgspec.json.encode(_document()), indent=2)


def _document() -> Schema:
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Tiffin",
            "version": version("tiffin"),
            "description": DESCRIPTION,
            "license": {"name": "Apache-2.0", "identifier": "Apache-2.0"},
        },
        "security": [{"key": []}],
        "paths": {
            "/v1/models": {"get": _models()},
            "/v1/models/{model}": {"get": _model()},
            "/v1/chat/completions": {
                "post": inference(
                    "createChatCompletion",
                    "Answer a conversation, whole or as a stream",
                    "ChatRequest",
                    {JSON: ref("ChatCompletion"), EVENTS: _events("ChatCompletionChunk")},
                )
            },
            "/v1/completions": {
                "post": inference(
                    "createCompletion",
                    "Continue a text, whole or as a stream",
                    "CompletionRequest",
                    {JSON: ref("Completion"), EVENTS: _events("Completion")},
                )
            },
            "/v1/embeddings": {
                "post": inference(
                    "createEmbedding",
                    "A vector for each text",
                    "EmbeddingRequest",
                    {JSON: ref("Embeddings")},
                )
            },
            "/v1/rerank": {"post": _rerank("rerank")},
            "/v2/rerank": {"post": _rerank("rerank_v2")},
            "/tokenize": {
                "post": inference(
                    "tokenize",
                    "The tokens of a text, or of messages after the model's chat template",
                    "TokenizeRequest",
                    {JSON: ref("Tokens")},
                )
            },
            "/detokenize": {
                "post": inference(
                    "detokenize", "The text of tokens", "DetokenizeRequest", {JSON: ref("Text")}
                )
            },
            "/livez": {"get": _health("isLive", "Whether the server makes progress")},
            "/readyz": {"get": _health("isReady", "Whether the server takes requests")},
            "/metrics": {"get": _metrics()},
            "/openapi.json": {"get": _openapi()},
        },
        "components": {
            "securitySchemes": {"key": {"type": "http", "scheme": "bearer"}},
            "schemas": {**request_schemas(), **texts_schemas(), **reply_schemas()},
        },
    }


def _models() -> Schema:
    return operation("listModels", "The models that your key may use", {JSON: ref("ModelList")})


def _model() -> Schema:
    name = {"type": "string", "minLength": 1, "maxLength": 256}
    return {
        **operation("getModel", "One model", {JSON: ref("Model")}),
        "parameters": [{"name": "model", "in": "path", "required": True, "schema": name}],
    }


def inference(name: str, summary: str, request: str, answers: Schema) -> Schema:
    """An operation that takes a JSON body of this schema."""
    return {
        **operation(name, summary, answers),
        "requestBody": {"required": True, "content": {JSON: {"schema": ref(request)}}},
    }


def _rerank(name: str) -> Schema:
    return inference(
        name,
        "Documents by their relevance to a query, in Cohere's and Jina's shape",
        "RerankRequest",
        {JSON: ref("Ranking")},
    )


def _health(name: str, summary: str) -> Schema:
    return {**operation(name, summary, {JSON: ref("Health")}), "security": []}


def _metrics() -> Schema:
    return {
        **operation("metrics", "Counters for Prometheus", {PLAIN: {"type": "string"}}),
        "description": "Needs an admin's key where other machines can reach the server.",
        "security": [{}, {"key": []}],
    }


def _openapi() -> Schema:
    return {
        **operation("openapi", "This document", {JSON: {"type": "object"}}),
        "security": [],
    }


def operation(name: str, summary: str, answers: Schema) -> Schema:
    """An operation with its answers by content type, and every error."""
    return {
        "operationId": name,
        "summary": summary,
        "responses": {
            "200": {
                "description": "OK",
                "content": {kind: {"schema": schema} for kind, schema in answers.items()},
            },
            **_errors(),
        },
    }


def _errors() -> Schema:
    """Every status that the table of errors has; the `code` tells which error it is."""
    content = {JSON: {"schema": ref("Error")}}
    found: dict[str, Any] = {}
    for status in sorted({shape.status for shape in TABLE.values()}):
        codes = sorted({shape.code for shape in TABLE.values() if shape.status == status})
        found[str(status)] = {
            "description": f"{HTTPStatus(status).phrase}: {', '.join(codes)}",
            "content": content,
        }
    return found


def _events(chunk: str) -> Schema:
    """One event of a stream, as an object of its fields."""
    return {
        "type": "object",
        "description": f"A server-sent event whose data is a `{chunk}`, at the end `[DONE]`.",
        "properties": {"data": {"type": "string"}},
        "required": ["data"],
    }
