"""The looks at a run folder that end in starts and ends of (fake) keepers."""

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

import msgspec

from tiffin.app.keeper import Keeper
from tiffin.app.replicas import Replicas
from tiffin.app.residency import Machine, Residency
from tiffin.control.fleet.measured import Measured
from tiffin.control.fleet.status import ProcessStatus, State
from tiffin.serving.progress import Phase, ProgressFile
from tiffin.telemetry.metrics import Meter
from tiffin.types.demand import Demand
from tiffin.types.snapshot import Deployment


class FakeKeeper:
    """Is whatever the test says; ends at once."""

    def __init__(self, name: str, model: str) -> None:
        self.status = ProcessStatus(name=name, role="replica", model=model)
        self._over = asyncio.Event()

    def put(self, state: State, **more: Any) -> None:
        self.status = msgspec.structs.replace(
            self.status, state=state, since_ns=time.time_ns(), pid=1, **more
        )

    async def keep(self) -> None:
        await self._over.wait()

    async def finish(self, within_s: float) -> None:
        self._over.set()

    async def stop(self) -> None:
        self._over.set()

    def wake(self) -> None:
        """Nothing waits here."""


@dataclass
class Scene:
    run: Path
    residency: Residency
    replicas: Replicas
    measured: Measured
    made: dict[str, FakeKeeper]
    lines: list[str] = field(default_factory=list)

    def ask(self, **demands: Demand) -> None:
        fresh = self.run / "fresh"
        fresh.write_bytes(msgspec.json.encode(demands))
        fresh.replace(self.run / "gateway.demand.json")

    def want(self, *deployments: Deployment) -> None:
        self.residency.follow(deployments, {})
        self.residency.look()

    def state(self, name: str) -> ProcessStatus:
        return next(one for one in self.residency.statuses() if one.name == name)


@asynccontextmanager
async def scene(run: Path, budget: int = 100) -> AsyncIterator[Scene]:
    made: dict[str, FakeKeeper] = {}
    lines: list[str] = []

    def make(name: str, deployment: Deployment) -> Keeper:
        made[name] = FakeKeeper(name, deployment.model)
        return cast(Keeper, made[name])

    async with asyncio.timeout(10), asyncio.TaskGroup() as group:
        replicas = Replicas(group, make)
        measured = Measured(run / "measured.json")
        machine = Machine(run, budget, measured, look=lambda pid: 30)
        residency = Residency(replicas, machine, Meter("supervisor", "ep"), lines.append)
        yield Scene(run, residency, replicas, measured, made, lines)
        await replicas.stop()


def deployment(model: str, **more: Any) -> Deployment:
    chosen = {"on_demand": True, "hold_s": 0.0, "memory_bytes": 60, **more}
    return Deployment(
        name=f"r-{model}",
        model=model,
        revision="sha256:0",
        generation=f"g-{model}",
        socket="/s",
        spec=msgspec.Raw(b"{}"),
        **chosen,
    )


def waiting() -> Demand:
    return Demand(waiting=1, since_ns=time.time_ns())


async def test_who_is_always_loaded_starts_and_who_isnt_sleeps(tmp_path: Path) -> None:
    async with scene(tmp_path) as s:
        s.want(deployment("a", on_demand=False), deployment("b", memory_bytes=40))
        assert list(s.made) == ["r-a"]
        assert s.state("r-b").state is State.ASLEEP


async def test_a_request_wakes_a_model_and_one_that_is_idle_makes_room(tmp_path: Path) -> None:
    async with scene(tmp_path) as s:
        s.want(deployment("a"), deployment("b"))
        s.ask(a=waiting())
        s.residency.look()
        assert list(s.made) == ["r-a"]
        s.made["r-a"].put(State.READY, ready_ms=700)
        s.ask(b=waiting())
        s.residency.look()
        assert s.state("r-b").state is State.QUEUED
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        s.residency.look()
        assert list(s.made) == ["r-a", "r-b"]
        asleep = s.state("r-a")
        assert (asleep.state, asleep.pid, asleep.cold_ms) == (State.ASLEEP, 0, 700)
        assert s.lines == ["model a is unloaded: makes room for b"]


