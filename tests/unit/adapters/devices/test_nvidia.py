"""NVIDIA's devices by recorded answers: none of this has seen a real one."""

from importlib.util import find_spec
from pathlib import Path

import pytest

from tiffin.adapters.devices.nvidia import NvidiaDevices
from tiffin.testing.nvml import RecordedNvml
from tiffin.types.machine import Device, Link

RECORDED = Path(__file__).parents[3] / "recorded" / "nvml"
GIB = 1 << 30


def looked(nvml: RecordedNvml) -> list[Device]:
    return list(NvidiaDevices(lambda: nvml).look().devices)


def recording(name: str) -> RecordedNvml:
    return RecordedNvml.read(RECORDED / f"{name}.json")


def test_a_device_is_told_whole() -> None:
    second = looked(recording("four-in-pairs"))[1]
    assert second.name == "NVIDIA H100 80GB HBM3"
    assert second.index == 1
    assert second.memory_total_bytes - second.memory_free_bytes == GIB
    assert second.utilization == pytest.approx(0.37)
    assert second.temperature_c == 37
    assert second.power_w == pytest.approx(171.234)
    assert second.power_limit_w == pytest.approx(700)
    assert second.energy_j == pytest.approx(1234567.891)
    assert second.bus == "00000000:3b:00.0"


def test_nvlinks_are_counted_to_where_they_lead() -> None:
    first, second, third, _ = looked(recording("four-in-pairs"))
    assert first.links[0] == Link(peer=second.id, kind="nvlink", lanes=12)
    assert first.links[1] == Link(peer=third.id, kind="machine")


def test_through_a_switch_of_nvlinks_every_device_is_reached() -> None:
    first, second = looked(recording("two-by-switch"))
    assert first.links == (Link(peer=second.id, kind="nvlink", lanes=18),)


def test_instances_of_a_divided_device_are_devices_of_their_own() -> None:
    whole, three, one, other = looked(recording("one-divided"))
    assert [part.parent for part in (three, one, other)] == [whole.id, whole.id, ""]
    assert three.id.startswith("MIG-")
    assert three.memory_total_bytes < whole.memory_total_bytes
    assert whole.utilization is None
    assert whole.links == (Link(peer=other.id, kind="switch"),)


def test_what_a_device_does_not_tell_is_unknown() -> None:
    [device] = looked(recording("one-reticent"))
    assert device.memory_total_bytes == 15 * GIB
    assert [device.power_w, device.energy_j, device.temperature_c] == [None, None, None]


@pytest.mark.parametrize(
    ("name", "reason"), [("no-library", "libnvidia-ml.so"), ("no-driver", "isn't loaded")]
)
def test_without_a_driver_there_are_none_and_the_reason(name: str, reason: str) -> None:
    found = NvidiaDevices(lambda: recording(name)).look()
    assert reason in found.reason
    assert not found.unseen


def test_a_lost_device_is_missing_and_the_others_stay() -> None:
    nvml = recording("four-in-pairs")
    nvml.answers["nvmlDeviceGetHandleByIndex(2)"] = {"error": 15}
    assert [device.index for device in looked(nvml)] == [0, 1, 3]


def test_a_driver_that_fails_is_opened_again() -> None:
    nvml = recording("four-in-pairs")
    devices = NvidiaDevices(lambda: nvml)
    nvml.answers["nvmlDeviceGetCount()"] = {"error": 999}
    assert devices.look().unseen
    nvml.answers["nvmlDeviceGetCount()"] = 1
    assert len(devices.look().devices) == 1
    assert nvml.calls["nvmlInit"] == 2


def test_how_devices_are_wired_is_asked_once() -> None:
    nvml = recording("four-in-pairs")
    devices = NvidiaDevices(lambda: nvml)
    devices.look()
    asked = nvml.calls["nvmlDeviceGetNvLinkState"]
    devices.look()
    assert nvml.calls["nvmlDeviceGetNvLinkState"] == asked


@pytest.mark.skipif(find_spec("pynvml") is None, reason="needs nvidia-ml-py")
def test_recorded_calls_have_the_bindings_names() -> None:
    import pynvml  # type: ignore[import-not-found,import-untyped,unused-ignore]

    called = {
        call.partition("(")[0]
        for path in RECORDED.glob("*.json")
        for call in RecordedNvml.read(path).answers
    }
    assert [name for name in called if not callable(getattr(pynvml, name, None))] == []


@pytest.mark.skipif(find_spec("pynvml") is None, reason="needs nvidia-ml-py")
def test_the_real_bindings_without_a_driver_find_nothing() -> None:
    found = NvidiaDevices().look()
    assert found.devices or found.reason
