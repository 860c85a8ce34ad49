"""The HTTP edge against raw sockets: limits, timers, pipelining, smuggling, leaving clients."""

import asyncio
import contextlib
import gc
import socket
from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Any

import pytest

from tests.polling import eventually
from tiffin.api.http import Edge
from tiffin.api.server import EdgeServer
from tiffin.api.wire_exchange import Room, WireExchange
from tiffin.errors import TiffinError
from tiffin.ports.exchange import Exchange, Headers

POST = b"POST /x HTTP/1.1\r\nhost: t\r\n"


class Site:
    """A handler that echoes bodies, can hold, stream and raise, and records what it saw."""

    def __init__(self) -> None:
        self.seen: list[tuple[bytes, bytes]] = []
        self.limit = 1000
        self.methods: list[bytes] = []
        self.paths: list[bytes] = []
        self.left = asyncio.Event()
        self.held = asyncio.Event()
        self.open = asyncio.Event()

    async def __call__(self, exchange: Exchange) -> None:
        self.methods.append(exchange.method)
        self.paths.append(exchange.path)
        if exchange.path == b"/stream":
            exchange.begin(200, [])
            for part in (b"one", b"two"):
                exchange.write(part)
            exchange.finish()
            return
        if exchange.path == b"/hold":
            self.held.set()
            try:
                await self.open.wait()
            except asyncio.CancelledError:
                self.left.set()
                raise
        if exchange.path == b"/early":
            exchange.respond(401, [], b"no")
            return
        if exchange.path == b"/flood":
            await self.flood(exchange)
        if exchange.path == b"/broken":
            raise RuntimeError("a handler's own fault")
        try:
            body = await exchange.body(self.limit)
        except TiffinError as error:
            exchange.respond(413 if "over the limit" in error.message else 400, [], b"bad")
            return
        self.seen.append((exchange.path, body))
        exchange.respond(200, [], body)

    async def flood(self, exchange: Exchange) -> None:
        exchange.begin(200, [])
        try:
            while True:
                exchange.write(b"x" * 65_536)
                await exchange.drain()
        except asyncio.CancelledError:
            self.left.set()
            raise


def answer_error(error: TiffinError, path: bytes) -> tuple[int, Headers, bytes]:
    return 400, [], error.slug.encode()


