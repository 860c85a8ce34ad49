"""What the hop says of a request is the gateway's own word: nothing of it comes from a client."""

import pytest

from tests.unit.gateway.test_places import House
from tests.unit.gateway.test_walk import ScriptedBackend, Shop, whole
from tiffin.ports.exchange import Headers

HOP: Headers = [
    (b"x-tiffin-clock", b"1 2"),
    (b"x-tiffin-tenant", b"somebody-else"),
    (b"x-tiffin-request", b"req_forged"),
    (b"x-tiffin-attempt", b"99"),
    (b"x-tiffin-timeout-ms", b"1"),
    (b"x-tiffin-aim-ms", b"1"),
    (b"x-tiffin-first-ms", b"1"),
    (b"x-tiffin-weight", b"1000"),
    (b"x-tiffin-usage", b'{"prompt_tokens":1}'),
]


async def test_what_a_client_says_in_the_hops_name_goes_nowhere() -> None:
    async with House("/a") as house:
        await house.ready()
        assert (await house.ask(more=HOP)).status == 200
        [call] = house.replicas["/a"].calls
        lines = call.headers.split(b"\r\n")
        said = dict(line.split(b": ", 1) for line in lines if line)
        assert len(said) == len(lines) - 1, "each is there once"
        assert said[b"x-tiffin-tenant"] == b"acme"
        assert said[b"x-tiffin-attempt"] == b"1"
        assert said[b"x-tiffin-clock"] != b"1 2"
        assert int(said[b"x-tiffin-timeout-ms"]) > 1000
        assert b"x-tiffin-weight" not in said


async def test_an_upstream_of_others_hears_nothing_of_ours() -> None:
    backend = ScriptedBackend(whole())
    shop = Shop(backend)
    await shop.ask(headers=HOP)
    [call] = backend.calls
    assert b"x-tiffin" not in call.headers.lower()
    assert b"traceparent" in call.headers


@pytest.mark.parametrize("name", [name for name, _ in HOP], ids=lambda name: str(name, "ascii"))
async def test_garbage_in_the_hops_name_harms_nobody(name: bytes) -> None:
    async with House("/a") as house:
        await house.ready()
        assert (await house.ask(more=[(name, b"\xff garbage")])).status == 200
