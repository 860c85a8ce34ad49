"""The gRPC port: calls become exchanges of the same site, and its answers calls' answers.

A client that cancels, leaves or whose deadline passes cancels the exchange's task. `retry-after-ms`
and the error's name are trailing metadata of a refusal.
"""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any, Final, NoReturn

import grpc  # type: ignore[import-untyped]
from grpc import aio

from tiffin.api.grpc_exchange import CallExchange
from tiffin.api.grpc_methods import Headers, Method, ask_infer, methods, told_infer
from tiffin.api.http import Handler
from tiffin.api.wire_exchange import Room
from tiffin.config.schema import Server
from tiffin.config.tls import Credentials
from tiffin.dialects.oip.errors import SLUG, error_body
from tiffin.dialects.oip.grpc_codes import number_of
from tiffin.dialects.oip.protobuf import write
from tiffin.dialects.oip.protobuf_infer import error_of
from tiffin.dialects.oip.protobuf_messages import StreamReply
from tiffin.dialects.statuses import error_headers
from tiffin.errors import (
    ConfigInvalid,
    Draining,
    MalformedBody,
    Overloaded,
    RequestTimeout,
    TiffinError,
    Unauthenticated,
)
from tiffin.telemetry import log

NAMES: Final = "/inference.GRPCInferenceService/"
TIMEOUT: Final = b"x-request-timeout-ms"
RETRY: Final = b"retry-after-ms"
MAX_TIMEOUT_MS: Final = 86_400_000
# A client's library takes 8 KiB of trailing metadata, and a byte of the message may need three.
MAX_DETAILS_BYTES: Final = 1_200
# What a message has around the tensors that `max_body_bytes` is meant for.
AROUND_BYTES: Final = 65_536
STOP_WITHIN_S: Final = 2.0
CODES: Final = {code.value[0]: code for code in grpc.StatusCode}


@dataclass(slots=True, frozen=True)
class Failure:
    """How a call fails: the error's name, its message, and in how many milliseconds to retry."""

    slug: str
    message: str
    retry_after_ms: bytes = b""


class GrpcEdge(grpc.GenericRpcHandler):  # type: ignore[misc]
    """One listening port for calls; `site` answers all of them.

    `credentials` are what to show each connection, where the port speaks TLS. Clients' certificates
    are asked for where they are required, and not where they are optional.
    """

    def __init__(
        self,
        site: Handler,
        server: Server,
        room: Room,
        credentials: Callable[[], Credentials] | None = None,
    ) -> None:
        self._site = site
        self._credentials = credentials
        self._limits = server
        self._room = room
        self._methods = methods()
        self._running: set[asyncio.Task[None]] = set()
        self._stopping = asyncio.Event()
        self._address = f"{f'[{server.host}]' if ':' in server.host else server.host}"
        self._address += f":{server.grpc_port}"
        self._server = aio.server(
            handlers=[self],
            maximum_concurrent_rpcs=server.max_in_flight,
            options=[
                ("grpc.max_receive_message_length", server.max_body_bytes + AROUND_BYTES),
                ("grpc.max_send_message_length", -1),
                # None but as it is: a small message could become a very large one.
                ("grpc.compression_enabled_algorithms_bitset", 1),
                ("grpc.max_metadata_size", server.max_header_bytes),
                ("grpc.max_connection_idle_ms", int(server.keep_alive_s * 1000)),
                ("grpc.server_handshake_timeout_ms", int(server.header_timeout_s * 1000)),
            ],
        )

    async def start(self) -> None:
        """Take calls; raises `ConfigInvalid` where the port can't be had."""
        try:
            if self._credentials is None:
                self._server.add_insecure_port(self._address)
            else:
                self._server.add_secure_port(self._address, _secure(self._credentials))
        except RuntimeError as error:
            raise ConfigInvalid(
                f"{self._address} can't be listened on", where="server.grpc_port"
            ) from error
        await self._server.start()

    def running(self) -> list[asyncio.Task[None]]:
        """The tasks of all exchanges that are being answered."""
        return list(self._running)

    async def leave(self, within_s: float) -> None:
        """Take no more calls, finish those that are here; then, or after `within_s`, return."""
        await self._server.stop(within_s)

    async def stop(self) -> None:
        """End the streams that wait for their client, then everything."""
        self._stopping.set()
        await self._server.stop(STOP_WITHIN_S)

    def service(self, details: Any) -> Any:
        """What answers a method; grpc calls it with each call's head."""
        if not details.method.startswith(NAMES):
            return None
        name = details.method.removeprefix(NAMES)
        if name == "ModelStreamInfer":
            return grpc.stream_stream_rpc_method_handler(self._stream)
        method = self._methods.get(name)
        if method is None:
            return None

        async def answer(messages: Any, context: Any) -> bytes:
            return await self._answer(method, context)

        # As a stream of one message, so that a client can't take its time to send it.
        return grpc.stream_unary_rpc_method_handler(answer)

    async def _answer(self, method: Method, context: Any) -> bytes:
        try:
            async with within(self._limits.body_timeout_s):
                message = await context.read()
            if message is aio.EOF:
                raise MalformedBody("the call has no message")
            exchange = method.ask(message, headers_of(context))
            await self._walk(exchange, len(message))
            failure = failure_of(exchange)
            if failure is None or (method.unready and exchange.status == 503):
                return method.told(exchange)
        except Exception as error:  # noqa: BLE001 - the outermost edge: it is told and logged
            failure = failed(error)
        return await abort(context, failure)

    async def _stream(self, messages: Any, context: Any) -> None:
        """Answer each message of a stream in turn; an error is one message's, not the stream's."""
        # Who has shown no key yet may not keep one of the server's places.
        first: float | None = self._limits.keep_alive_s
        while (message := await self._next(context, first)) is not None:
            reply = await self._one_of_many(message, context)
            await context.write(write(reply))
            first = None

    async def _next(self, context: Any, within_s: float | None) -> bytes | None:
        """The next message of a stream; None at its end.

        Ends the call where the server stops, or none comes in time.
        """
        reading = asyncio.ensure_future(context.read())
        stopping = asyncio.ensure_future(self._stopping.wait())
        try:
            await asyncio.wait(
                [reading, stopping], timeout=within_s, return_when=asyncio.FIRST_COMPLETED
            )
        finally:
            stopping.cancel()
            if not reading.done():
                reading.cancel()
        if not reading.done():
            stops = self._stopping.is_set()
            late = RequestTimeout("no message came in time")
            await abort(context, failed(Draining("the server is stopping") if stops else late))
        message: bytes | None = reading.result()
        return None if message is aio.EOF else message

    async def _one_of_many(self, message: bytes, context: Any) -> StreamReply:
        exchange = ask_infer(message, headers_of(context))
        try:
            await self._walk(exchange, len(message))
            failure = failure_of(exchange)
            if failure is None:
                return StreamReply(infer_response=told_infer(exchange))
        except Exception as error:  # noqa: BLE001 - the outermost edge: it is told and logged
            failure = failed(error)
        if failure.slug == Unauthenticated.slug:  # it is the stream's key
            await abort(context, failure)
        return StreamReply(failure.message)

    async def _walk(self, exchange: CallExchange, size: int) -> None:
        """Let the site answer an exchange; a client that leaves cancels it, and waits for its end.

        The site runs in a task of its own, so that the server's stopping, which cancels that task,
        is told from the client's leaving, which cancels this one.
        """
        if self._room.taken + size > self._room.most:
            raise Overloaded("the server has no room for large messages now", retry_after=1.0)
        self._room.taken += size
        task = asyncio.ensure_future(answered(self._site, exchange))
        self._running.add(task)
        try:
            await asyncio.wait([task])
        except asyncio.CancelledError:
            exchange.gone = True
            task.cancel()
            await asyncio.wait([task])
            raise
        finally:
            self._running.discard(task)
            self._room.taken -= size
        if not task.cancelled() and (error := task.exception()) is not None:
            raise error


