"""Who was given which device, and until when."""

import asyncio
from pathlib import Path

import msgspec
import pytest

from tiffin.app.accelerators import Accelerators
from tiffin.control.fleet.status import ProcessStatus, State
from tiffin.control.machine import FILE
from tiffin.types.machine import Device, Machine
from tiffin.types.snapshot import Deployment

GIB = 1 << 30


@pytest.fixture
def accelerators(tmp_path: Path) -> Accelerators:
    device = Device(
        id="GPU-0", kind="nvidia", name="x", memory_total_bytes=10 * GIB, memory_free_bytes=10 * GIB
    )
    (tmp_path / FILE).write_bytes(msgspec.json.encode(Machine(seen_ns=1, devices=(device,))))
    return Accelerators(tmp_path)


def deployment(*devices: str, gib: int = 6) -> Deployment:
    return Deployment(
        model="m",
        revision="r",
        socket="s",
        spec=msgspec.Raw(b"{}"),
        devices=devices,
        device_bytes=gib * GIB,
    )


def process(name: str, state: State = State.STARTING, pid: int = 7) -> ProcessStatus:
    return ProcessStatus(name=name, role="replica", state=state, pid=pid)


def test_the_second_finds_no_room_until_the_first_has_gone(accelerators: Accelerators) -> None:
    assert accelerators.placed("a", deployment("auto")).devices == ("GPU-0",)
    accelerators.follow([process("a")])
    assert "GPU-0 has 4.0" in accelerators.placed("b", deployment("auto")).hindrance
    accelerators.follow([])
    assert not accelerators.placed("b", deployment("auto")).hindrance


def test_a_replica_that_starts_again_does_not_stand_in_its_own_way(
    accelerators: Accelerators,
) -> None:
    for _ in range(3):
        assert accelerators.placed("a", deployment("auto")).devices == ("GPU-0",)


def test_whose_process_has_ended_keeps_nothing(accelerators: Accelerators) -> None:
    accelerators.placed("a", deployment("auto"))
    accelerators.follow([process("a", State.WAITING, pid=0)])
    assert accelerators.placed("b", deployment("auto")).devices == ("GPU-0",)


def test_what_computes_on_the_processor_is_left_as_it_is(accelerators: Accelerators) -> None:
    assert accelerators.placed("a", deployment("cpu")) == deployment("cpu")


def test_before_anybody_looked_nobody_gets_a_device(tmp_path: Path) -> None:
    accelerators = Accelerators(tmp_path)
    assert "isn't known yet" in accelerators.placed("a", deployment("auto")).hindrance
    (tmp_path / FILE).write_bytes(msgspec.json.encode(Machine(seen_ns=1, unseen=("nvidia",))))
    assert accelerators.placed("a", deployment("auto")).devices == ()
    assert not accelerators.placed("a", deployment("auto")).hindrance


async def test_who_wants_a_device_waits_for_the_first_look(tmp_path: Path) -> None:
    accelerators = Accelerators(tmp_path)
    await accelerators.known([deployment("cpu"), deployment()])
    waiting = asyncio.ensure_future(accelerators.known([deployment("auto")]))
    await asyncio.sleep(0)
    assert not waiting.done()
    (tmp_path / FILE).write_bytes(msgspec.json.encode(Machine(seen_ns=1)))
    await waiting
