"""The HTTP edge over TLS: the silent are let go, another certificate is shown from now on."""

import asyncio
import contextlib
import socket
import ssl
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.certificates import Authority, Signed
from tests.polling import eventually
from tests.unit.api.test_http_edge import POST, Client, Site, answer_error
from tiffin.api.http import Edge
from tiffin.api.server import EdgeServer
from tiffin.config.tls import context_of, credentials_of
from tiffin.types.tls import Tls

ASK = POST + b"content-length: 0\r\n\r\n"


class Scene:
    """A server of one certificate, and who trusts its authority."""

    def __init__(self, folder: Path, server: EdgeServer, port: int, authority: Authority) -> None:
        self.folder = folder
        self.server = server
        self.port = port
        self.authority = authority

    async def connect(self, tls: bool = True) -> Client:
        trust = ssl.create_default_context(cafile=str(self.authority.path)) if tls else None
        return Client(*await asyncio.open_connection("127.0.0.1", self.port, ssl=trust))


def context_for(signed: Signed) -> ssl.SSLContext:
    tls = Tls(certificate=str(signed.certificate), key_file=str(signed.key))
    return context_of(credentials_of(tls))


@pytest.fixture
async def scene(tmp_path: Path) -> AsyncIterator[Scene]:
    authority = Authority(tmp_path)
    edge = Edge(handler=Site(), answer_error=answer_error, header_timeout_s=0.2)
    server = EdgeServer(edge, tls=context_for(authority.sign("one")), close_within_s=1)
    with socket.create_server(("127.0.0.1", 0)) as shared:
        task = asyncio.create_task(server.run_on(shared.dup()))
        await eventually(lambda: server.started)
        yield Scene(tmp_path, server, shared.getsockname()[1], authority)
        server.stop()
        await task


def name_of(client: Client) -> str:
    """Who the server said it is."""
    found = client.writer.get_extra_info("peercert")["subject"][0][0][1]
    return str(found)


async def answered(client: Client) -> bytes:
    await client.send(ASK)
    return await asyncio.wait_for(client.reader.readuntil(b"\r\n\r\n"), 10)


async def end(*clients: Client) -> None:
    for client in clients:
        client.writer.close()
        with contextlib.suppress(OSError):
            await client.writer.wait_closed()


async def test_who_says_nothing_is_let_go(scene: Scene) -> None:
    silent = await scene.connect(tls=False)
    assert await silent.closed()
    await end(silent)


@pytest.mark.parametrize("others", [False, True])
async def test_connections_outlive_their_certificate(scene: Scene, others: bool) -> None:
    kept = await scene.connect()
    assert b"200" in await answered(kept)
    await scene.server.renew(context_for(scene.authority.sign("two")), others=others)
    fresh = await scene.connect()
    assert (name_of(kept), name_of(fresh)) == ("one", "two")
    assert b"200" in await answered(fresh)
    assert (b"connection: close" in await answered(kept)) is others
    await end(kept, fresh)


async def test_who_leaves_the_socket_doesnt_listen_again(scene: Scene) -> None:
    client = await scene.connect()
    assert b"200" in await answered(client)
    scene.server.leave()
    await scene.server.renew(context_for(scene.authority.sign("two")), others=False)
    assert not any(server.is_serving() for server in scene.server.servers)
    await end(client)
