"""Where a pipeline's models answer, by the published snapshot; one that sleeps is woken."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any, cast

import msgspec
import pytest

from tests.polling import eventually
from tiffin.app.peers import Peers, Published
from tiffin.errors import (
    DeadlineExceeded,
    Draining,
    Loading,
    NoHealthyReplica,
    UpstreamUnavailable,
)
from tiffin.gateway.pool import READY_PATH
from tiffin.ports.backend import Call, Reply
from tiffin.telemetry.metrics import Meter
from tiffin.types.demand import Demand, Demands
from tiffin.types.snapshot import Deployment, Plan, Snapshot, Target


def deployment(name: str, revision: str, **more: Any) -> Deployment:
    spec = msgspec.Raw(b"{}")
    return Deployment(name=name, model="m", revision=revision, socket=f"/{name}", spec=spec, **more)


def snapshot(serving: Target, *deployments: Deployment, **more: int) -> Snapshot:
    return Snapshot(
        number=1,
        config_hash="",
        published_ns=0,
        keys={},
        tenant_limits={},
        plans={"m": Plan(name="m", identity="", targets=(serving,))},
        deployments=deployments,
        leaving=more,
    )


def target(revision: str, *sockets: str, **more: Any) -> Target:
    return Target(model="m", revision=revision, kind="onnx", sockets=sockets, **more)


ALL = (deployment("old", "1"), deployment("fresh", "1"), deployment("next", "2"))


def sockets(revision: str, serving: Target, **more: int) -> tuple[str, ...]:
    read = msgspec.json.decode(msgspec.json.encode(snapshot(serving, *ALL, **more)), type=Published)
    return read.target_of("m", revision).sockets


def test_requests_go_where_the_revision_serves() -> None:
    assert sockets("1", target("1", "/fresh")) == ("/fresh",)


def test_a_revision_that_does_not_serve_yet_or_any_more_answers_its_pipelines() -> None:
    assert sockets("2", target("1", "/fresh"), old=5) == ("/next",)
    assert sockets("1", target("2", "/next"), old=5) == ("/fresh",)
    assert sockets("1", target("2", "/next"), old=5, fresh=5) == ("/old", "/fresh")
    assert sockets("3", target("2", "/next"), old=5, fresh=5) == ()


class FakeReplica:
    """A model's replica: whether it is ready, gone, about to end; how many calls it had."""

    status = 200

    def __init__(self) -> None:
        self.ready, self.gone, self.drains, self.closed = True, False, False, False
        self.calls = 0

    @asynccontextmanager
    async def start(self, call: Call) -> AsyncIterator[Reply]:
        if self.gone:
            raise UpstreamUnavailable("nobody listens")
        asked = FakeReplica()
        asked.status = 200 if self.ready and not self.drains else 503
        self.calls += call.path != READY_PATH
        yield cast(Reply, asked)

    async def read_all(self, limit: int) -> bytes:
        return b""

    def close(self) -> None:
        self.closed = True


class Scene:
    """Peers of a pipeline that calls `m`, revision 1, over fake replicas by their sockets."""

    def __init__(self, folder: Path) -> None:
        self.replicas: dict[str, FakeReplica] = {}
        self._snapshot = folder / "snapshot.json"
        self.demand_file = folder / "p.demand.json"
        pipeline = deployment("p", "9", peers={"m": "1"})
        self._pipeline = msgspec.structs.replace(pipeline, socket=str(folder / "p.sock"))

    def publish(self, serving: Target) -> None:
        fresh = self._snapshot.with_suffix(".fresh")
        fresh.write_bytes(msgspec.json.encode(snapshot(serving)))
        fresh.replace(self._snapshot)

    @contextmanager
    def peers(self) -> Iterator[Peers]:
        peers = Peers(self._pipeline, self._snapshot, Meter("replica", "e"), self.replica)
        watching = asyncio.ensure_future(peers.watch_for_ever())
        try:
            yield peers
        finally:
            watching.cancel()
            peers.close()

    def replica(self, socket: str) -> FakeReplica:
        return self.replicas.setdefault(socket, FakeReplica())

    def waiting(self) -> int:
        """How many calls are said to wait for the model."""
        if not self.demand_file.exists():
            return 0
        told = msgspec.json.decode(self.demand_file.read_bytes(), type=Demands)
        return told.get("m", Demand()).waiting


