"""Webhooks over real sockets: what they answer, whatever that is."""

import asyncio
import time
from collections.abc import Iterator

import pytest

from tests.system.receiver import Receiver
from tiffin.adapters.upstreams.webhook import HttpWebhooks
from tiffin.control.alerts.signature import signed
from tiffin.errors import TiffinError

BODY = b'{"id":"alr_1","type":"x"}'


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    with Receiver() as receiver:
        yield receiver


async def post(receiver: Receiver, within_s: float = 5.0) -> int:
    headers = signed("a key that signs", "alr_1", 7, BODY)
    return await HttpWebhooks().post(receiver.url, headers, BODY, within_s=within_s)


@pytest.mark.parametrize("status", [204, 307, 401, 500])
async def test_the_status_is_told_and_a_redirect_not_followed(
    receiver: Receiver, status: int
) -> None:
    receiver.answers = [status]
    assert await post(receiver) == status
    assert receiver.paths == ["/hook"]


async def test_who_hangs_up_says_nothing(receiver: Receiver) -> None:
    receiver.answers = [0]
    with pytest.raises(TiffinError):
        await post(receiver)


@pytest.mark.parametrize("host", ["a..b", "a" * 64 + ".com"])
async def test_a_name_that_nobody_can_have_is_said(host: str) -> None:
    with pytest.raises(TiffinError, match="no host's name"):
        await HttpWebhooks().post(f"http://{host}/", (), BODY, within_s=5.0)


async def test_who_hangs_is_left_in_time(receiver: Receiver) -> None:
    receiver.answers = [-1]
    start = time.monotonic()
    with pytest.raises(TiffinError):
        await post(receiver, 0.3)
    assert time.monotonic() - start < 3.0


async def test_an_answer_without_end_isnt_read() -> None:
    async def endless(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(BODY)
        writer.write(b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n")
        while not writer.is_closing():
            writer.write(b"5\r\nhello\r\n")
            await asyncio.sleep(0)

    async with await asyncio.start_server(endless, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        url = f"http://127.0.0.1:{port}/"
        assert await HttpWebhooks().post(url, (), BODY, within_s=5.0) == 200


async def test_nobody_there_is_told() -> None:
    with pytest.raises(TiffinError, match="can't connect"):
        await HttpWebhooks().post("http://127.0.0.1:9/", (), BODY, within_s=5.0)
