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
        self.granted_s = -1.0
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

    async def finish(self, within_s: float) -> None:
        self.granted_s = within_s
        await self.stop()

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
        self.replicas = Replicas(group, self.make, finish_s=7.0)

    async def run(self, *deployments: Deployment) -> None:
        """Want these, and start whatever isn't there."""
        self.replicas.follow(deployments)
        await settle()
        here = {keeper.status.name for keeper in self.replicas.keepers}
        for one in deployments:
            if one.name not in here:
                self.replicas.start(one.name)
        await settle()

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


async def test_what_vanished_ends_with_time_to_finish_what_it_has_begun() -> None:
    async with scene() as s:
        await s.run(deployment("a"), deployment("b"))
        assert s.running == ["a", "b"]
        await s.run(deployment("b"), deployment("c"))
        assert s.running == ["b", "c"]
        assert len(s.replicas.keepers) == 2
        assert s.made[0].granted_s == 7.0


async def test_what_is_wanted_starts_only_when_told_to() -> None:
    async with scene() as s:
        s.replicas.follow([deployment("a")])
        await settle()
        assert s.made == []
        assert [one.revision for one in s.replicas.wanted.values()] == ["a"]


async def test_what_changed_under_its_name_ends_and_drains_until_it_has() -> None:
    async with scene() as s:
        await s.run(deployment("a"))
        s.made[0].let_go.clear()
        await s.run(deployment("a", "2"))
        assert s.running == ["a"]
        assert [one.generation for one in s.replicas.leaving] == ["1"]
        s.made[0].let_go.set()
        await settle()
        await s.run(deployment("a", "2"))
        assert [one.generation for one, _ in s.replicas.running] == ["2"]


async def test_what_its_process_does_not_know_restarts_none() -> None:
    async with scene() as s:
        await s.run(deployment("a"))
        s.replicas.follow([msgspec.structs.replace(deployment("a"), idle_s=9.0, on_demand=True)])
        await settle()
        assert (s.running, len(s.made)) == (["a"], 1)
        [(known, _)] = s.replicas.running
        assert known.idle_s == 9.0


async def test_a_failed_one_gets_another_try_when_something_changes() -> None:
    async with scene() as s:
        await s.run(deployment("a"), deployment("b"))
        s.made[0].status = msgspec.structs.replace(s.made[0].status, state=State.FAILED)
        s.replicas.follow([deployment("a"), deployment("b")])
        assert [keeper.woken for keeper in s.made] == [1, 0]


async def test_stop_waits_for_those_that_were_leaving_already() -> None:
    async with scene() as s:
        await s.run(deployment("a"))
        s.made[0].let_go.clear()
        s.replicas.follow([])
        await settle()
        stopping = asyncio.create_task(s.replicas.stop())
        await settle()
        assert not stopping.done()
        s.made[0].let_go.set()
        await stopping
        assert s.running == []
