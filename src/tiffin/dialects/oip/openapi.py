"""The Open Inference Protocol's part of the OpenAPI document: paths and schemas."""

from collections.abc import Sequence
from http import HTTPStatus
from types import MappingProxyType
from typing import Any

import msgspec

from tiffin.dialects.oip.dialect import MAX_TENSORS, MAX_TIMEOUT_US
from tiffin.dialects.oip.messages import (
    KINDS,
    Datatype,
    IndexedModel,
    IndexRequest,
    ModelMetadata,
    ModelReady,
    Name,
    Parameters,
    ServerLive,
    ServerMetadata,
    ServerReady,
    Shape,
)
from tiffin.dialects.statuses import STATUS

JSON = "application/json"
REF = "#/components/schemas/"
TAG = "Open Inference Protocol"

Schema = dict[str, Any]

_KIND = MappingProxyType(
    {bool: {"type": "boolean"}, int: {"type": "integer"}, str: {"type": "string"}}
)

INFER = """\
Tensors in, tensors out. Binary data follows this header in the body where the HTTP header \
`Inference-Header-Content-Length` gives the header's length and the inputs a `binary_data_size`, \
as in Triton's binary tensor extension; outputs come back that way where `binary_data` or \
`binary_data_output` asks for it. In JSON a `null` of a floating tensor is not a number."""

_REPLIES = (
    ServerLive,
    ServerReady,
    ServerMetadata,
    ModelMetadata,
    ModelReady,
    IndexRequest,
    IndexedModel,
)


def paths() -> Schema:
    """Every endpoint below `/v2`."""
    found: Schema = {
        "/v2": {"get": _operation("getServer", "Who serves", "ServerMetadata")},
        "/v2/health/live": {"get": _open("isServerLive", "Whether it answers", "ServerLive")},
        "/v2/health/ready": {
            "get": _open("isServerReady", "Whether it takes requests", "ServerReady")
        },
        "/v2/repository/index": {
            "post": {
                **_operation("indexModels", "The models that your key may use", "ModelIndex"),
                **_body("IndexRequest", required=False),
            }
        },
    }
    for verb, name, summary in (
        ("load", "loadModel", "Run a model again, and wait until it takes requests"),
        ("unload", "unloadModel", "End a model's replica until it is loaded again"),
    ):
        found[f"/v2/repository/models/{{model}}/{verb}"] = {
            "post": {
                **_operation(name, summary, "IndexedModel", "model"),
                **_body(f"{verb.title()}Request", required=False),
                "description": "Needs an admin's key.",
            }
        }
    for suffix, base, parameters in (
        ("", "/v2/models/{model}", ("model",)),
        ("Version", "/v2/models/{model}/versions/{version}", ("model", "version")),
    ):
        found[base] = {
            "get": _operation(
                f"getModel{suffix}Metadata", "A model's tensors", "ModelMetadata", *parameters
            )
        }
        found[f"{base}/ready"] = {
            "get": _operation(
                f"isModel{suffix}Ready", "Whether it takes requests", "ModelReady", *parameters
            )
        }
        found[f"{base}/infer"] = {
            "post": {
                **_operation(f"infer{suffix}", "Run a model", "InferResponse", *parameters),
                **_body("InferRequest", required=True),
                "description": INFER,
            }
        }
    return found


def schemas() -> dict[str, Schema]:
    """What they take and give, by name."""
    _, found = msgspec.json.schema_components(_REPLIES, ref_template=REF + "{name}")
    return {
        **found,
        **_infer_schemas(),
        "ModelIndex": {"type": "array", "items": {"$ref": REF + "IndexedModel"}},
        "LoadRequest": _closed({"parameters": _closed({})}),
        "UnloadRequest": _closed({"parameters": _closed({"unload_dependents": _KIND[bool]})}),
        "TensorError": _closed({"error": {"type": "string"}}, "error"),
    }


def _infer_schemas() -> dict[str, Schema]:
    name = _schema(Name)
    known: Schema = {key: _one_of(kinds) for key, kinds in KINDS.items()}
    parameters = {**_schema(Parameters), "properties": known}
    timeout = {"type": "integer", "minimum": 0, "maximum": MAX_TIMEOUT_US}
    own = {**parameters, "properties": {**known, "timeout": timeout}}
    tensor = {
        "name": name,
        "shape": _schema(Shape),
        "datatype": _schema(Datatype),
        "data": {"type": "array", "description": "Flat or nested, in row-major order."},
        "parameters": parameters,
    }
    answered = {**tensor, "name": {"type": "string"}, "datatype": {"type": "string"}}
    output = _closed({"name": name, "parameters": parameters}, "name")
    return {
        "InferRequest": _closed(
            {
                "id": {"type": "string"},
                "parameters": own,
                "inputs": {
                    "type": "array",
                    "items": _closed(tensor, "name", "shape", "datatype", "data"),
                    "minItems": 1,
                    "maxItems": MAX_TENSORS,
                },
                "outputs": {"type": "array", "items": output, "maxItems": MAX_TENSORS},
            },
            "inputs",
        ),
        "InferResponse": {
            "type": "object",
            "properties": {
                "model_name": {"type": "string"},
                "model_version": {"type": "string"},
                "id": {"type": "string"},
                "parameters": parameters,
                "outputs": {
                    "type": "array",
                    "items": {
                        "type": "object",
                        "properties": answered,
                        "required": ["name", "shape", "datatype"],
                    },
                },
            },
            "required": ["model_name", "outputs"],
        },
    }


def _operation(name: str, summary: str, answer: str, *parameters: str) -> Schema:
    """One operation that answers with a schema; `parameters` are those of its path."""
    described: Schema = {
        "operationId": name,
        "summary": summary,
        "tags": [TAG],
        "responses": {
            "200": {"description": "OK", "content": {JSON: {"schema": {"$ref": REF + answer}}}},
            **_errors(),
        },
    }
    if parameters:
        described["parameters"] = [
            {"name": one, "in": "path", "required": True, "schema": _path_part()}
            for one in parameters
        ]
    return described


def _open(name: str, summary: str, answer: str) -> Schema:
    return {**_operation(name, summary, answer), "security": []}


def _path_part() -> Schema:
    return {"type": "string", "minLength": 1, "maxLength": 256}


def _body(schema: str, *, required: bool) -> Schema:
    content = {JSON: {"schema": {"$ref": REF + schema}}}
    return {"requestBody": {"required": required, "content": content}}


def _errors() -> Schema:
    """Every status that an error may have."""
    content = {JSON: {"schema": {"$ref": REF + "TensorError"}}}
    return {
        str(status): {"description": HTTPStatus(status).phrase, "content": content}
        for status in sorted(set(STATUS.values()))
    }


def _one_of(kinds: Sequence[type]) -> Schema:
    schemas = [_KIND[kind] for kind in kinds]
    return schemas[0] if len(schemas) == 1 else {"anyOf": schemas}


def _schema(kind: Any) -> Schema:
    return msgspec.json.schema(kind)


def _closed(properties: Schema, *required: str) -> Schema:
    closed: Schema = {
        "type": "object",
        "properties": properties,
        "additionalProperties": False,
    }
    return {**closed, "required": list(required)} if required else closed
