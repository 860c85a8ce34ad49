"""A server whose socket another process takes over: nobody who is connected loses a request."""

import asyncio
import contextlib
import socket
from collections.abc import AsyncIterator

from tests.polling import eventually
from tests.unit.api.test_http_edge import POST, Client, Site, answer_error
from tiffin.api.http import Edge
from tiffin.api.server import EdgeServer

ASK = POST + b"content-length: 0\r\n\r\n"
HELD = b"POST /hold HTTP/1.1\r\nhost: t\r\ncontent-length: 0\r\n\r\n"


class Scene:
    """One server, and the port that somebody else listens on too."""

    def __init__(self, site: Site, server: EdgeServer, port: int) -> None:
        self.site = site
        self.server = server
        self.port = port

    async def connect(self) -> Client:
        return Client(*await asyncio.open_connection("127.0.0.1", self.port))


@contextlib.asynccontextmanager
async def scene() -> AsyncIterator[tuple[Scene, "asyncio.Task[None]"]]:
    site = Site()
    server = EdgeServer(Edge(handler=site, answer_error=answer_error), close_within_s=1)
    with socket.create_server(("127.0.0.1", 0)) as shared:
        task = asyncio.create_task(server.run_on(shared.dup()))
        await eventually(lambda: server.started)
        try:
            yield Scene(site, server, shared.getsockname()[1]), task
        finally:
            site.open.set()
            server.stop()
            await task


async def answer(client: Client) -> bytes:
    """The head of an answer without body."""
    return await asyncio.wait_for(client.reader.readuntil(b"\r\n\r\n"), 10)


async def test_an_idle_connection_gets_one_more_answer_which_says_so() -> None:
    async with scene() as (here, task):
        client = await here.connect()
        await client.send(ASK)
        assert b"connection: close" not in await answer(client)
        here.server.leave()
        await client.send(ASK)
        assert b"connection: close" in await answer(client)
        assert await client.closed()
        await asyncio.wait_for(task, 10)
        client.writer.close()


async def test_an_answer_that_had_begun_isnt_the_last_one() -> None:
    async with scene() as (here, task):
        client = await here.connect()
        await client.send(b"POST /flood HTTP/1.1\r\nhost: t\r\ncontent-length: 0\r\n\r\n")
        assert b"200" in await answer(client)
        waiting = await here.connect()
        await waiting.send(HELD)
        await asyncio.wait_for(here.site.held.wait(), 10)
        here.server.leave()
        assert not task.done()
        here.site.open.set()
        assert b"connection: close" in await answer(waiting), "its head hadn't gone out yet"
        assert not task.done()
        client.writer.close()
        waiting.writer.close()
        await asyncio.wait_for(task, 10)


async def test_what_was_pipelined_is_answered_before_the_end() -> None:
    async with scene() as (here, task):
        client = await here.connect()
        await client.send(HELD + ASK)
        await asyncio.wait_for(here.site.held.wait(), 10)
        here.server.leave()
        here.site.open.set()
        assert b"connection: close" not in await answer(client)
        assert b"connection: close" in await answer(client)
        assert await client.closed()
        await asyncio.wait_for(task, 10)
        client.writer.close()


async def test_who_connects_later_finds_the_other_one() -> None:
    async with scene() as (here, task):
        here.server.leave()
        await asyncio.wait_for(task, 10)
        client = await here.connect()  # the kernel keeps it for whoever listens there
        client.writer.close()
