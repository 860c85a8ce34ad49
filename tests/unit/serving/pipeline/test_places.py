"""A pipeline's calls go to the replica with the fewest, and on to the next where one is gone."""

import asyncio
from types import TracebackType
from typing import cast

import pytest

from tiffin.errors import NoHealthyReplica, UpstreamUnavailable
from tiffin.ports.backend import Call, Reply
from tiffin.serving.pipeline.places import Places


class FakeBackend:
    """A replica: whether it can be reached, how many calls are there."""

    def __init__(self) -> None:
        self.gone = False
        self.closed = False
        self.calls = 0

    def start(self, call: Call) -> "FakeBackend":
        return self

    async def __aenter__(self) -> Reply:
        if self.gone:
            raise UpstreamUnavailable("nobody listens")
        self.calls += 1
        return cast(Reply, self)

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        return None

    def close(self) -> None:
        self.closed = True


class Scene:
    def __init__(self, *sockets: str) -> None:
        self.backends: dict[str, FakeBackend] = {}
        self.places = Places("m", self._connect)
        self.places.adopt(sockets)

    def _connect(self, socket: str) -> FakeBackend:
        self.backends[socket] = FakeBackend()
        return self.backends[socket]

    @property
    def calls(self) -> dict[str, int]:
        return {socket: backend.calls for socket, backend in self.backends.items()}


def call() -> Call:
    return Call(b"/x", b"", b"", asyncio.get_running_loop().time() + 5)


async def test_calls_go_to_the_replica_with_the_fewest() -> None:
    scene = Scene("a", "b")
    async with scene.places.start(call()), scene.places.start(call()):
        assert scene.calls == {"a": 1, "b": 1}


async def test_one_that_is_gone_is_left_out_and_no_call_fails() -> None:
    scene = Scene("a", "b")
    scene.backends["a"].gone = True
    for _ in range(3):
        async with scene.places.start(call()):
            pass
    assert scene.calls == {"a": 0, "b": 3}
    scene.backends["b"].gone = True
    with pytest.raises(UpstreamUnavailable):
        async with scene.places.start(call()):
            pass


async def test_what_runs_elsewhere_ends_as_it_would_have() -> None:
    scene = Scene("a")
    async with scene.places.start(call()):
        scene.places.adopt(["b"])
        async with scene.places.start(call()):
            assert scene.calls == {"a": 1, "b": 1}
        assert not scene.backends["a"].closed
    assert scene.backends["a"].closed
    assert not scene.backends["b"].closed


async def test_a_model_without_replicas_says_so() -> None:
    with pytest.raises(NoHealthyReplica, match="'m' doesn't run"):
        async with Scene().places.start(call()):
            pass
