"""What the document says of responses and transcriptions is what their code takes and gives."""

import json
import re
from collections.abc import Awaitable, Callable
from typing import Any

import schemathesis
from hypothesis import HealthCheck, settings
from schemathesis.specs.openapi.checks import negative_data_rejection
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from tiffin.api.responses import ResponsePages
from tiffin.dialects.dialect import Told
from tiffin.dialects.openai.dialect import Read
from tiffin.dialects.openai.errors import error_response
from tiffin.dialects.openai.responses import ResponsesDialect
from tiffin.dialects.openai.transcriptions import read_transcription
from tiffin.dialects.openapi import document
from tiffin.errors import ModelNotFound, TiffinError, Unauthenticated
from tiffin.gateway.conversations import MemoryConversations
from tiffin.testing.clock import FakeClock
from tiffin.testing.exchange import FakeExchange
from tiffin.types.responses import ResponseRequest
from tiffin.types.snapshot import Plan, Target

KEY = "Bearer good"
LOCAL = Target(model="m", revision="", kind="echo", tools=True)
PLAN = Plan(name="m", identity="1", targets=(LOCAL,))
KEPT = MemoryConversations(FakeClock())
PAGES = ResponsePages(KEPT)
CHAT = Told(
    b'{"choices":[{"message":{"content":"hi"},"finish_reason":"stop"}],'
    b'"usage":{"prompt_tokens":1,"completion_tokens":1}}',
    b"application/json",
)
# What no schema can tell; everything else that is refused, the document must refuse too.
BEYOND_SCHEMAS = re.compile(
    r"two tools are named|which is not one of 'tools'|no function_call before it"
)


async def exchange_of(request: Request) -> FakeExchange:
    headers = [(name.lower(), value) for name, value in request.headers.raw]
    exchange = FakeExchange(
        request.method.encode(),
        request.url.path.encode(),
        headers=headers,
        body=await request.body(),
    )
    exchange.query = request.url.query.encode()
    return exchange


def guarded(answer: Callable[[FakeExchange, bytes], Awaitable[None]]) -> Any:
    """An endpoint that asks for the key, and tells errors."""

    async def endpoint(request: Request) -> Response:
        exchange = await exchange_of(request)
        try:
            if request.headers.get("authorization") != KEY:
                raise Unauthenticated("no key")
            await answer(exchange, await request.body())
        except TiffinError as error:
            if BEYOND_SCHEMAS.search(error.message):
                error = ModelNotFound("no model could answer this")
            exchange.respond(*error_response(error))
        headers = {name.decode(): value.decode() for name, value in exchange.answer_headers.items()}
        return Response(bytes(exchange.sent), exchange.status, headers)

    return endpoint


def by(read: Read, reply: Told) -> Any:
    async def answer(exchange: FakeExchange, body: bytes) -> None:
        asked = read(exchange, body)
        asked.check(PLAN)
        headers, answer = asked.whole(reply, LOCAL)[:2]
        exchange.respond(200, headers, answer)

    return guarded(answer)


async def served(request: Request) -> Response:
    tree = json.loads(document())
    tree["paths"] = {
        path: what
        for path, what in tree["paths"].items()
        if path.startswith(("/v1/responses", "/v1/audio"))
    }
    return Response(json.dumps(tree), media_type="application/json")


RESPONSES = ResponsesDialect(KEPT, lambda exchange: "t", FakeClock())
PAGE = guarded(lambda exchange, body: PAGES(exchange, "t", []))
APP = Starlette(
    routes=[
        Route("/openapi.json", served),
        Route("/v1/responses", by(RESPONSES.read, CHAT), methods=["POST"]),
        Route(
            "/v1/audio/transcriptions",
            by(read_transcription, Told(b'{"text":"hi"}', b"application/json")),
            methods=["POST"],
        ),
        Route("/v1/responses/{name}", PAGE, methods=["GET", "DELETE"]),
        Route("/v1/responses/{name}/input_items", PAGE, methods=["GET"]),
    ]
)
SCHEMA = schemathesis.openapi.from_asgi("/openapi.json", APP)


@SCHEMA.parametrize()
@settings(max_examples=25, deadline=None, suppress_health_check=list(HealthCheck))
def test_the_code_accepts_what_the_document_allows_and_nothing_else(
    case: schemathesis.Case[Any],
) -> None:
    # In a form all is text: a boolean as the model's name is the name "false".
    untyped: list[Any] = [negative_data_rejection] if case.path.startswith("/v1/audio") else []
    case.call_and_validate(headers={"Authorization": KEY}, excluded_checks=untyped)


def test_every_documented_parameter_is_a_field() -> None:
    schemas = json.loads(document())["components"]["schemas"]
    fields = set(schemas["ResponseRequest"]["properties"])
    assert fields <= set(ResponseRequest.__struct_fields__)


def test_every_reference_leads_somewhere() -> None:
    names = set(re.findall(r'"#/components/schemas/(\w+)"', document().decode()))
    assert names <= set(json.loads(document())["components"]["schemas"])