def _secure(credentials: Callable[[], Credentials]) -> Any:
    """Credentials for the library, which asks for them at every connection."""
    given = credentials()

    def changed() -> Any:
        nonlocal given
        now = credentials()
        if now is given:
            return None
        given = now
        return _certificates(now)

    return grpc.dynamic_ssl_server_credentials(
        _certificates(given), changed, given.client == "required"
    )


def _certificates(now: Credentials) -> Any:
    pair = (now.key, now.certificate)
    return grpc.ssl_server_certificate_configuration([pair], now.client_ca or None)


@asynccontextmanager
async def within(seconds: float) -> AsyncIterator[None]:
    """Raise `RequestTimeout` where what is inside takes longer."""
    try:
        async with asyncio.timeout(seconds):
            yield
    except TimeoutError:
        raise RequestTimeout(f"the message didn't come within {seconds:g} s") from None


async def answered(site: Handler, exchange: CallExchange) -> None:
    """The site's work on an exchange."""
    await site(exchange)


def headers_of(context: Any) -> Headers:
    """A call's metadata as headers, and the time that it has left as one of them.

    What metadata says of a body isn't about the one that the exchange has.
    """
    headers: dict[bytes, bytes] = {}
    for name, value in context.invocation_metadata() or ():
        if isinstance(value, str) and not name.startswith(("content-", "inference-")):
            headers.setdefault(name.encode(), value.encode())
    left = context.time_remaining()
    if left is not None and left < MAX_TIMEOUT_MS / 1000:
        left_ms = max(1, int(left * 1000))
        asked = headers.get(TIMEOUT, b"")
        if not asked or (asked.isdigit() and int(asked) > left_ms):
            headers[TIMEOUT] = b"%d" % left_ms
    return headers


def failed(error: Exception) -> Failure:
    """How a call fails with an error that no answer tells."""
    if not isinstance(error, TiffinError):
        log.error("request_broke", exc_info=error)
        error = TiffinError("something broke on our side; the log has the details")
    retry = dict(error_headers(error)).get(RETRY, b"")
    return Failure(error.slug, error_of(error_body(error)), retry)


def failure_of(exchange: CallExchange) -> Failure | None:
    """How an answered exchange failed, if it did."""
    if not exchange.begun or exchange.broken:
        return Failure(TiffinError.slug, "the answer broke off")
    if exchange.status < 400:
        return None
    answer = exchange.answer
    slug = answer.get(SLUG, b"").decode() or TiffinError.slug
    return Failure(slug, error_of(exchange.sent), answer.get(RETRY, b""))


async def abort(context: Any, failure: Failure) -> NoReturn:
    """End a call with an error."""
    details = failure.message.encode()[:MAX_DETAILS_BYTES].decode(errors="ignore")
    trailing = [(SLUG.decode(), failure.slug)]
    if failure.retry_after_ms:
        trailing.append((RETRY.decode(), failure.retry_after_ms.decode()))
    await context.abort(CODES[number_of(failure.slug)], details, tuple(trailing))
    raise AssertionError("abort raises")
