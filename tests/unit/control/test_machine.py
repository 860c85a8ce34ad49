"""The watch over the machine's devices: what is written, and what is counted."""

from pathlib import Path

import msgspec
import pytest

from tiffin.adapters.devices.nvidia import NvidiaDevices
from tiffin.cli.machine import lines
from tiffin.control.machine import MachineWatch
from tiffin.telemetry.exposition import render
from tiffin.telemetry.metrics import Meter
from tiffin.testing.clock import FakeClock
from tiffin.testing.nvml import RecordedNvml
from tiffin.types.machine import Device, Machine

RECORDED = Path(__file__).parents[2] / "recorded" / "nvml"


class Watched:
    """A machine of recorded answers."""

    def __init__(self, folder: Path, name: str) -> None:
        self.nvml = RecordedNvml.read(RECORDED / f"{name}.json")
        self.meter = Meter("control", "ep")
        self.path = folder / "machine.json"
        kinds = [NvidiaDevices(lambda: self.nvml)]
        self.watch = MachineWatch(kinds, self.path, self.meter, FakeClock())

    def shown(self, name: str) -> dict[str, float]:
        text = render(self.meter.snapshot().families)
        found = [line.split() for line in text.splitlines() if line.startswith(name + "{")]
        return {labels.partition('"')[2][:5]: float(value) for labels, value in found}


async def test_gpus_are_counted_under_tritons_names(tmp_path: Path) -> None:
    watched = Watched(tmp_path, "four-in-pairs")
    await watched.watch.look()
    assert watched.shown("nv_gpu_utilization") == {
        "GPU-0": 0.0,
        "GPU-1": 0.37,
        "GPU-2": 1.0,
        "GPU-3": 0.05,
    }
    assert watched.shown("nv_gpu_memory_used_bytes")["GPU-1"] == 1 << 30
    assert watched.shown("nv_gpu_power_usage")["GPU-0"] == pytest.approx(71.234)


async def test_energy_counts_from_the_first_look(tmp_path: Path) -> None:
    watched = Watched(tmp_path, "four-in-pairs")
    await watched.watch.look()
    call = "nvmlDeviceGetTotalEnergyConsumption(gpu0)"
    watched.nvml.answers[call] += 5_000
    await watched.watch.look()
    watched.nvml.answers[call] = 1_000  # the driver began anew
    await watched.watch.look()
    assert watched.shown("nv_energy_consumption")["GPU-0"] == 5.0


async def test_parts_have_no_numbers_of_their_own(tmp_path: Path) -> None:
    watched = Watched(tmp_path, "one-divided")
    await watched.watch.look()
    assert len(watched.shown("nv_gpu_memory_total_bytes")) == 2


async def test_what_was_seen_is_written_down(tmp_path: Path) -> None:
    watched = Watched(tmp_path, "no-library")
    await watched.watch.look()
    machine = msgspec.json.decode(watched.path.read_bytes(), type=Machine)
    assert machine == watched.watch.machine
    assert "libnvidia-ml.so" in machine.absent["nvidia"]
    watched.watch.close()


async def test_a_terminal_shows_names_that_models_take(tmp_path: Path) -> None:
    watched = Watched(tmp_path, "one-divided")
    await watched.watch.look()
    cpu = Device(id="cpu", kind="cpu", name="Xeon", cores=4.0, instructions=("amx_tile",))
    machine = msgspec.structs.replace(
        watched.watch.machine, devices=(cpu, *watched.watch.machine.devices)
    )
    text = "\n".join(lines(machine))
    assert "cpu: Xeon, 4 cores" in text
    assert "cuda:1: NVIDIA A100-SXM4-40GB" in text
    assert "divided" in text
    assert "MIG-2a1b" in text
    assert "to cuda:1: switch" in text
