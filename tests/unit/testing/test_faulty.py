"""The faulty upstream fails as it is told, in virtual time and on real sockets alike."""

import asyncio
import urllib.error
import urllib.request
from collections.abc import Awaitable, Callable, Iterable
from contextlib import AsyncExitStack

import pytest

from tests.virtual_time import in_virtual_time
from tiffin.adapters.upstreams.endpoint import Endpoint, Timeouts
from tiffin.adapters.upstreams.http1 import Http1Backend
from tiffin.errors import DeadlineExceeded, TiffinError, UpstreamFailed, UpstreamUnavailable
from tiffin.ports.backend import Call
from tiffin.testing.faulty import FaultyUpstream
from tiffin.testing.plays import Play, Seen

QUICK = Timeouts(connect_s=0.3, first_byte_s=0.3, between_bytes_s=0.3)
CHAT = b'{"model":"m","messages":[{"role":"user","content":"hi"}]}'
STREAMED = CHAT[:-1] + b',"stream":true}'

Work = Callable[[FaultyUpstream, Http1Backend], Awaitable[None]]


def below(path: bytes) -> bytes:
    return b"/v1" + path


def virtually(upstream: FaultyUpstream, work: Work) -> None:
    async def run() -> None:
        backend = upstream.backend(QUICK)
        await work(upstream, backend)
        backend.close()
        await asyncio.sleep(0)

    in_virtual_time(run)


def really(upstream: FaultyUpstream, work: Work) -> None:
    async def run() -> None:
        async with AsyncExitStack() as stack:
            url = await stack.enter_async_context(upstream.listening())
            port = int(url.rsplit(":")[-1].split("/")[0])
            end = Endpoint(authority=b"t", host="127.0.0.1", port=port, place=below)
            backend = Http1Backend(end, QUICK)
            stack.callback(backend.close)
            await work(upstream, backend)

    asyncio.run(run())


EACH_WAY = pytest.mark.parametrize("run", [virtually, really])


def call(body: bytes, within_s: float = 60.0) -> Call:
    deadline = asyncio.get_running_loop().time() + within_s
    return Call(b"/chat/completions", body, b"", deadline)


async def read(backend: Http1Backend, body: bytes, within_s: float = 60.0) -> tuple[int, bytes]:
    async with backend.start(call(body, within_s)) as reply:
        return reply.status, await reply.read_all(1_000_000)


async def collect(backend: Http1Backend, body: bytes, got: list[bytes]) -> None:
    async with backend.start(call(body)) as reply:
        while data := await reply.read():
            got.append(data)


def faults(after: Iterable[int | None]) -> list[Play]:
    return [Play(fault=f, after=n) for f in ("cut", "reset", "stall") for n in after]


@EACH_WAY
def test_a_play_without_a_fault_is_a_good_answer(
    run: Callable[[FaultyUpstream, Work], None],
) -> None:
    async def work(upstream: FaultyUpstream, backend: Http1Backend) -> None:
        status, body = await read(backend, CHAT)
        assert (status, body.count(b"word")) == (200, 3)
        status, body = await read(backend, STREAMED)
        assert (status, body.count(b"word"), body[-14:]) == (200, 3, b"data: [DONE]\n\n")
        assert (upstream.hits, upstream.connections) == (2, 1)
        assert [seen.path for seen in upstream.seen] == ["/v1/chat/completions"] * 2

    run(FaultyUpstream(), work)


@EACH_WAY
@pytest.mark.parametrize("play", faults([None]), ids=lambda play: play.fault)
@pytest.mark.parametrize("body", [CHAT, STREAMED], ids=["whole", "stream"])
def test_what_breaks_before_the_head_was_no_answer(
    run: Callable[[FaultyUpstream, Work], None], play: Play, body: bytes
) -> None:
    async def work(upstream: FaultyUpstream, backend: Http1Backend) -> None:
        with pytest.raises(UpstreamUnavailable):
            await read(backend, body)
        assert upstream.hits == 1

    run(FaultyUpstream([play]), work)


@EACH_WAY
@pytest.mark.parametrize("play", faults([2]), ids=lambda play: play.fault)
@pytest.mark.parametrize("body", [CHAT, STREAMED], ids=["whole", "stream"])
def test_what_breaks_in_the_middle_is_an_answer_that_failed(
    run: Callable[[FaultyUpstream, Work], None], play: Play, body: bytes
) -> None:
    async def work(upstream: FaultyUpstream, backend: Http1Backend) -> None:
        got: list[bytes] = []
        with pytest.raises(UpstreamFailed):
            await collect(backend, body, got)
        assert body is CHAT or b"".join(got).count(b"word") == 2

    run(FaultyUpstream([play]), work)