@pytest.fixture
def scene(tmp_path: Path) -> Scene:
    return Scene(tmp_path)


async def ask(peers: Peers, within_s: float = 10.0) -> None:
    """One call, which fails as `serving.pipeline.peer` reads it."""
    call = Call(b"/infer", b"", b"", asyncio.get_running_loop().time() + within_s)
    async with peers.backends["m"].start(call) as reply:
        if reply.status != 200:
            raise Draining("bye")


async def until_asked(peers: Peers) -> None:
    """The first call that is answered."""
    while True:
        try:
            return await ask(peers)
        except Loading:
            await asyncio.sleep(0.01)


async def test_a_new_snapshot_is_followed_and_what_is_gone_is_closed(scene: Scene) -> None:
    scene.publish(target("1", "/old"))
    with scene.peers() as peers:
        await until_asked(peers)
        scene.publish(target("1", "/fresh"))
        peers.follow()
        await until_asked(peers)
        assert scene.replicas["/fresh"].calls == 1
        await eventually(lambda: scene.replicas["/old"].closed)


async def test_one_that_drains_gets_nothing_more_where_another_is_ready(scene: Scene) -> None:
    scene.publish(target("1", "/a", "/b"))
    with scene.peers() as peers:
        await until_asked(peers)
        await eventually(lambda: all(r.ready for r in scene.replicas.values()))
        scene.replicas["/a"].drains = True
        failed = 0
        for _ in range(6):
            try:
                await ask(peers)
            except Draining:
                failed += 1
        assert failed <= 1
        assert scene.replicas["/b"].calls >= 5


async def test_one_that_sleeps_is_woken_and_whoever_calls_it_is_held(scene: Scene) -> None:
    scene.replica("/a").ready = False
    scene.publish(target("1", "/a", on_demand=True, cold_start_s=10.0))
    with scene.peers() as peers:
        asking = [asyncio.ensure_future(ask(peers)) for _ in range(3)]
        await eventually(lambda: scene.waiting() == 3)
        assert not any(one.done() for one in asking)
        scene.replica("/a").ready = True
        await asyncio.gather(*asking)
        assert scene.replica("/a").calls == 3
        await eventually(lambda: not scene.waiting())


async def test_one_that_was_unloaded_a_moment_ago_is_woken_by_the_next_try(scene: Scene) -> None:
    scene.publish(target("1", "/a", on_demand=True, cold_start_s=10.0))
    with scene.peers() as peers:
        await ask(peers)
        scene.replica("/a").gone = True
        with pytest.raises(UpstreamUnavailable):
            await ask(peers)
        again = asyncio.ensure_future(ask(peers))
        await eventually(scene.waiting)
        scene.replica("/a").gone = False
        await again


async def test_waking_ends_with_the_deadline_and_leaves_nobody_waiting(scene: Scene) -> None:
    scene.replica("/a").ready = False
    scene.publish(target("1", "/a", on_demand=True, cold_start_s=10.0))
    with scene.peers() as peers:
        with pytest.raises(DeadlineExceeded, match="while the model 'm' was being loaded"):
            await ask(peers, within_s=0.1)
        await eventually(lambda: not scene.waiting())


async def test_a_model_whose_revision_has_gone_says_so(scene: Scene) -> None:
    scene.publish(target("2", "/a"))
    with scene.peers() as peers, pytest.raises(NoHealthyReplica, match="isn't served any more"):
        await ask(peers)
