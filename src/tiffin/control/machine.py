"""Watches what the machine computes with: for the operator, for metrics, and for placement.

The numbers of accelerators and of the processor have the names that Triton gave them.
"""

import asyncio
from collections.abc import Sequence
from pathlib import Path

import msgspec

from tiffin.ports.clock import Clock
from tiffin.ports.devices import Devices
from tiffin.telemetry.metrics import Meter
from tiffin.types.machine import CPU, Device, Machine
from tiffin.types.whole_file import replace_file

FILE = "machine.json"
"""Its name in the run folder."""

_GPU = ("gpu_uuid",)


def look(kinds: Sequence[Devices], now_ns: int) -> Machine:
    """All devices now; blocks for milliseconds, or for as long as a driver does."""
    found = {one.kind: one.look() for one in kinds}
    return Machine(
        seen_ns=now_ns,
        devices=tuple(device for one in found.values() for device in one.devices),
        absent={kind: one.reason for kind, one in found.items() if one.reason},
        unseen=tuple(kind for kind, one in found.items() if one.unseen),
    )


class MachineWatch:
    """Looks when told to, writes what it sees to `path`, and counts it."""

    def __init__(self, kinds: Sequence[Devices], path: Path, meter: Meter, clock: Clock) -> None:
        self._kinds = kinds
        self._path = path
        self._clock = clock
        self._energy: dict[str, float] = {}
        self._gauges = _Gauges(meter)
        self.machine = Machine()

    async def look(self) -> None:
        """Look once, on a thread; raises `OSError` where it can't be written down."""
        self.machine = await asyncio.to_thread(look, self._kinds, self._clock.now_ns())
        replace_file(self._path, msgspec.json.encode(self.machine), lasting=False)
        for device in self.machine.devices:
            if device.kind == CPU:
                self._gauges.processor(device)
            elif not device.parent:
                self._gauges.accelerator(device)
                self._count_energy(device)

    def close(self) -> None:
        """Let go of the drivers."""
        for kind in self._kinds:
            kind.close()

    def _count_energy(self, device: Device) -> None:
        """What was used since the last look: the driver's own count begins with the driver."""
        if device.energy_j is None:
            return
        before = self._energy.get(device.id, device.energy_j)
        self._energy[device.id] = device.energy_j
        self._gauges.energy.add((device.id,), max(0.0, device.energy_j - before))


class _Gauges:
    def __init__(self, meter: Meter) -> None:
        self._meter = meter
        self.energy = meter.counter(
            "nv_energy_consumption", "Joules that the GPU used while it was watched", _GPU
        )
        self._utilization = meter.gauge(
            "nv_gpu_utilization", "Share of the time in which the GPU computed, 0 to 1", _GPU
        )
        self._total = meter.gauge("nv_gpu_memory_total_bytes", "Memory of the GPU", _GPU)
        self._used = meter.gauge("nv_gpu_memory_used_bytes", "Memory of the GPU in use", _GPU)
        self._power = meter.gauge("nv_gpu_power_usage", "Watts that the GPU draws", _GPU)
        self._limit = meter.gauge("nv_gpu_power_limit", "Watts that the GPU may draw", _GPU)
        self._heat = meter.gauge("tiffin_gpu_temperature_celsius", "Temperature of the GPU", _GPU)
        self._cpu = meter.gauge(
            "nv_cpu_utilization", "Share of all cores' time that was used, 0 to 1"
        )
        self._memory = meter.gauge("nv_cpu_memory_total_bytes", "Memory of the machine")
        self._memory_used = meter.gauge("nv_cpu_memory_used_bytes", "Memory that isn't available")
        self._cores = meter.gauge("tiffin_machine_cores", "Cores that this server may use")

    def processor(self, device: Device) -> None:
        self._cores.set(device.cores)
        self._cpu.set(device.utilization or 0.0)
        self._memory.set(device.memory_total_bytes)
        self._memory_used.set(device.memory_total_bytes - device.memory_free_bytes)

    def accelerator(self, device: Device) -> None:
        label = (device.id,)
        self._total.set(device.memory_total_bytes, label)
        self._used.set(device.memory_total_bytes - device.memory_free_bytes, label)
        for gauge, known in (
            (self._utilization, device.utilization),
            (self._power, device.power_w),
            (self._limit, device.power_limit_w),
            (self._heat, device.temperature_c),
        ):
            if known is not None:
                gauge.set(known, label)
