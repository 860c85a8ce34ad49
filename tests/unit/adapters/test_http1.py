"""The lean client against a scripted server: reuse, cancelling, breaking, timers, back-pressure."""

import asyncio
import contextlib
import socket
from collections.abc import AsyncIterator, Awaitable, Callable

import pytest

from tiffin.adapters.upstreams.endpoint import Endpoint, Timeouts
from tiffin.adapters.upstreams.http1 import Http1Backend
from tiffin.errors import DeadlineExceeded, UpstreamFailed, UpstreamUnavailable
from tiffin.ports.backend import Call

Script = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]
OK = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 2\r\n\r\n{}"
STREAM = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"


async def head(reader: asyncio.StreamReader) -> bytes:
    data = await reader.readuntil(b"\r\n\r\n")
    length = 0
    for line in data.split(b"\r\n"):
        if line.lower().startswith(b"content-length:"):
            length = int(line.split(b":")[1])
    return data + await reader.readexactly(length)


@contextlib.asynccontextmanager
async def upstream(script: Script, timeouts: Timeouts | None = None) -> AsyncIterator[Http1Backend]:
    running: set[asyncio.Task[None]] = set()

    async def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        running.add(task)
        try:
            with contextlib.suppress(ConnectionError, asyncio.IncompleteReadError):
                await script(reader, writer)
        finally:
            running.discard(task)
            writer.close()

    server = await asyncio.start_server(connected, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    endpoint = Endpoint(authority=b"t", host="127.0.0.1", port=port, prefix=b"/p")
    backend = Http1Backend(endpoint, timeouts)
    try:
        yield backend
    finally:
        backend.close()
        server.close()
        for task in running:
            task.cancel()
        await asyncio.gather(*running, return_exceptions=True)


def call(seconds: float = 5.0, body: bytes = b"{}") -> Call:
    deadline = asyncio.get_running_loop().time() + seconds
    return Call(path=b"/x", body=body, headers=b"a: b\r\n", deadline=deadline)


async def read_to_the_end(backend: Http1Backend, request: Call) -> None:
    async with backend.start(request) as reply:
        while await reply.read():
            pass


async def test_a_connection_is_reused() -> None:
    connections = 0

    async def script(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal connections
        connections += 1
        while True:
            got = await head(reader)
            assert got.startswith(b"POST /p/x HTTP/1.1\r\nhost: t\r\na: b\r\n")
            writer.write(OK)

    async with upstream(script) as backend:
        for _ in range(3):
            async with backend.start(call()) as reply:
                assert await reply.read_all(100) == b"{}"
        assert connections == 1
        assert not backend.active


async def test_leaving_a_stream_early_closes_the_connection() -> None:
    closed = asyncio.Event()

    async def script(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await head(reader)
        writer.write(STREAM + b"3\r\nabc\r\n")
        assert await reader.read() == b""
        closed.set()

    async with upstream(script) as backend:
        async with backend.start(call()) as reply:
            assert reply.streaming
            assert await reply.read() == b"abc"
        await asyncio.wait_for(closed.wait(), 5)
        assert not backend.idle


async def test_cancelling_before_the_head_closes_the_connection() -> None:
    came, closed = asyncio.Event(), asyncio.Event()

    async def script(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await head(reader)
        came.set()
        assert await reader.read() == b""
        closed.set()

    async with upstream(script) as backend:

        async def ask() -> None:
            async with backend.start(call()):
                raise AssertionError("no head was sent")

        task = asyncio.create_task(ask())
        await asyncio.wait_for(came.wait(), 5)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await asyncio.wait_for(closed.wait(), 5)
        assert not backend.active


@pytest.mark.parametrize(
    ("answer", "failure"),
    [
        (b"", UpstreamUnavailable),
        (b"HTTP/1.1 200 OK\r\ncontent-le", UpstreamUnavailable),
        (b"HTTP/1.1 200 OK\r\ncontent-length: 10\r\n\r\n{}", UpstreamFailed),
        (STREAM + b"3\r\nabc\r\n", UpstreamFailed),
        (STREAM + b"zz\r\nabc\r\n", UpstreamFailed),
        (b"SSH-2.0-OpenSSH\r\n\r\n", UpstreamFailed),
        (b"HTTP/1.1 200 OK\r\nx: " + b"y" * 1_000_000 + b"\r\n\r\n", UpstreamFailed),
    ],
    ids=[
        "nothing",
        "half a head",
        "short body",
        "cut stream",
        "bad chunk",
        "not HTTP",
        "huge head",
    ],
)
async def test_a_broken_answer_never_looks_whole(answer: bytes, failure: type[Exception]) -> None:
    async def script(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await head(reader)
        writer.write(answer)
        await writer.drain()

    async with upstream(script) as backend:
        with pytest.raises(failure):
            async with backend.start(call()) as reply:
                await reply.read_all(1000)
        assert not backend.active
        assert not backend.idle


async def test_a_stale_connection_is_replaced_without_the_caller_noticing() -> None:
    count = 0

    async def script(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal count
        count += 1
        await head(reader)
        writer.write(OK)
        if count == 1:
            await head(reader)  # the second request arrives, and the connection goes without a word

    async with upstream(script) as backend:
        for _ in range(2):
            async with backend.start(call()) as reply:
                assert await reply.read_all(100) == b"{}"
        assert count == 2


async def test_a_silent_upstream_ends_at_the_first_byte_limit() -> None:
    async def script(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read()

    async with upstream(script, Timeouts(first_byte_s=0.2)) as backend:
        with pytest.raises(UpstreamUnavailable, match="no answer within"):
            async with backend.start(call()):
                pass


async def test_a_deadline_ends_a_stream_that_stalls() -> None:
    async def script(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await head(reader)
        writer.write(STREAM + b"3\r\nabc\r\n")
        await reader.read()

    async with upstream(script) as backend:
        with pytest.raises(DeadlineExceeded):
            await read_to_the_end(backend, call(0.3))


async def test_a_stall_between_bytes_ends_before_the_deadline() -> None:
    async def script(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await head(reader)
        writer.write(STREAM + b"3\r\nabc\r\n")
        await reader.read()

    async with upstream(script, Timeouts(between_bytes_s=0.2)) as backend:
        with pytest.raises(UpstreamFailed, match="nothing came"):
            await read_to_the_end(backend, call())


async def test_nobody_listening_is_said_at_once() -> None:
    backend = Http1Backend(Endpoint(authority=b"replica", path="/nonexistent/socket"))
    with pytest.raises(UpstreamUnavailable, match="the replica is gone and being replaced") as why:
        async with backend.start(call()):
            pass
    assert why.value.retry_after == 2.0
    backend.close()
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        port = sock.getsockname()[1]
        backend = Http1Backend(Endpoint(authority=b"t", host="127.0.0.1", port=port))
        with pytest.raises(UpstreamUnavailable, match="can't connect"):
            async with backend.start(call()):
                pass
        backend.close()


async def test_a_body_over_the_limit_is_not_kept() -> None:
    async def script(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await head(reader)
        writer.write(STREAM)
        while True:
            writer.write(b"10000\r\n" + b"x" * 65_536 + b"\r\n")
            await writer.drain()

    async with upstream(script) as backend:
        with pytest.raises(UpstreamFailed, match="larger than"):
            async with backend.start(call()) as reply:
                await reply.read_all(1_000_000)


async def test_a_reader_that_is_slow_holds_the_sender_back() -> None:
    sent = 0

    async def script(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal sent
        await head(reader)
        writer.write(STREAM)
        for _ in range(2000):
            writer.write(b"10000\r\n" + b"x" * 65_536 + b"\r\n")
            await writer.drain()
            sent += 65_536
        writer.write(b"0\r\n\r\n")

    async with upstream(script) as backend, backend.start(call(60)) as reply:
        got = len(await reply.read())
        before = -1
        while sent != before:  # until the sender stands still
            before = sent
            for _ in range(50):
                await asyncio.sleep(0)
        assert sent < 60_000_000
        while data := await reply.read():
            got += len(data)
        assert got == 2000 * 65_536


async def test_interim_answers_are_passed_over() -> None:
    async def script(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await head(reader)
        writer.write(b"HTTP/1.1 103 Early Hints\r\nlink: x\r\n\r\n" + OK)

    async with upstream(script) as backend, backend.start(call()) as reply:
        assert reply.status == 200
        assert await reply.read_all(10) == b"{}"


@pytest.mark.parametrize("extra", [OK, b"HTTP/1.1 500 No\r\n\r\n", b"more", b"\r\n" + OK])
async def test_what_comes_after_an_answer_is_no_part_of_it(extra: bytes) -> None:
    connections = 0

    async def script(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal connections
        connections += 1
        await head(reader)
        writer.write(OK + extra)
        await reader.read()

    async with upstream(script) as backend:
        for _ in range(2):
            async with backend.start(call()) as reply:
                assert (reply.status, await reply.read_all(100)) == (200, b"{}")
        assert connections == 2


async def test_the_kind_of_an_answer_is_told_in_letters_of_any_case() -> None:
    async def script(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await head(reader)
        writer.write(STREAM.replace(b"text/event-stream", b"Text/Event-Stream; charset=UTF-8"))
        await reader.read()

    async with upstream(script) as backend, backend.start(call()) as reply:
        assert reply.streaming


@pytest.mark.parametrize(
    ("said", "meant"),
    [
        *(("3", 3.0), ("0.5", 0.5), ("-1", 0.0), ("nan", 0.0), ("1e999", float("inf"))),
        *(("Wed, 21 Oct 2026 07:28:00 GMT", None), ("\xb2", None)),
    ],
)
async def test_when_to_come_again_is_read_or_left(said: str, meant: float | None) -> None:
    async def script(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await head(reader)
        again = b"retry-after: %b\r\n" % said.encode("latin-1")
        writer.write(b"HTTP/1.1 429 No\r\n%bcontent-length: 0\r\n\r\n" % again)
        await reader.read()

    async with upstream(script) as backend, backend.start(call()) as reply:
        assert reply.retry_after == meant


async def test_what_comes_during_a_rest_is_read_at_once_afterwards() -> None:
    begun, written = asyncio.Event(), asyncio.Event()

    async def script(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while True:
            await head(reader)
            writer.write(STREAM + b"1\r\na\r\n")
            await begun.wait()
            for piece in (b"1\r\nb\r\n", b"1\r\nc\r\n0\r\n\r\n"):
                writer.write(piece)
                await writer.drain()
            written.set()

    async with upstream(script) as backend:
        async with backend.start(call()) as reply:
            assert await reply.read() == b"a"
            reply.rest(0.1)
            reply.rest(5.0)  # one rest at a time
            begun.set()
            await written.wait()
            assert await reply.read() == b"bc"
            assert await reply.read() == b""
        await read_to_the_end(backend, call())
        assert len(backend.idle) == 1, "a connection that rested is as good as any"


@pytest.mark.parametrize("complete", [True, False])
async def test_leaving_during_a_rest_is_leaving(complete: bool) -> None:
    gone = asyncio.Event()

    async def script(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await head(reader)
        writer.write(STREAM + b"1\r\na\r\n" + complete * b"0\r\n\r\n")
        assert await reader.read() == b""
        gone.set()

    async with upstream(script) as backend:
        async with backend.start(call()) as reply:
            assert await reply.read() == b"a"
            reply.rest(60.0)
        assert len(backend.idle) == complete
        backend.close()
        await asyncio.wait_for(gone.wait(), 5)


async def test_the_deadline_passes_during_a_rest_too() -> None:
    async def script(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await head(reader)
        writer.write(STREAM + b"1\r\na\r\n")
        await reader.read()

    async with upstream(script) as backend, backend.start(call(0.2)) as reply:
        assert await reply.read() == b"a"
        reply.rest(60.0)
        with pytest.raises(DeadlineExceeded):
            await reply.read()