async def test_work_inside_is_seen_in_shared_memory(tmp_path: Path) -> None:
    async with scene(tmp_path) as s:
        progress = ProgressFile(tmp_path / "r-a.progress")
        s.want(deployment("a"), deployment("b", hold_s=50.0))
        s.ask(a=waiting())
        s.residency.look()
        s.made["r-a"].put(State.READY)
        progress.outstanding(1)
        s.want(deployment("a", hold_s=50.0), deployment("b"))
        s.ask(b=waiting())
        s.residency.look()
        assert s.state("r-a").state is State.READY
        progress.close()


async def test_what_cant_have_room_is_refused_once_and_with_the_reason(tmp_path: Path) -> None:
    async with scene(tmp_path) as s:
        s.want(deployment("a", memory_bytes=200))
        s.residency.look()
        refused = s.state("r-a")
        assert refused.state is State.REFUSED
        assert "memory_mb" in refused.reason
        assert len(s.lines) == 1


async def test_one_that_was_seen_to_need_more_is_counted_with_more(tmp_path: Path) -> None:
    async with scene(tmp_path) as s:
        s.measured.memory("g-a", 2 << 20, worked=True)
        s.want(deployment("a"), deployment("b", memory_fixed=True))
        assert s.state("r-a").state is State.REFUSED
        assert s.state("r-b").need_bytes == 60


async def test_one_that_failed_says_so_while_it_is_away(tmp_path: Path) -> None:
    async with scene(tmp_path) as s:
        s.want(deployment("a", idle_s=0.001), deployment("b"))
        s.ask(a=waiting())
        s.residency.look()
        s.made["r-a"].put(State.FAILED, reason="no")
        s.ask(b=waiting())
        s.residency.look()
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        away = s.state("r-a")
        assert (away.state, away.reason) == (State.FAILED, "no")


async def test_one_that_ends_again_and_again_gives_its_place_to_who_waits(tmp_path: Path) -> None:
    async with scene(tmp_path) as s:
        s.want(deployment("a"), deployment("b"))
        s.ask(a=waiting())
        s.residency.look()
        s.made["r-a"].put(State.WAITING, restarts=3, reason="killed by SIGKILL")
        s.ask(a=waiting(), b=waiting())
        s.residency.look()
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        s.residency.look()
        assert list(s.made) == ["r-a", "r-b"]
        assert s.state("r-a").state is State.FAILED


async def test_how_long_the_one_who_woke_it_waited_is_kept(tmp_path: Path) -> None:
    async with scene(tmp_path) as s:
        progress = ProgressFile(tmp_path / "r-a.progress")
        s.want(deployment("a"))
        s.ask(a=Demand(waiting=1, since_ns=time.time_ns() - 5_000_000_000))
        s.residency.look()
        s.made["r-a"].put(State.READY)
        s.residency.look()
        assert s.state("r-a").first_ms == 0
        s.ask(a=Demand(used_ns=time.time_ns()))
        s.residency.look()
        assert 5_000 <= s.state("r-a").first_ms < 6_000
        progress.close()


async def test_it_is_kept_where_gateways_see_sooner_than_its_keeper_that_it_is_ready(
    tmp_path: Path,
) -> None:
    async with scene(tmp_path) as s:
        progress = ProgressFile(tmp_path / "r-a.progress")
        s.want(deployment("a"))
        s.ask(a=Demand(waiting=1, since_ns=time.time_ns() - 5_000_000_000))
        s.residency.look()
        s.made["r-a"].put(State.STARTING)
        progress.phase(Phase.READY)
        s.ask(a=Demand(used_ns=time.time_ns()))
        s.residency.look()
        s.made["r-a"].put(State.READY)
        s.residency._decided = 0.0
        s.residency.look()
        assert 5_000 <= s.state("r-a").first_ms < 6_000
        progress.close()


async def test_the_demand_of_all_gateways_counts(tmp_path: Path) -> None:
    async with scene(tmp_path) as s:
        (tmp_path / "gateway-2.demand.json").write_text("{")
        s.want(deployment("a"))
        s.ask(a=waiting())
        s.residency.look()
        assert s.residency.hurried
        assert list(s.made) == ["r-a"]
