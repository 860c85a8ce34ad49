import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import cast

import msgspec

from tiffin.app.keeper import Keeper
from tiffin.app.replicas import Replicas
from tiffin.control.fleet.status import ProcessStatus, State
from tiffin.types.snapshot import Deployment


class FakeKeeper:
    """Keeps a socket's name in `open` while it runs; ends only when `let_go` is set."""

    def __init__(self, deployment: Deployment, running: list[str]) -> None:
        self.status = ProcessStatus(name=deployment.name, role="replica")
        self.deployment = deployment
        self.running = running
        self.woken = 0
        self.let_go = asyncio.Event()
        self.let_go.set()
        self._stopping = asyncio.Event()
        self._done = asyncio.Event()

    async def keep(self) -> None:
        if not self._stopping.is_set():
            self.running.append(self.deployment.revision)
            await self._stopping.wait()
            await self.let_go.wait()
            self.running.remove(self.deployment.revision)
        self._done.set()

    async def stop(self) -> None:
        self._stopping.set()
        await self._done.wait()

    async def ended(self) -> None:
        await self._done.wait()

    def wake(self) -> None:
        self.woken += 1


class Scene:
    def __init__(self, group: asyncio.TaskGroup) -> None:
        self.made: list[FakeKeeper] = []
        self.running: list[str] = []
        self.replicas = Replicas(group, self.make)

    def make(self, name: str, deployment: Deployment) -> Keeper:
        self.made.append(FakeKeeper(deployment, self.running))
        return cast(Keeper, self.made[-1])


@asynccontextmanager
async def scene() -> AsyncIterator[Scene]:
    async with asyncio.timeout(10), asyncio.TaskGroup() as group:
        scene = Scene(group)
        yield scene
        for keeper in scene.made:
            keeper.let_go.set()
        await scene.replicas.stop()


async def settle() -> None:
    for _ in range(10):
        await asyncio.sleep(0)


def deployment(revision: str, generation: str = "1") -> Deployment:
    return Deployment(
        name=f"r-chat-{revision}",
        model="chat",
        revision=revision,
        generation=generation,
        socket=str(Path("/s")),
        spec=msgspec.Raw(b"{}"),
    )


async def test_what_is_desired_runs_and_what_vanished_ends() -> None:
    async with scene() as s:
        s.replicas.follow([deployment("a"), deployment("b")])
        await settle()
        assert s.running == ["a", "b"]
        s.replicas.follow([deployment("b"), deployment("c")])
        await settle()
        assert s.running == ["b", "c"]
        assert len(s.replicas.keepers) == 2


async def test_a_changed_one_starts_when_the_old_one_has_ended() -> None:
    async with scene() as s:
        s.replicas.follow([deployment("a")])
        await settle()
        s.made[0].let_go.clear()
        for generation in ("2", "3"):
            s.replicas.follow([deployment("a", generation)])
            await settle()
        assert s.running == ["a"]
        s.made[0].let_go.set()
        await settle()
        assert s.running == ["a"]
        assert [id(keeper) for keeper in s.replicas.keepers] == [id(s.made[-1])]


async def test_what_its_process_does_not_know_restarts_none() -> None:
    async with scene() as s:
        s.replicas.follow([deployment("a")])
        s.replicas.follow([msgspec.structs.replace(deployment("a"), idle_s=9.0, on_demand=True)])
        await settle()
        assert (s.running, len(s.made)) == (["a"], 1)


async def test_a_failed_one_gets_another_try_when_something_changes() -> None:
    async with scene() as s:
        s.replicas.follow([deployment("a"), deployment("b")])
        await settle()
        s.made[0].status = msgspec.structs.replace(s.made[0].status, state=State.FAILED)
        s.replicas.follow([deployment("a"), deployment("b")])
        assert [keeper.woken for keeper in s.made] == [1, 0]


async def test_stop_waits_for_those_that_were_leaving_already() -> None:
    async with scene() as s:
        s.replicas.follow([deployment("a")])
        await settle()
        s.made[0].let_go.clear()
        s.replicas.follow([])
        stopping = asyncio.create_task(s.replicas.stop())
        await settle()
        assert not stopping.done()
        s.made[0].let_go.set()
        await stopping
        assert s.running == []
