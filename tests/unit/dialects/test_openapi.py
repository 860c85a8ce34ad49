"""The document says what the code does: schemathesis tries it on the codec, as a server would."""

import json
import re
from collections.abc import Callable
from typing import Any

import schemathesis
from hypothesis import HealthCheck, settings
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from tiffin.dialects.openai.dialect import Read
from tiffin.dialects.openai.embeddings import read_embedding
from tiffin.dialects.openai.errors import TABLE, error_body, status_of
from tiffin.dialects.openai.openapi import document
from tiffin.dialects.openai.requests import KINDS, decode
from tiffin.dialects.openai.rerank import read_rerank
from tiffin.dialects.openai.validate import validate
from tiffin.errors import ModelNotFound, TiffinError, Unauthenticated
from tiffin.testing.exchange import FakeExchange
from tiffin.types.snapshot import Plan, Target
from tiffin.types.text import ChatRequest, CompletionRequest
from tiffin.types.texts import EmbeddingRequest, RerankRequest

KEY = "Bearer good"
PATHS = {
    "/v1/chat/completions": "chat",
    "/v1/completions": "completion",
    "/tokenize": "tokenize",
    "/detokenize": "detokenize",
}
READS: dict[str, Read] = {
    "/v1/embeddings": read_embedding,
    "/v1/rerank": read_rerank,
    "/v2/rerank": read_rerank,
}
ANSWER = """{"id":"a","object":"%s","created":1,"model":"m","choices":[],
    "usage":{"prompt_tokens":1,"completion_tokens":1,"total_tokens":2}}"""
ANSWERS = {
    "chat": ANSWER % "chat.completion",
    "completion": ANSWER % "text_completion",
    "tokenize": '{"tokens":[],"count":0}',
    "detokenize": '{"prompt":""}',
    "/v1/embeddings": '{"object":"list","data":[],"model":"m"}',
    "/v1/rerank": '{"results":[]}',
}
HERE = Plan(name="m", identity="1", targets=(Target(model="m", revision="", kind="onnx"),))
# What no schema can tell; everything else that is refused, the document must refuse too.
BEYOND_SCHEMAS = re.compile(r"two tools are named|which is not one of 'tools'")


def failed(error: TiffinError) -> Response:
    return Response(error_body(error), status_of(error), media_type="application/json")


def text(kind: str) -> Callable[[bytes], None]:
    """What decodes and checks a request of this kind."""
    return lambda body: validate(decode(kind, body))


def spoken(read: Read) -> Callable[[bytes], None]:
    """The same by a dialect, for a model of our own."""
    return lambda body: read(FakeExchange(b"POST", b"/"), body).check(HERE)


def endpoint(kind: str, check: Callable[[bytes], None]) -> Any:
    """Decode, check, and answer at once."""

    async def answer(request: Request) -> Response:
        if request.headers.get("authorization") != KEY:
            return failed(Unauthenticated("no key"))
        try:
            check(await request.body())
        except TiffinError as error:
            if BEYOND_SCHEMAS.search(error.message):
                error = ModelNotFound("no model could answer this")
            return failed(error)
        return Response(ANSWERS[kind.replace("/v2/", "/v1/")], media_type="application/json")

    return answer


async def served(request: Request) -> Response:
    return Response(document(), media_type="application/json")


ENDPOINTS = {
    **{path: endpoint(kind, text(kind)) for path, kind in PATHS.items()},
    **{path: endpoint(path, spoken(read)) for path, read in READS.items()},
}
ROUTES = [Route(path, answer, methods=["POST"]) for path, answer in ENDPOINTS.items()]
APP = Starlette(routes=[Route("/openapi.json", served), *ROUTES])
SCHEMA = schemathesis.openapi.from_asgi("/openapi.json", APP).include(method="POST")


@SCHEMA.parametrize()
@settings(max_examples=30, deadline=None, suppress_health_check=list(HealthCheck))
def test_the_codec_accepts_what_the_document_allows_and_nothing_else(
    case: schemathesis.Case[Any],
) -> None:
    case.call_and_validate(headers={"Authorization": KEY})


def parsed() -> dict[str, Any]:
    loaded: dict[str, Any] = json.loads(document())
    return loaded


def test_every_endpoint_is_documented() -> None:
    assert set(parsed()["paths"]) == {
        *ENDPOINTS,
        "/v1/models",
        "/v1/models/{model}",
        "/livez",
        "/readyz",
        "/metrics",
        "/openapi.json",
    }
    assert set(PATHS.values()) == set(KINDS)


def test_every_reference_leads_somewhere() -> None:
    text = document().decode()
    names = set(re.findall(r'"#/components/schemas/(\w+)"', text))
    assert names <= set(parsed()["components"]["schemas"])


def test_every_status_and_code_of_an_error_is_documented() -> None:
    tree = parsed()
    codes = tree["components"]["schemas"]["Error"]["properties"]["error"]["properties"]["code"]
    assert set(codes["enum"]) == {shape.code for shape in TABLE.values()}
    for path in tree["paths"].values():
        for operation in path.values():
            assert {str(shape.status) for shape in TABLE.values()} <= set(operation["responses"])


def test_every_documented_parameter_is_a_field() -> None:
    schemas = parsed()["components"]["schemas"]
    for cls in (ChatRequest, CompletionRequest, EmbeddingRequest, RerankRequest):
        assert set(schemas[cls.__name__]["properties"]) <= set(cls.__struct_fields__)


def test_the_document_is_the_same_every_time() -> None:
    assert document() == document()
