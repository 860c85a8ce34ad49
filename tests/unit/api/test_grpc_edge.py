"""The gRPC port over a site of the test's own: what a call carries, and how its answer is told."""

import asyncio
import socket
from collections.abc import AsyncIterator
from typing import Any

import grpc  # type: ignore[import-untyped]
import pytest
from grpc import aio

from tiffin.api.grpc_edge import GrpcEdge
from tiffin.api.wire_exchange import Room
from tiffin.config.schema import Server
from tiffin.dialects.oip.errors import error_response
from tiffin.dialects.oip.protobuf import read, write
from tiffin.dialects.oip.protobuf_messages import (
    Flag,
    InferCall,
    InferReply,
    NamedModel,
    StreamReply,
    Tensor,
)
from tiffin.errors import Draining, Overloaded, PayloadTooLarge, TiffinError, Unauthenticated
from tiffin.ports.exchange import Exchange

CALL = write(InferCall("m", inputs=[Tensor("x", "UINT8", [1])], raw_input_contents=[b"\x07"]))
ANSWER = b'{"model_name":"m","outputs":[]}'


class Site:
    """Answers as it is told to, and keeps what it was asked."""

    def __init__(self) -> None:
        self.asked: list[Exchange] = []
        self.error: Exception | None = None
        self.silent = False
        self.open = asyncio.Event()
        self.open.set()
        self.gone = asyncio.Event()
        self.came = asyncio.Event()

    async def __call__(self, exchange: Exchange) -> None:
        self.asked.append(exchange)
        self.came.set()
        try:
            await self.open.wait()
        except asyncio.CancelledError:
            if exchange.gone:
                self.gone.set()
            else:
                exchange.respond(*error_response(Draining("the server is stopping")))
            raise
        if self.silent:
            return
        if isinstance(self.error, TiffinError):
            exchange.respond(*error_response(self.error))
        elif self.error is not None:
            raise self.error
        else:
            exchange.respond(200, [], ANSWER)


class Port:
    """A started edge with a client."""

    def __init__(self) -> None:
        with socket.create_server(("127.0.0.1", 0)) as free:
            number = free.getsockname()[1]
        self.site = Site()
        self.room = Room(100_000)
        server = Server(
            grpc_port=number, max_body_bytes=1_000_000, body_timeout_s=0.2, keep_alive_s=0.3
        )
        self.edge = GrpcEdge(self.site, server, self.room)
        self.channel = aio.insecure_channel(f"127.0.0.1:{number}")

    def call(self, method: str, message: bytes, **more: Any) -> Any:
        """One call that answers one message with one."""
        return self.channel.unary_unary(f"/inference.GRPCInferenceService/{method}")(
            message, **more
        )


@pytest.fixture
async def port() -> AsyncIterator[Port]:
    made = Port()
    await made.edge.start()
    yield made
    await made.channel.close()
    await made.edge.stop()


async def refused(call: Any) -> tuple[str, str, dict[str, str]]:
    with pytest.raises(aio.AioRpcError) as raised:
        await call
    error = raised.value
    return error.code().name, error.details(), dict(error.trailing_metadata())


async def test_a_call_is_a_request(port: Port) -> None:
    metadata = (
        ("authorization", "Bearer k"),
        ("x-request-id", "r"),
        ("content-encoding", "gzip"),
        ("x-request-timeout-ms", "90000"),
        ("a-bin", b"\x00"),
    )
    reply = read(InferReply, await port.call("ModelInfer", CALL, metadata=metadata, timeout=5))
    assert reply.model_name == "m"
    [asked] = port.site.asked
    assert (asked.method, asked.path) == (b"POST", b"/v2/models/m/infer")
    assert asked.header(b"authorization") == b"Bearer k"
    assert asked.header(b"x-request-id") == b"r"
    assert asked.header(b"content-encoding") is None
    assert 0 < int(asked.header(b"x-request-timeout-ms") or 0) <= 6000  # it is rounded up
    body = await asked.body(1000)
    assert body[int(asked.header(b"inference-header-content-length") or 0) :] == b"\x07"
    with pytest.raises(PayloadTooLarge):
        await asked.body(10)
    await port.call("ModelInfer", CALL)
    assert port.site.asked[1].header(b"x-request-timeout-ms") is None


async def test_a_refusal_says_when_to_come_again(port: Port) -> None:
    port.site.error = Overloaded("full", retry_after=0.25)
    code, details, trailing = await refused(port.call("ModelInfer", CALL))
    assert (code, details) == ("UNAVAILABLE", "full")
    assert (trailing["retry-after-ms"], trailing["x-tiffin-error"]) == ("250", "overloaded")


