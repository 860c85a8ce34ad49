"""The gRPC port over TLS: who is let in, and a certificate that is another one from now on."""

import socket
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import grpc  # type: ignore[import-untyped]
import pytest
from grpc import aio

from tests.certificates import Authority, Signed
from tests.unit.api.test_grpc_edge import CALL, Site
from tiffin.api.grpc_edge import GrpcEdge
from tiffin.api.wire_exchange import Room
from tiffin.config.schema import Server
from tiffin.config.tls import Credentials, credentials_of
from tiffin.types.tls import Tls


class Port:
    """A started edge; `shown` are its credentials from now on."""

    def __init__(self, shown: Credentials) -> None:
        with socket.create_server(("127.0.0.1", 0)) as free:
            self.number = free.getsockname()[1]
        self.shown = shown
        server = Server(grpc_port=self.number)
        self.edge = GrpcEdge(Site(), server, Room(100_000), lambda: self.shown)

    async def call(self, trusted: Authority, own: Signed | None = None) -> Any:
        pair = (own.key.read_bytes(), own.certificate.read_bytes()) if own else (None, None)
        known = grpc.ssl_channel_credentials(trusted.path.read_bytes(), *pair)
        # Else it would go on with a connection of another channel.
        alone = [("grpc.use_local_subchannel_pool", 1)]
        async with aio.secure_channel(f"127.0.0.1:{self.number}", known, alone) as channel:
            ask = channel.unary_unary("/inference.GRPCInferenceService/ModelInfer")
            return await ask(CALL, timeout=10)


def shown_by(signed: Signed, clients: Authority | None = None) -> Credentials:
    tls = Tls(certificate=str(signed.certificate), key_file=str(signed.key))
    if clients is None:
        return credentials_of(tls)
    tls = Tls(
        certificate=tls.certificate,
        key_file=tls.key_file,
        client="required",
        client_ca=str(clients.path),
    )
    return credentials_of(tls)


@pytest.fixture
async def ports() -> AsyncIterator[list[Port]]:
    ports: list[Port] = []
    yield ports
    for port in ports:
        await port.edge.stop()


async def begun(ports: list[Port], shown: Credentials) -> Port:
    ports.append(Port(shown))
    await ports[-1].edge.start()
    return ports[-1]


async def test_calls_go_over_tls_and_new_ones_see_another_certificate(
    ports: list[Port], tmp_path: Path
) -> None:
    old, new = Authority(tmp_path, "old"), Authority(tmp_path, "new")
    port = await begun(ports, shown_by(old.sign("one")))
    assert await port.call(old)
    with pytest.raises(aio.AioRpcError):
        await port.call(new)
    port.shown = shown_by(new.sign("two"))
    assert await port.call(new)
    with pytest.raises(aio.AioRpcError):
        await port.call(old)


async def test_a_client_without_a_certificate_of_the_authority_is_turned_away(
    ports: list[Port], tmp_path: Path
) -> None:
    authority, clients = Authority(tmp_path), Authority(tmp_path, "clients")
    port = await begun(ports, shown_by(authority.sign("server"), clients))
    assert await port.call(authority, clients.sign("alice"))
    for stranger in (None, authority.sign("mallory")):
        with pytest.raises(aio.AioRpcError):
            await port.call(authority, stranger)
