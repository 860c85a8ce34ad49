"""The HTTP edge: uvicorn's protocol with our own request object, limits and timers.

Every request becomes an `Exchange` whose handler runs as one task, started straight from the
parser. TLS, sockets and connection bookkeeping stay uvicorn's; head and body limits, their timers,
the error shape and what happens when a client leaves are here.
"""

import asyncio
import select
from collections import deque
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import Any

import httptools
from uvicorn.config import Config
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol
from uvicorn.server import ServerState

from tiffin.api.framing import ONCE, unclear
from tiffin.api.wire_exchange import Room, WireExchange, local
from tiffin.errors import (
    InvalidRequest,
    MalformedBody,
    Overloaded,
    PayloadTooLarge,
    RequestTimeout,
    TiffinError,
)
from tiffin.ports.exchange import Exchange, Headers
from tiffin.ports.outbox import DirectOutbox, Outbox

PIPELINE_LIMIT = 32
DISCARD_BYTES = 1_048_576
DISCARD_S = 2.0

Handler = Callable[[Exchange], Awaitable[None]]
ErrorAnswer = Callable[[TiffinError, bytes], tuple[int, Headers, bytes]]


@dataclass(slots=True, frozen=True)
class Edge:
    """What a server accepts and who answers. Sizes are bytes, times seconds.

    `answer_error` turns an error that has no handler yet (a bad head, say) into a response, in the
    shape of the path that was asked for, as far as that was read.
    """

    handler: Handler
    answer_error: ErrorAnswer
    max_body_bytes: int = 10_000_000
    max_header_bytes: int = 32_768
    max_headers: int = 100
    max_connections: int = 4096
    header_timeout_s: float = 10.0
    body_timeout_s: float = 30.0
    keep_alive_s: float = 75.0
    stall_timeout_s: float = 60.0
    outbox: Outbox = field(default_factory=DirectOutbox)
    room: Room = field(default_factory=Room)


