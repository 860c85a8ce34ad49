import asyncio
from collections.abc import Callable
from typing import cast

import msgspec

from tiffin.app.gateways import Gateways
from tiffin.app.keeper import Keeper, Kept
from tiffin.control.fleet.status import ProcessStatus, State


class FakeKeeper:
    """Runs until it is stopped or killed; ends after `finish` when `idle` is set."""

    def __init__(self, name: str) -> None:
        self.status = ProcessStatus(name=name, role="gateway")
        self.adopted = False
        self.killed = False
        self.finishing = False
        self.idle = asyncio.Event()
        self._over = asyncio.Event()

    def become(self, state: State, reason: str = "") -> None:
        self.status = msgspec.structs.replace(self.status, state=state, reason=reason)

    def adopt(self, kept: Kept) -> None:
        self.status = kept.status
        self.adopted = True

    async def keep(self) -> None:
        await self._over.wait()

    async def finish(self, within_s: float) -> None:
        self.finishing = True
        await self.idle.wait()
        await self.stop()

    async def stop(self) -> None:
        self.idle.set()
        self._over.set()

    async def ended(self) -> None:
        await self._over.wait()

    def kill(self) -> None:
        self.killed = True
        self._over.set()


class Scene:
    def __init__(self, group: asyncio.TaskGroup, number: int = 1) -> None:
        self.made: dict[str, FakeKeeper] = {}
        self.ordinals: dict[str, int] = {}
        self.gateways = Gateways(group, self.make, 7.0, number)

    def make(self, name: str, ordinal: int) -> Keeper:
        self.made[name] = FakeKeeper(name)
        self.ordinals[name] = ordinal
        return cast(Keeper, self.made[name])

    @property
    def names(self) -> list[str]:
        return [keeper.status.name for keeper in self.gateways.keepers]


async def until(true: Callable[[], object]) -> None:
    async with asyncio.timeout(10):
        while not true():  # noqa: ASYNC110 - time itself is waited for
            await asyncio.sleep(0.001)


async def test_the_old_one_leaves_when_the_new_one_is_ready() -> None:
    async with asyncio.TaskGroup() as group:
        scene = Scene(group)
        scene.gateways.start()
        replacing = asyncio.create_task(scene.gateways.replace(10.0))
        await until(lambda: "gateway-2" in scene.made)
        assert not scene.made["gateway"].finishing
        assert [one.status.name for one in scene.gateways.lasting] == ["gateway"]
        scene.made["gateway-2"].become(State.READY)
        assert await replacing == ""
        await until(lambda: scene.made["gateway"].finishing)
        assert scene.names == ["gateway-2", "gateway"]
        scene.made["gateway"].idle.set()
        await until(lambda: scene.names == ["gateway-2"])
        await scene.gateways.stop()


async def test_one_that_doesnt_get_ready_changes_nothing() -> None:
    async with asyncio.TaskGroup() as group:
        scene = Scene(group)
        scene.gateways.start()
        assert "gateway-2 wasn't ready within 0.05 s" in await scene.gateways.replace(0.05)
        replacing = asyncio.create_task(scene.gateways.replace(10.0))
        await until(lambda: "gateway-3" in scene.made)
        scene.made["gateway-3"].become(State.FAILED, "it can't")
        assert await replacing == "gateway-3: it can't"
        assert scene.made["gateway-2"].killed
        assert scene.made["gateway-3"].killed
        assert scene.names == ["gateway"]
        assert not scene.made["gateway"].finishing
        await scene.gateways.stop()


async def test_those_that_were_left_go_on() -> None:
    async with asyncio.TaskGroup() as group:
        scene = Scene(group)
        left = [Kept(status=ProcessStatus(name=f"gateway-{n}", role="gateway")) for n in (5, 3)]
        scene.gateways.adopt(left, 5)
        assert scene.names == ["gateway-5", "gateway-3"]
        await until(lambda: scene.made["gateway-3"].finishing)
        assert not scene.made["gateway-5"].finishing
        replacing = asyncio.create_task(scene.gateways.replace(0.01))
        await replacing
        assert "gateway-6" in scene.made
        await scene.gateways.stop()


async def test_several_are_replaced_together_and_each_takes_a_place() -> None:
    async with asyncio.TaskGroup() as group:
        scene = Scene(group, 2)
        scene.gateways.start()
        assert scene.names == ["gateway", "gateway-2"]
        replacing = asyncio.create_task(scene.gateways.replace(10.0))
        await until(lambda: "gateway-4" in scene.made)
        scene.made["gateway-3"].become(State.READY)
        scene.made["gateway-4"].become(State.FAILED, "it can't")
        assert await replacing == "gateway-4: it can't"
        assert scene.made["gateway-3"].killed
        assert scene.names == ["gateway", "gateway-2"]
        replacing = asyncio.create_task(scene.gateways.replace(10.0))
        await until(lambda: "gateway-6" in scene.made)
        for name in ("gateway-5", "gateway-6"):
            scene.made[name].become(State.READY)
        assert await replacing == ""
        assert scene.gateways.serving == 2
        assert [scene.ordinals[name] for name in scene.names] == [0, 1, 0, 1]
        await scene.gateways.stop()


async def test_another_number_takes_over_with_the_next_program() -> None:
    async with asyncio.TaskGroup() as group:
        scene = Scene(group, 1)
        left = [Kept(status=ProcessStatus(name=f"gateway-{n}", role="gateway")) for n in (5, 6, 3)]
        scene.gateways.adopt(left, 6, 2)
        await until(lambda: scene.made["gateway-3"].finishing)
        assert not scene.made["gateway-6"].finishing
        assert [scene.ordinals[name] for name in scene.names] == [0, 1, 0]
        replacing = asyncio.create_task(scene.gateways.replace(10.0))
        await until(lambda: "gateway-7" in scene.made)
        scene.made["gateway-7"].become(State.READY)
        assert await replacing == ""
        await until(lambda: scene.made["gateway-6"].finishing)
        assert scene.gateways.serving == 1
        await scene.gateways.stop()
