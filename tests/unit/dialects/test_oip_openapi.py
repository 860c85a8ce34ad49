"""The tensor protocol's part of the document says what its codec does."""

import json
import re
from typing import Any

import schemathesis
from hypothesis import HealthCheck, settings
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from tiffin.dialects.oip.dialect import InferDialect
from tiffin.dialects.oip.metadata import UNLOAD_PARAMETERS, check_switch, only_ready
from tiffin.dialects.oip.openapi import paths, schemas
from tiffin.dialects.openapi import document
from tiffin.dialects.statuses import STATUS
from tiffin.errors import ModelNotFound, TiffinError, Unauthenticated
from tiffin.testing.exchange import FakeExchange
from tiffin.types.snapshot import Plan, Target

KEY = "Bearer good"
TARGET = Target(model="m", revision="sha256:" + "a" * 64, kind="onnx")
# What no schema can tell; everything else that is refused, the document must refuse too.
BEYOND_SCHEMAS = re.compile(
    r"every name once|elements of the shape|no version|shared_memory|binary_data_size:|given both"
)
MAX_NAME = 256
ANSWERS = {
    "infer": '{"model_name":"m","outputs":[]}',
    "index": "[]",
    "load": '{"name":"m","version":"","state":"READY","reason":""}',
    "unload": '{"name":"m","version":"","state":"UNAVAILABLE","reason":""}',
}


def check(path: str, body: bytes) -> None:
    """Read and check one request as the endpoint of its path does."""
    verb = path.rpartition("/")[2]
    if max(map(len, path.split("/"))) > MAX_NAME:
        raise ModelNotFound("no model has such a name")
    if verb == "infer":
        exchange = FakeExchange(b"POST", b"/v2/models/m/infer")
        InferDialect().read(exchange, body).check(Plan(name="m", identity="", targets=(TARGET,)))
    elif verb == "index":
        only_ready(body)
    else:
        check_switch(body, UNLOAD_PARAMETERS if verb == "unload" else ())


async def answer(request: Request) -> Response:
    dialect = InferDialect()
    try:
        if request.headers.get("authorization") != KEY:
            raise Unauthenticated("no key")
        check(request.url.path, await request.body())
    except TiffinError as error:
        if BEYOND_SCHEMAS.search(error.message):
            error = ModelNotFound("no model could answer this")
        status, _, body = dialect.error(error)
        return Response(body, status, media_type="application/json")
    verb = request.url.path.rpartition("/")[2]
    return Response(ANSWERS[verb], media_type="application/json")


async def served(request: Request) -> Response:
    return Response(document(), media_type="application/json")


POSTS = [path for path, methods in paths().items() if "post" in methods]
ROUTES = [Route(path, answer, methods=["POST"]) for path in POSTS]
APP = Starlette(routes=[Route("/openapi.json", served), *ROUTES])
SCHEMA = schemathesis.openapi.from_asgi("/openapi.json", APP).include(method="POST", path=POSTS)


@SCHEMA.parametrize()
@settings(max_examples=30, deadline=None, suppress_health_check=list(HealthCheck))
def test_the_codec_accepts_what_the_document_allows_and_nothing_else(
    case: schemathesis.Case[Any],
) -> None:
    case.call_and_validate(headers={"Authorization": KEY})


def test_the_document_has_both_protocols() -> None:
    tree = json.loads(document())
    assert {"/v1/chat/completions", *paths()} <= set(tree["paths"])
    names = set(re.findall(r'"#/components/schemas/(\w+)"', document().decode()))
    assert names <= set(tree["components"]["schemas"])
    assert set(schemas()) <= names | {"ModelIndex"}


def test_every_operation_is_named_once_and_tells_of_every_status() -> None:
    operations = [
        operation
        for methods in json.loads(document())["paths"].values()
        for operation in methods.values()
    ]
    assert len({one["operationId"] for one in operations}) == len(operations)
    for operation in operations:
        assert {str(status) for status in STATUS.values()} <= set(operation["responses"])
