"""The public site: which path does what. Inference goes to the walk, the operator's to control."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass

import msgspec

from tiffin.api.oip import TensorPages
from tiffin.api.responses import ResponsePages
from tiffin.dialects.anthropic.dialect import PATH as MESSAGES
from tiffin.dialects.anthropic.dialect import MessagesDialect, read_message_request
from tiffin.dialects.dialect import Dialect
from tiffin.dialects.oip.dialect import InferDialect
from tiffin.dialects.openai.dialect import OpenAIDialect
from tiffin.dialects.openai.models import model_body, model_list_body
from tiffin.dialects.openai.text import TextEndpoint
from tiffin.dialects.statuses import retry_headers
from tiffin.errors import (
    DeadlineExceeded,
    EndpointNotFound,
    MethodNotAllowed,
    TiffinError,
    Unavailable,
    UpstreamFailed,
    UpstreamUnavailable,
)
from tiffin.gateway.authenticate import (
    Authentication,
    introduction,
    require_entrance,
    require_sight,
)
from tiffin.gateway.idempotency.finish import Walking
from tiffin.gateway.operations import Operations
from tiffin.gateway.respond import JSON, send_error
from tiffin.gateway.route import route, visible
from tiffin.ports.backend import Backend, Call
from tiffin.ports.clock import Clock
from tiffin.ports.exchange import Exchange, Headers
from tiffin.telemetry import log
from tiffin.telemetry.metrics import Counter
from tiffin.types.ids import new_id
from tiffin.types.snapshot import Principal, Snapshot

OPENAI = OpenAIDialect(TextEndpoint("chat", b"/v1/chat/completions").read)
TENSORS = InferDialect()
ANTHROPIC = MessagesDialect(read_message_request)

Page = Callable[[Exchange], Awaitable[None]]
MAX_CONTROL_BYTES = 67_108_864
CONTROL_TIMEOUT_S = 30.0


@dataclass(slots=True)
class Desk:
    """What the site needs beside the walk. `not_ready` says why the server isn't, `degraded`
    what it has to do without; both are empty while all is well."""

    snapshot: Callable[[], Snapshot]
    authenticate: Authentication
    not_ready: Callable[[], str]
    degraded: Callable[[], str]
    control: Backend
    clock: Clock
    openapi: Callable[[], bytes]
    refusals: Counter
    listings: Counter
    open_metrics: bool
    responses: ResponsePages
    tensors: TensorPages
    max_body_bytes: int


class PublicSite:
    """The handler of the gateway's edge."""

    def __init__(self, walk: Walking, operations: Operations, desk: Desk) -> None:
        self._walk = walk
        self._operations = operations
        self._desk = desk
        self._pages: dict[bytes, Page] = {
            b"/livez": self._live,
            b"/readyz": self._ready,
            b"/v1/models": self._models,
            b"/openapi.json": self._openapi,
            b"/metrics": self._metrics,
        }

    async def __call__(self, exchange: Exchange) -> None:
        """Answer a request; what fails before it has an account is answered and counted here."""
        operation = self._operations.find(exchange.path)
        dialect = operation.dialect if operation else _dialect_of(exchange.path)
        try:
            if operation is None:
                await self._other(exchange)
            elif exchange.method != b"POST":
                raise not_allowed(exchange, "POST")
            else:
                await self._walk(exchange, operation)
        except TiffinError as error:
            self._desk.refusals.add((error.slug,))
            send_error(exchange, error, dialect, request_id())
        except Exception as error:  # noqa: BLE001 - the outermost edge: it is told and logged
            log.error("request_broke", exc_info=error)
            if not exchange.gone and not exchange.begun:
                broken = TiffinError("something broke on our side")
                send_error(exchange, broken, dialect, request_id())

    async def _other(self, exchange: Exchange) -> None:
        path = exchange.path
        if path.startswith((b"/admin/", b"/console")):
            await self._admin(exchange)
            return
        if path.startswith(b"/v1/responses/"):
            _, principal = self._listing(exchange)
            await self._desk.responses(exchange, principal.tenant, request_id())
            return
        if _is_tensors(path):
            await self._desk.tensors(exchange, request_id())
            return
        page = self._pages.get(path)
        if page is None and path.startswith(b"/v1/models/"):
            page = self._model
        if page is None:
            shown = path[:80].decode("utf-8", "replace")
            raise EndpointNotFound(f"there is no endpoint '{shown}'; /openapi.json lists them")
        if exchange.method != b"GET":
            raise not_allowed(exchange, "GET")
        await page(exchange)

    async def _live(self, exchange: Exchange) -> None:
        exchange.respond(200, [JSON], b'{"status":"live"}')

    async def _ready(self, exchange: Exchange) -> None:
        reason = self._desk.not_ready()
        if reason:
            raise Unavailable(f"not ready: {reason}", retry_after=1.0)
        said = {"status": "ready"}
        if degraded := self._desk.degraded():
            said = {"status": "degraded", "reason": degraded}
        exchange.respond(200, [JSON], msgspec.json.encode(said))

    async def _openapi(self, exchange: Exchange) -> None:
        exchange.respond(200, [JSON], self._desk.openapi())

    async def _models(self, exchange: Exchange) -> None:
        snapshot, principal = self._listing(exchange)
        exchange.respond(200, [JSON, *request_id()], model_list_body(visible(principal, snapshot)))

    async def _model(self, exchange: Exchange) -> None:
        snapshot, principal = self._listing(exchange)
        name = exchange.path.removeprefix(b"/v1/models/").decode("utf-8", "replace")
        plan = route(name, principal, snapshot)
        exchange.respond(200, [JSON, *request_id()], model_body(plan))

    def _listing(self, exchange: Exchange) -> tuple[Snapshot, Principal]:
        snapshot = self._desk.snapshot()
        principal = self._desk.authenticate(exchange, snapshot)
        self._desk.listings.add()
        return snapshot, principal

    async def _metrics(self, exchange: Exchange) -> None:
        if not self._desk.open_metrics:
            require_sight(self._principal(exchange))
        await self._relay(exchange, b"")

    async def _admin(self, exchange: Exchange) -> None:
        require_entrance(self._principal(exchange))
        await exchange.body(self._desk.max_body_bytes)
        principal = self._principal(exchange)  # the body took its time: things may have changed
        require_entrance(principal)
        await self._relay(exchange, introduction(principal))

    def _principal(self, exchange: Exchange) -> Principal:
        return self._desk.authenticate(exchange, self._desk.snapshot())

    async def _relay(self, exchange: Exchange, headers: bytes) -> None:
        """Pass a request on to control; where control is down, say so and nothing else."""
        target = exchange.path + (b"?" + exchange.query if exchange.query else b"")
        call = Call(
            path=target,
            body=await exchange.body(self._desk.max_body_bytes),
            headers=headers,
            deadline=self._desk.clock.monotonic() + CONTROL_TIMEOUT_S,
            method=exchange.method,
        )
        try:
            async with self._desk.control.start(call) as reply:
                body = await reply.read_all(MAX_CONTROL_BYTES)
                content: Headers = [(b"content-type", reply.content_type or b"text/plain")]
                if reply.retry_after is not None:
                    content += retry_headers(reply.retry_after)
                exchange.respond(reply.status, content, body)
        except (UpstreamUnavailable, UpstreamFailed, DeadlineExceeded) as error:
            raise Unavailable(
                "control isn't answering; requests to models go on", retry_after=2.0
            ) from error


def _is_tensors(path: bytes) -> bool:
    return path == b"/v2" or path.startswith(b"/v2/")


def _dialect_of(path: bytes) -> Dialect:
    """The dialect of a path that doesn't take the walk: its errors have that shape."""
    if path == MESSAGES or path.startswith(MESSAGES + b"/"):
        return ANTHROPIC
    return TENSORS if _is_tensors(path) else OPENAI


def answer_error(error: TiffinError, path: bytes) -> tuple[int, Headers, bytes]:
    """An error of a request that no handler got, in the shape of the endpoint that it asked for."""
    return _dialect_of(path).error(error)


def not_allowed(exchange: Exchange, method: str) -> MethodNotAllowed:
    """The refusal of a method that the endpoint doesn't have."""
    path = exchange.path[:80].decode("utf-8", "replace")
    return MethodNotAllowed(f"'{path}' answers {method} only", allowed=method)


def request_id() -> Headers:
    """The id of a request that has no account, so that its client can still name it."""
    return [(b"x-request-id", new_id("req").encode())]
