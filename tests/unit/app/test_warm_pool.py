import os
from collections.abc import Sequence

import msgspec

from tiffin.app.boot import Boot, command, read_boot
from tiffin.app.warm_pool import WarmLauncher, WarmPool, wanted_size
from tiffin.config.schema import Server, Telemetry
from tiffin.errors import Unavailable
from tiffin.ports.launcher import Child, Left, Output, Pulse
from tiffin.types.snapshot import Deployment


class FakeChild:
    """Reads what it is given from the descriptor that it inherited."""

    def __init__(self, argv: Sequence[str], output: Output, fds: Sequence[int]) -> None:
        self.boot = read_boot(argv[2:])
        self.output = output
        self.pid = 7
        self.signals: list[int] = []
        self.alive = True
        self.pipe = os.dup(fds[0]) if fds else -1

    def given(self) -> Boot:
        return msgspec.json.decode(os.read(self.pipe, 1 << 20), type=Boot)

    def pulse(self) -> Pulse | None:
        return Pulse(state="S", cpu_s=0.0) if self.alive else None

    def signal(self, number: int) -> None:
        self.signals.append(number)

    def left(self) -> Left | None:
        return Left(pid=self.pid, output_fd=-1)

    async def wait(self) -> int:
        os.close(self.pipe)
        return -9

    async def stop(self, grace_s: float) -> int:
        return await self.wait()


class FakeLauncher:
    def __init__(self) -> None:
        self.children: list[FakeChild] = []
        self.broken = False

    def start(self, command: Sequence[str], output: Output, pass_fds: Sequence[int] = ()) -> Child:
        if self.broken:
            raise Unavailable("no more processes")
        self.children.append(FakeChild(command, output, pass_fds))
        return self.children[-1]

    def adopt(self, left: Left, output: Output) -> Child:
        raise NotImplementedError


def boot(role: str, **more: object) -> Boot:
    return Boot(
        role=role,
        name=role,
        data="/d",
        parent_pid=1,
        epoch="ep",
        server=Server(),
        telemetry=Telemetry(),
        **more,  # type: ignore[arg-type]
    )


def deployment(*, on_demand: bool = True, devices: tuple[str, ...] = ("cpu",)) -> Deployment:
    return Deployment(
        name="r-a",
        model="a",
        revision="sha256:0",
        socket="/s",
        spec=msgspec.Raw(b'{"runtime": "echo"}'),
        on_demand=on_demand,
        devices=devices,
    )


class Scene:
    def __init__(self) -> None:
        self.below = FakeLauncher()
        self.said: list[bytes] = []

        def waiting(fd: int, imports: tuple[str, ...]) -> Boot:
            return boot("warm", listen_fd=fd, imports=imports)

        self.pool = WarmPool(self.below, waiting, lambda line: None)
        self.launcher = WarmLauncher(self.below)
        self.launcher.pool = self.pool

    def start(self, role: str = "replica", **more: object) -> Child:
        return self.launcher.start(command(boot(role, **more)), self.said.append)


def test_one_waits_where_a_model_is_loaded_on_demand_unless_told_otherwise() -> None:
    assert wanted_size(-1, [deployment()]) == 1
    assert wanted_size(-1, [deployment(on_demand=False)]) == 0
    assert wanted_size(3, []) == 3


async def test_a_replica_gets_the_process_that_waits_and_its_lines() -> None:
    scene = Scene()
    scene.pool.keep(1, [deployment()])
    [waiting] = scene.below.children
    assert "tiffin.testing.echo" in waiting.boot.imports
    given = scene.start(deployment=deployment())
    assert given is waiting
    assert waiting.given().role == "replica"
    waiting.output(b"hello")
    assert scene.said == [b"hello"]
    assert len(scene.pool) == 0
    await waiting.wait()


async def test_others_and_those_on_other_devices_get_a_new_process() -> None:
    scene = Scene()
    scene.pool.keep(1, [deployment()])
    for more in ({"role": "gateway"}, {"deployment": deployment(devices=("cuda:0",))}):
        scene.start(**more)
    assert [child.boot.role for child in scene.below.children] == ["warm", "gateway", "replica"]
    await scene.pool.close()
    assert scene.below.children[0].signals == [9]


async def test_one_that_ended_is_replaced_later_and_none_is_taken() -> None:
    scene = Scene()
    scene.pool.keep(1, [deployment()])
    scene.below.children[0].alive = False
    started = scene.start(deployment=deployment())
    assert started is scene.below.children[1]
    scene.pool.keep(1, [deployment()])
    assert len(scene.below.children) == 2
    await scene.below.children[0].wait()


async def test_too_many_that_wait_are_ended() -> None:
    scene = Scene()
    for _ in range(3):
        scene.pool.keep(2, [deployment()])
    assert len(scene.pool) == 2
    for _ in range(3):
        scene.pool.keep(0, [])
    assert len(scene.pool) == 0
    for child in scene.below.children:
        await child.wait()


def test_where_none_can_be_started_none_waits() -> None:
    scene = Scene()
    scene.below.broken = True
    scene.pool.keep(1, [deployment()])
    assert len(scene.pool) == 0