async def test_a_long_message_of_an_error_arrives(port: Port) -> None:
    port.site.error = Overloaded("é" * 5000)
    code, details, _ = await refused(port.call("ModelInfer", CALL))
    assert code == "UNAVAILABLE"
    assert details.startswith("éé")


async def test_what_is_not_ready_is_an_answer(port: Port) -> None:
    port.site.error = Overloaded("loading")
    asked = write(NamedModel("m"))
    assert read(Flag, await port.call("ModelReady", asked)) == Flag(False)
    port.site.error = None
    assert read(Flag, await port.call("ModelReady", asked)) == Flag(True)


@pytest.mark.parametrize("silent", [True, False], ids=["silent", "raises"])
async def test_what_breaks_inside_is_told_without_details(port: Port, silent: bool) -> None:
    port.site.silent = silent
    port.site.error = RuntimeError("secret")
    code, details, _ = await refused(port.call("ModelInfer", CALL))
    assert code == "INTERNAL"
    assert "secret" not in details


async def test_messages_have_room_together(port: Port) -> None:
    call = InferCall("m", inputs=[Tensor("x", "UINT8", [1])], raw_input_contents=[bytes(200_000)])
    code, _, trailing = await refused(port.call("ModelInfer", write(call)))
    assert (code, trailing["retry-after-ms"]) == ("UNAVAILABLE", "1000")
    assert port.room.taken == 0


async def test_a_client_that_leaves_is_gone(port: Port) -> None:
    port.site.open.clear()
    call = asyncio.ensure_future(port.call("ModelInfer", CALL))
    async with asyncio.timeout(5):
        await port.site.came.wait()
        call.cancel()
        await port.site.gone.wait()
    await port.edge.stop()
    assert port.edge.running() == []
    assert port.room.taken == 0


async def test_the_server_may_end_what_runs(port: Port) -> None:
    port.site.open.clear()
    call = asyncio.ensure_future(refused(port.call("ModelInfer", CALL)))
    async with asyncio.timeout(5):
        await port.site.came.wait()
        for task in port.edge.running():
            task.cancel()
        code, details, _ = await call
    assert (code, details) == ("UNAVAILABLE", "the server is stopping")


async def test_a_stopping_server_ends_streams_that_wait(port: Port) -> None:
    stream = port.channel.stream_stream("/inference.GRPCInferenceService/ModelStreamInfer")()
    await stream.write(CALL)
    await stream.read()
    async with asyncio.timeout(5):
        await port.edge.stop()
        assert await stream.code() is grpc.StatusCode.UNAVAILABLE


async def test_a_stream_says_what_went_wrong_and_goes_on(port: Port) -> None:
    stream = port.channel.stream_stream("/inference.GRPCInferenceService/ModelStreamInfer")()
    for error in (None, Overloaded("full"), RuntimeError("secret"), None):
        port.site.error = error
        await stream.write(CALL)
        reply = read(StreamReply, await stream.read())
        assert bool(reply.error_message) is (error is not None)
        assert "secret" not in reply.error_message
    await stream.write(b"\xff")
    port.site.error = None
    await stream.read()
    await stream.done_writing()
    assert await stream.read() is aio.EOF
    assert await stream.code() is grpc.StatusCode.OK


async def test_a_client_may_not_take_its_time(port: Port) -> None:
    late = port.channel.stream_unary("/inference.GRPCInferenceService/ModelInfer")()
    assert (await refused(late))[0] == "DEADLINE_EXCEEDED"
    stream = port.channel.stream_stream("/inference.GRPCInferenceService/ModelStreamInfer")()
    assert await stream.code() is grpc.StatusCode.DEADLINE_EXCEEDED
    empty = port.channel.stream_unary("/inference.GRPCInferenceService/ModelInfer")()
    await empty.done_writing()
    assert (await refused(empty))[0] == "INVALID_ARGUMENT"


async def test_a_stream_with_a_wrong_key_ends(port: Port) -> None:
    port.site.error = Unauthenticated("who?")
    stream = port.channel.stream_stream("/inference.GRPCInferenceService/ModelStreamInfer")()
    await stream.write(CALL)
    assert await stream.code() is grpc.StatusCode.UNAUTHENTICATED


async def test_compressed_messages_are_refused(port: Port) -> None:
    big = write(InferCall("m", raw_input_contents=[bytes(50_000)]))
    code, _, _ = await refused(port.call("ModelInfer", big, compression=grpc.Compression.Gzip))
    assert code == "UNIMPLEMENTED"
    assert port.site.asked == []