class HttpProtocol(HttpToolsProtocol):  # noqa: PLR0904 - its callers set the names
    """One client connection. `edge` is bound by `protocol_for`."""

    edge: Edge

    def __init__(
        self,
        config: Config,
        server_state: ServerState,
        app_state: dict[str, Any],
        _loop: asyncio.AbstractEventLoop | None = None,
    ) -> None:
        super().__init__(config, server_state, app_state, _loop)
        self.waiting: deque[WireExchange] = deque()
        self.exchange: WireExchange | None = None  # being answered
        self.receiving: WireExchange | None = None  # whose body is still coming
        self.url = b""
        self.head_bytes = 0
        self.in_head = True
        self.declining = False  # a head that asks for another protocol has come
        self.expires = 0.0
        self.refusing = False
        self.discarded = 0
        self.stalled_at = 0.0
        self.leaving = False  # another process takes connections now: the next answer is the last

    # The transport's calls.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)  # type: ignore[arg-type]
        self.expires = self.loop.time() + self.edge.header_timeout_s
        if len(self.connections) > self.edge.max_connections:
            message = f"all {self.edge.max_connections} connections are taken"
            self.refuse(Overloaded(message, retry_after=1.0))

    def connection_lost(self, exc: Exception | None) -> None:
        self.connections.discard(self)
        self.parser = None  # type: ignore[assignment]
        for exchange in [self.exchange, *self.waiting]:
            if exchange is not None:
                exchange.client_left()
        self.waiting.clear()
        self.exchange = self.receiving = None
        if self.flow is not None:
            self.flow.resume_writing()

    def data_received(self, data: bytes) -> None:
        if self.refusing:
            self.discarded += len(data)
            if self.discarded > DISCARD_BYTES:
                self.transport.abort()
            return
        if self.in_head:
            if self.head_bytes == 0:
                self.expires = self.loop.time() + self.edge.header_timeout_s
            self.head_bytes += len(data)
        try:
            self.parse(data)
        except httptools.HttpParserUpgrade:
            self.refuse(InvalidRequest("no protocol to upgrade to"))
        except httptools.HttpParserError:
            if not self.refusing:
                self.refuse(MalformedBody("the request isn't valid HTTP/1.1"))
        if (
            self.in_head
            and not self.refusing
            and self.head_bytes > self.edge.max_header_bytes + len(data)
        ):
            self.refuse_head()

    def pause_writing(self) -> None:
        self.stalled_at = self.loop.time()
        self.flow.pause_writing()

    def resume_writing(self) -> None:
        self.stalled_at = 0.0
        self.flow.resume_writing()

    def shutdown(self) -> None:
        """The server stops: an idle connection closes now, a busy one after its answer."""
        self.edge.outbox.flush()
        if self.exchange is None:
            self.transport.close()
        else:
            self.exchange.keep_alive = False

    # The parser's calls.

    def on_message_begin(self) -> None:
        self.url = b""
        self.found: dict[bytes, bytes] = {}
        self.count = 0
        self.repeated = b""
        self.in_head = True

    def on_url(self, url: bytes) -> None:
        self.url += url

    def on_header(self, name: bytes, value: bytes) -> None:
        if self.in_head:  # trailers say nothing that anyone here reads
            self.count += 1
            name = name.lower()
            if self.found.setdefault(name, value) is not value and name in ONCE:
                self.repeated = name

    def on_headers_complete(self) -> None:
        if self.refusing:
            return
        edge = self.edge
        self.in_head = False
        # What came until now is an upper bound, which is enough for nearly every request.
        large = self.head_bytes > edge.max_header_bytes and self.head_size() > edge.max_header_bytes
        self.head_bytes = 0
        if large or self.count > edge.max_headers:
            self.refuse_head()
            return
        parser = self.parser
        version = parser.get_http_version()
        if fault := unclear(version, self.found, self.repeated):
            self.refuse(MalformedBody(fault))
            return
        if b"upgrade" in self.found and parser.should_upgrade():
            self.declining = True
            return
        exchange = WireExchange(
            self,
            parser.get_method(),
            self.url,
            self.found,
            bool(parser.should_keep_alive()),
            version == "1.0",
        )
        self.receiving = exchange
        self.expires = self.loop.time() + self.edge.body_timeout_s
        if self.exchange is None:
            self.begin(exchange)
        elif len(self.waiting) < PIPELINE_LIMIT:
            self.waiting.append(exchange)
            self.flow.pause_reading()
        else:
            self.refuse(InvalidRequest(f"more than {PIPELINE_LIMIT} pipelined requests"))

    def on_body(self, body: bytes) -> None:
        if self.receiving is not None:
            self.receiving.incoming.came(body)

    def on_message_complete(self) -> None:
        if self.declining:
            return
        exchange, self.receiving = self.receiving, None
        self.expires = 0.0
        self.in_head = True
        if exchange is not None:
            exchange.incoming.end()

    def parse(self, data: bytes) -> None:
        """Read the next bytes. A client that asks for another protocol is answered in this one.

        The parser takes what follows such a head for that protocol, so a new one gets the head
        again without the wish; Java's client sends bodies that way.
        """
        while data:
            try:
                self.parser.feed_data(data)
                return
            except httptools.HttpParserUpgrade as upgrade:
                if not self.declining:
                    raise
                data = self.plain_head() + data[upgrade.args[0] :]
                self.declining = False
                self.parser = httptools.HttpRequestParser(self)

    def plain_head(self) -> bytes:
        """The head that was just read, without the wish for another protocol."""
        del self.found[b"upgrade"]
        lines = b"".join([b"%b: %b\r\n" % pair for pair in self.found.items()])
        return b"%b %b HTTP/1.1\r\n%b\r\n" % (self.parser.get_method(), self.url, lines)

    # What an exchange needs.

    def send(self, data: bytes) -> None:
        """Send at once, after what still waits for the end of the turn."""
        self.edge.outbox.flush()
        self.transport.write(data)

    def begin(self, exchange: WireExchange) -> None:
        """Start the handler's task for this exchange."""
        self.exchange = exchange
        exchange.task = self.loop.create_task(exchange.run(self.edge.handler))

    def answered(self, exchange: WireExchange) -> None:
        """An answer is complete: keep the connection for the next request, or end it."""
        self.exchange = None
        self.server_state.total_requests += 1
        transport = self.transport
        if transport.is_closing():
            return
        if self.receiving is exchange or self.refusing:
            self.linger()  # answered before all that was sent had been read
        elif not exchange.keep_alive:
            transport.close()
        elif self.waiting:
            self.begin(self.waiting.popleft())
        else:
            self.flow.resume_reading()
            if self.in_head and self.head_bytes == 0:
                self.expires = self.loop.time() + self.edge.keep_alive_s

    def head_size(self) -> int:
        """Bytes of the request's line and headers."""
        return len(self.url) + sum(len(name) + len(value) + 4 for name, value in self.found.items())

    def refuse_head(self) -> None:
        """Refuse a head that is over its bounds."""
        edge = self.edge
        self.refuse(
            PayloadTooLarge(
                f"the request's head is over {edge.max_header_bytes} bytes"
                f" or {edge.max_headers} headers"
            ),
            status=431,
        )

    def refuse(self, error: TiffinError, status: int = 0) -> None:
        """Answer on behalf of a request that never became one, and end the connection."""
        if self.refusing or self.transport.is_closing():
            return
        if self.exchange is None:
            path = local(self.url).partition(b"?")[0]
            code, headers, body = self.edge.answer_error(error, path)
            self.send(response(status or code, [*headers, CLOSE], body))
            self.linger()
        else:  # an answer is under way: nothing may be put into the middle of it
            self.exchange.keep_alive = False
            if self.receiving is self.exchange:
                self.exchange.incoming.fail(error)
            self.refusing = True

    def linger(self) -> None:
        """Stop sending and throw away a little of what still comes, so that the answer is read."""
        self.refusing = True
        self.receiving = None
        self.flow.resume_reading()
        self.expires = self.loop.time() + DISCARD_S
        if self.transport.can_write_eof():
            self.transport.write_eof()
        else:
            self.transport.close()

    def hung_up(self) -> bool:
        """Whether the client closed its side; while reading is paused the loop doesn't say so."""
        if self.transport.is_closing():
            return False
        poll = select.poll()
        poll.register(self.transport.get_extra_info("socket").fileno(), select.POLLRDHUP)
        return bool(poll.poll(0))

    def sweep(self, now: float) -> None:
        """Apply the timers of this connection; notice a leaving that nobody else could."""
        stalled = self.stalled_at and now - self.stalled_at > self.edge.stall_timeout_s
        if stalled or (self.flow.read_paused and self.hung_up()):
            self.transport.abort()
        elif not self.expires or now < self.expires or self.transport.is_closing():
            return
        elif self.refusing:
            self.transport.abort()
        elif self.receiving is not None:
            self.receiving.incoming.fail(
                RequestTimeout(f"the body didn't come within {self.edge.body_timeout_s:g} s")
            )
        elif self.exchange is None and self.head_bytes:
            self.refuse(
                RequestTimeout(f"the head didn't come within {self.edge.header_timeout_s:g} s")
            )
        elif self.exchange is None:
            self.transport.close()


CLOSE = (b"connection", b"close")


def status_line(status: int) -> bytes:
    """`HTTP/1.1 200 OK` and its line end."""
    try:
        phrase = HTTPStatus(status).phrase
    except ValueError:
        phrase = ""
    return b"HTTP/1.1 %d %b\r\n" % (status, phrase.encode())


def response(status: int, headers: Headers, body: bytes) -> bytes:
    """A whole response as bytes."""
    lines = b"".join([b"%b: %b\r\n" % pair for pair in headers])
    return b"%b%bcontent-length: %d\r\n\r\n%b" % (status_line(status), lines, len(body), body)


def protocol_for(edge: Edge) -> type[HttpProtocol]:
    """The protocol class that uvicorn is given: `uvicorn.Config(http=protocol_for(edge))`."""
    return type("BoundHttpProtocol", (HttpProtocol,), {"edge": edge})