class Client:
    """A raw connection."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer

    async def send(self, data: bytes) -> None:
        self.writer.write(data)
        await self.writer.drain()

    async def status(self) -> int:
        line = await asyncio.wait_for(self.reader.readline(), 10)
        if not line:
            return 0
        code = int(line.split()[1])
        length = 0
        while (header := await self.reader.readline()) not in (b"\r\n", b""):
            name, _, value = header.partition(b":")
            if name.lower() == b"content-length":
                length = int(value)
        self.body = await self.reader.readexactly(length)
        return code

    async def closed(self) -> bool:
        return await asyncio.wait_for(self.reader.read(), 10) == b""


@contextlib.asynccontextmanager
async def running(site: Site, **limits: Any) -> AsyncIterator["Server"]:
    edge = replace(
        Edge(handler=site, answer_error=answer_error, max_body_bytes=2000),
        **limits,
    )
    server = EdgeServer(edge, close_within_s=1)
    sock = socket.create_server(("127.0.0.1", 0))
    task = asyncio.create_task(server.run_on(sock))
    started = Server(site, sock.getsockname()[1])
    try:
        yield started
    finally:
        site.open.set()
        for client in started.clients:
            client.writer.close()
        server.stop()
        await task


class Server:
    def __init__(self, site: Site, port: int) -> None:
        self.site = site
        self.port = port
        self.clients: list[Client] = []

    async def connect(self) -> Client:
        client = Client(*await asyncio.open_connection("127.0.0.1", self.port))
        self.clients.append(client)
        return client


async def test_a_connection_serves_one_request_after_another() -> None:
    async with running(Site()) as server:
        client = await server.connect()
        for body in (b"one", b"two"):
            await client.send(POST + b"content-length: 3\r\n\r\n" + body)
            assert await client.status() == 200
            assert client.body == body


async def test_pipelined_requests_are_answered_in_order() -> None:
    async with running(Site()) as server:
        client = await server.connect()
        await client.send(b"".join(POST + b"content-length: 1\r\n\r\n%d" % n for n in range(5)))
        for n in range(5):
            assert await client.status() == 200
            assert client.body == b"%d" % n


async def test_a_body_over_the_limit_is_refused_before_it_is_read() -> None:
    site = Site()
    async with running(site) as server:
        client = await server.connect()
        await client.send(POST + b"content-length: 100000000\r\n\r\n")
        assert await client.status() == 413
        assert await client.closed()
        assert site.seen == []


async def test_a_chunked_body_over_the_limit_is_refused() -> None:
    async with running(Site()) as server:
        client = await server.connect()
        await client.send(POST + b"transfer-encoding: chunked\r\n\r\n")
        await client.send((b"3e8\r\n" + b"x" * 1000 + b"\r\n") * 3)
        assert await client.status() == 413


async def test_large_bodies_share_a_room_and_give_it_back() -> None:
    site, room, size = Site(), Room(100_000), 70_000
    site.limit = size
    whole = b"POST /hold HTTP/1.1\r\nhost: t\r\ncontent-length: %d\r\n\r\n" % size + b"x" * size
    async with running(site, max_body_bytes=80_000, room=room) as server:
        first, second = await server.connect(), await server.connect()
        await first.send(whole)
        await eventually(lambda: room.taken == size)
        await second.send(whole.replace(b"/hold", b"/x"))
        assert await second.status() == 400
        first.writer.close()
        await eventually(lambda: room.taken == 0)
        third = await server.connect()
        await third.send(whole.replace(b"/hold", b"/x"))
        assert await third.status() == 200
        assert room.taken == 0


async def test_expect_continue_is_answered_only_for_a_body_that_is_wanted() -> None:
    async with running(Site()) as server:
        client = await server.connect()
        await client.send(POST + b"expect: 100-continue\r\ncontent-length: 2\r\n\r\n")
        assert await client.status() == 100
        await client.send(b"ok")
        assert await client.status() == 200
        late = await server.connect()
        await late.send(POST + b"expect: 100-continue\r\ncontent-length: 5000\r\n\r\n")
        assert await late.status() == 413


async def test_an_answer_before_the_body_ends_the_connection() -> None:
    async with running(Site()) as server:
        client = await server.connect()
        await client.send(b"POST /early HTTP/1.1\r\nhost: t\r\ncontent-length: 900\r\n\r\nabc")
        assert await client.status() == 401
        assert await client.closed()


@pytest.mark.parametrize(
    "head",
    [
        POST + b"content-length: 3\r\ncontent-length: 4\r\n\r\nabcd",
        POST + b"content-length: 3\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n",
        POST + b"transfer-encoding: chunked, identity\r\n\r\n0\r\n\r\n",
        POST + b"content-length: -3\r\n\r\nabc",
        POST + b"content-length: 3x\r\n\r\nabc",
        POST + b"content-length : 3\r\n\r\nabc",
        POST + b" content-length: 3\r\n\r\nabc",
        POST + b"transfer-encoding: chunked\r\n\r\nzz\r\nabc\r\n0\r\n\r\n",
        POST + b"transfer-encoding: chunked\r\n\r\n3\r\nabcdef\r\n0\r\n\r\n",
        b"POST /x HTTP/9.9\r\n\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
        b"POST /x HTTP/1.1\r\ncontent-length: 0\r\n\r\n",
        POST + b"Host: other\r\ncontent-length: 0\r\n\r\n",
        POST + b"authorization: a\r\nauthorization: b\r\ncontent-length: 0\r\n\r\n",
        POST + b"transfer-encoding: gzip, chunked\r\n\r\n0\r\n\r\n",
        b"GET /x\r\n\r\n",
        b"GET /x HTTP/0.9\r\n\r\n",
        b"GARBAGE\r\n\r\n",
        POST + b"host: t\x00\r\n\r\n",
    ],
    ids=lambda head: repr(head[:90]),
)
async def test_nonsense_gets_one_400_and_the_connection_ends(head: bytes) -> None:
    site = Site()
    async with running(site) as server:
        client = await server.connect()
        await client.send(head)
        assert await client.status() == 400
        assert await client.closed()
        assert [path for path, _ in site.seen if path != b"/x"] == []


async def test_a_smuggled_second_request_never_reaches_the_handler() -> None:
    site = Site()
    async with running(site) as server:
        client = await server.connect()
        await client.send(
            POST + b"content-length: 6\r\ntransfer-encoding: chunked\r\n\r\n"
            b"0\r\n\r\nGET /admin HTTP/1.1\r\nhost: t\r\n\r\n"
        )
        await client.status()
        assert await client.closed()
        assert all(path != b"/admin" for path, _ in site.seen)


async def test_trailers_are_not_headers() -> None:
    class Reading(Site):
        async def __call__(self, exchange: Exchange) -> None:
            await exchange.body(1000)
            exchange.respond(200, [], exchange.header(b"x-tiffin-tenant") or b"none")

    async with running(Reading()) as server:
        client = await server.connect()
        await client.send(
            POST + b"transfer-encoding: chunked\r\n\r\n1\r\na\r\n0\r\nx-tiffin-tenant: b\r\n\r\n"
        )
        assert await client.status() == 200
        assert client.body == b"none"


@pytest.mark.parametrize(
    "head",
    [
        b"a: b\r\n" * 200,
        b"a: " + b"b" * 5_000_000 + b"\r\n",
        b"a" * 5_000_000,
    ],
    ids=["many", "large", "endless"],
)
async def test_a_flood_of_headers_is_refused_early(head: bytes) -> None:
    async with running(Site()) as server:
        client = await server.connect()
        client.writer.write(POST + head + b"\r\n")
        assert await client.status() == 431


async def test_an_endless_url_is_refused() -> None:
    async with running(Site()) as server:
        client = await server.connect()
        client.writer.write(b"GET /" + b"a" * 1_000_000 + b" HTTP/1.1\r\n\r\n")
        assert await client.status() == 431


async def test_a_slow_head_is_told_so() -> None:
    async with running(Site(), header_timeout_s=0.3) as server:
        client = await server.connect()
        await client.send(b"POST /x HT")
        assert await client.status() == 400
        assert client.body == b"request_timeout"
        assert await client.closed()


async def test_a_connection_that_says_nothing_is_closed() -> None:
    async with running(Site(), header_timeout_s=0.3) as server:
        client = await server.connect()
        assert await client.closed()


async def test_a_slow_body_is_told_so() -> None:
    async with running(Site(), body_timeout_s=0.3) as server:
        client = await server.connect()
        await client.send(POST + b"content-length: 10\r\n\r\nabc")
        assert await client.status() == 400
        assert await client.closed()


async def test_an_idle_connection_is_closed_after_its_time() -> None:
    async with running(Site(), keep_alive_s=0.3) as server:
        client = await server.connect()
        await client.send(POST + b"content-length: 0\r\n\r\n")
        assert await client.status() == 200
        assert await client.closed()


async def test_a_client_that_leaves_cancels_its_handler() -> None:
    site = Site()
    async with running(site) as server:
        client = await server.connect()
        await client.send(b"POST /hold HTTP/1.1\r\nhost: t\r\ncontent-length: 0\r\n\r\n")
        await asyncio.wait_for(site.held.wait(), 5)
        client.writer.close()
        await asyncio.wait_for(site.left.wait(), 5)


async def test_a_client_that_stops_reading_is_cut_off() -> None:
    site = Site()
    async with running(site, stall_timeout_s=0.3) as server:
        client = await server.connect()
        await client.send(b"POST /flood HTTP/1.1\r\nhost: t\r\ncontent-length: 0\r\n\r\n")
        await asyncio.wait_for(site.left.wait(), 10)


async def test_a_broken_handler_cuts_the_connection_instead_of_hanging() -> None:
    async with running(Site()) as server:
        errors: list[object] = []
        asyncio.get_running_loop().set_exception_handler(lambda _, context: errors.append(context))
        client = await server.connect()
        await client.send(b"POST /broken HTTP/1.1\r\nhost: t\r\ncontent-length: 0\r\n\r\n")
        assert await client.closed()


UPGRADE = b"connection: Upgrade, HTTP2-Settings\r\nupgrade: h2c\r\nhttp2-settings: AAMAAABk\r\n"


@pytest.mark.parametrize("cut", [0, 30, 150, 152], ids=lambda cut: f"cut at {cut}")
@pytest.mark.parametrize(
    "framed",
    [b"content-length: 2\r\n\r\nok", b"transfer-encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n"],
    ids=["length", "chunks"],
)
async def test_an_upgrade_is_declined_by_serving_the_request_as_it_is(
    framed: bytes, cut: int
) -> None:
    async with running(Site()) as server:
        client = await server.connect()
        request = POST + UPGRADE + framed
        for _ in range(2):
            await client.send(request[:cut])
            await asyncio.sleep(0)
            await client.send(request[cut:])
            assert await client.status() == 200
            assert client.body == b"ok"


async def test_a_tunnel_is_refused() -> None:
    async with running(Site()) as server:
        client = await server.connect()
        await client.send(b"CONNECT t:80 HTTP/1.1\r\nhost: t\r\nupgrade: h2c\r\n\r\n")
        assert await client.status() in (200, 400)
        assert await client.closed()


async def test_head_is_get_without_what_it_says() -> None:
    async with running(Site()) as server:
        client = await server.connect()
        for path in (b"/early", b"/stream"):
            await client.send(b"HEAD %b HTTP/1.1\r\nhost: t\r\n\r\n" % path)
            head = await asyncio.wait_for(client.reader.readuntil(b"\r\n\r\n"), 10)
            assert head.startswith((b"HTTP/1.1 401", b"HTTP/1.1 200"))
        assert await client.closed()
        assert server.site.methods == [b"GET", b"GET"]


async def test_an_old_client_gets_no_chunks_and_the_end_of_the_connection() -> None:
    async with running(Site()) as server:
        client = await server.connect()
        await client.send(b"GET /stream HTTP/1.0\r\nconnection: keep-alive\r\n\r\n")
        answer = await asyncio.wait_for(client.reader.read(), 10)
        head, _, body = answer.partition(b"\r\n\r\n")
        assert body == b"onetwo"
        assert b"transfer-encoding" not in head
        assert b"connection: close" in head


@pytest.mark.parametrize(
    ("target", "path"),
    [
        (b"http://t/early?a=b", b"/early"),
        (b"http://t:80/a//b", b"/a//b"),
        (b"http://t", b"http://t"),
        (b"*", b"*"),
    ],
)
async def test_the_path_is_found_in_every_form_of_a_target(target: bytes, path: bytes) -> None:
    async with running(Site()) as server:
        client = await server.connect()
        await client.send(b"GET %b HTTP/1.1\r\nhost: t\r\n\r\n" % target)
        await client.status()
        assert server.site.paths == [path]


async def test_a_client_that_leaves_with_requests_waiting_cancels_the_running_one() -> None:
    site = Site()
    async with running(site) as server:
        client = await server.connect()
        hold = b"POST /hold HTTP/1.1\r\nhost: t\r\ncontent-length: 0\r\n\r\n"
        await client.send(hold * 2)
        await asyncio.wait_for(site.held.wait(), 5)
        client.writer.close()
        await asyncio.wait_for(site.left.wait(), 5)


async def test_an_exchange_that_was_left_leaves_nothing_to_the_collector() -> None:
    site = Site()
    async with running(site) as server:
        client = await server.connect()
        gc.collect()
        gc.disable()
        try:
            await client.send(b"POST /hold HTTP/1.1\r\nhost: t\r\ncontent-length: 0\r\n\r\n")
            await asyncio.wait_for(site.held.wait(), 5)
            client.writer.close()
            await asyncio.wait_for(site.left.wait(), 5)
            await eventually(
                lambda: not any(isinstance(one, WireExchange) for one in gc.get_objects())
            )
        finally:
            gc.enable()


async def test_connections_over_the_limit_are_refused() -> None:
    async with running(Site(), max_connections=2) as server:
        for _ in range(2):
            client = await server.connect()
            await client.send(POST + b"content-length: 0\r\n\r\n")
            assert await client.status() == 200
        third = await server.connect()
        assert await third.status() == 400
        assert third.body == b"overloaded"