@EACH_WAY
@pytest.mark.parametrize("off", [1, -1], ids=["longer", "shorter"])
def test_a_length_that_is_wrong_is_found_out_at_the_latest_by_the_next_request(
    run: Callable[[FaultyUpstream, Work], None], off: int
) -> None:
    async def work(upstream: FaultyUpstream, backend: Http1Backend) -> None:
        outcomes: list[type[TiffinError] | int] = []
        for _ in range(2):
            try:
                outcomes.append((await read(backend, CHAT))[0])
            except TiffinError as error:
                outcomes.append(type(error))
        assert outcomes == ([200, 200] if off > 0 else [UpstreamFailed, 200])
        assert upstream.connections == 2

    run(FaultyUpstream([Play(length=off), Play()]), work)


@EACH_WAY
def test_it_answers_with_any_status_and_says_when_to_come_again(
    run: Callable[[FaultyUpstream, Work], None],
) -> None:
    async def work(upstream: FaultyUpstream, backend: Http1Backend) -> None:
        async with backend.start(call(CHAT)) as reply:
            assert (reply.status, reply.retry_after) == (429, 7)
        assert (await read(backend, CHAT))[0] == 503

    run(FaultyUpstream([Play(status=429, retry_after=7), Play(status=503)]), work)


@EACH_WAY
def test_a_connection_that_is_half_open_swallows_what_comes_later(
    run: Callable[[FaultyUpstream, Work], None],
) -> None:
    async def work(upstream: FaultyUpstream, backend: Http1Backend) -> None:
        assert (await read(backend, CHAT))[0] == 200
        with pytest.raises(UpstreamUnavailable):
            await read(backend, CHAT)
        assert upstream.hits == 1
        assert (await read(backend, CHAT))[0] == 200
        assert upstream.connections == 2

    run(FaultyUpstream([Play(half_open=True)]), work)


@EACH_WAY
def test_what_is_down_takes_no_request(run: Callable[[FaultyUpstream, Work], None]) -> None:
    async def work(upstream: FaultyUpstream, backend: Http1Backend) -> None:
        upstream.down = True
        with pytest.raises(UpstreamUnavailable):
            await read(backend, CHAT)
        assert upstream.hits == 0
        upstream.down = False
        assert (await read(backend, CHAT))[0] == 200

    run(FaultyUpstream(), work)


def test_what_is_slow_takes_its_time_and_a_stream_that_stalls_may_send_comments() -> None:
    slow = Play(head_s=0.2, first_s=0.25, word_s=0.1, words=5)
    stalls = Play(fault="stall", after=2, ping_s=0.25)

    async def work(upstream: FaultyUpstream, backend: Http1Backend) -> None:
        loop = asyncio.get_running_loop()
        began = loop.time()
        await read(backend, STREAMED)
        assert loop.time() - began == pytest.approx(0.85)
        with pytest.raises(DeadlineExceeded):
            await read(backend, STREAMED, within_s=600)
        assert loop.time() - began == pytest.approx(600.85, abs=0.2)

    virtually(FaultyUpstream([slow, stalls]), work)


def test_it_may_answer_by_what_is_asked() -> None:
    def by_key(seen: Seen) -> Play:
        return Play() if seen.key == "good" else Play(status=401)

    upstream = FaultyUpstream(by_key)

    async def run() -> None:
        for key, status in (("bad", 401), ("good", 200)):
            backend = upstream.backend(key=key)
            assert (await read(backend, CHAT))[0] == status
            backend.close()

    in_virtual_time(run)


def test_it_serves_what_is_not_asynchronous() -> None:
    upstream = FaultyUpstream([Play(status=503), Play()])
    with upstream.in_thread() as url:
        asked = urllib.request.Request(f"{url}/chat/completions", data=CHAT)
        with pytest.raises(urllib.error.HTTPError, match="503") as refused:
            urllib.request.urlopen(asked)
        refused.value.close()
        with urllib.request.urlopen(asked) as reply:
            assert reply.status == 200
    assert upstream.hits == 2
