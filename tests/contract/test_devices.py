"""What all kinds of devices promise: the processor, and NVIDIA's by recorded answers of NVML."""

from collections.abc import Callable
from pathlib import Path

import pytest

from tiffin.adapters.devices.cpu import CpuDevices
from tiffin.adapters.devices.nvidia import NvidiaDevices
from tiffin.ports.devices import Devices
from tiffin.testing.nvml import RecordedNvml
from tiffin.types.machine import NEAREST_FIRST

RECORDED = Path(__file__).parents[1] / "recorded" / "nvml"


def _not_installed() -> None:
    raise ImportError("pynvml")


def recorded(name: str) -> Callable[[], Devices]:
    nvml = RecordedNvml.read(RECORDED / f"{name}.json")
    return lambda: NvidiaDevices(lambda: nvml)


MADE: dict[str, Callable[[], Devices]] = {
    "cpu": CpuDevices,
    "nvidia not installed": lambda: NvidiaDevices(_not_installed),
    **{path.stem: recorded(path.stem) for path in sorted(RECORDED.glob("*.json"))},
}


@pytest.fixture(params=list(MADE))
def devices(request: pytest.FixtureRequest) -> Devices:
    return MADE[request.param]()


def test_there_are_devices_or_a_reason(devices: Devices) -> None:
    found = devices.look()
    assert bool(found.devices) != bool(found.reason)


def test_every_device_is_told_apart_and_of_the_kind(devices: Devices) -> None:
    found = devices.look().devices
    assert len({device.id for device in found}) == len(found)
    assert {device.kind for device in found} <= {devices.kind}
    assert all(device.name for device in found)


def test_what_is_told_is_within_its_bounds(devices: Devices) -> None:
    for device in devices.look().devices:
        assert 0 <= device.memory_free_bytes <= device.memory_total_bytes
        assert device.utilization is None or 0 <= device.utilization <= 1
        for known in (device.power_w, device.power_limit_w, device.energy_j):
            assert known is None or known >= 0


def test_links_and_parents_lead_to_devices_both_ways(devices: Devices) -> None:
    found = {device.id: device for device in devices.look().devices}
    for device in found.values():
        assert not device.parent or not found[device.parent].parent
        for link in device.links:
            assert link.kind in NEAREST_FIRST
            back = {other.peer: other.kind for other in found[link.peer].links}
            assert back[device.id] == link.kind


def test_looking_again_finds_the_same_devices(devices: Devices) -> None:
    before = [(device.id, device.links) for device in devices.look().devices]
    assert [(device.id, device.links) for device in devices.look().devices] == before


def test_closing_twice_hurts_nobody_and_a_later_look_opens_it_again(devices: Devices) -> None:
    before = [device.id for device in devices.look().devices]
    devices.close()
    devices.close()
    assert [device.id for device in devices.look().devices] == before
