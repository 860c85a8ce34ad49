"""What this machine computes with, for a terminal: `tiffin machine`."""

import json
import time
from collections.abc import Iterator
from typing import Any

from tiffin.types.machine import CPU, Device, Machine

_GIB = 1 << 30


def show_machine(*, as_json: bool) -> None:
    """Look at this machine, whether or not a server runs, and print what there is."""
    import msgspec

    from tiffin.adapters.devices.cpu import CpuDevices
    from tiffin.adapters.devices.nvidia import NvidiaDevices
    from tiffin.control.machine import look

    machine = look((CpuDevices(), NvidiaDevices()), time.time_ns())
    if as_json:
        found: dict[str, Any] = msgspec.to_builtins(machine)
        print(json.dumps(found, indent=2))
    else:
        print("\n".join(lines(machine)))


def lines(machine: Machine) -> Iterator[str]:
    """One line a device, and one for each kind that there is none of."""
    divided = {device.parent for device in machine.devices if device.parent}
    numbers = {device.id: f"cuda:{device.index}" for device in machine.devices}
    for device in machine.devices:
        if device.kind == CPU:
            yield _processor(device)
        elif device.parent:
            yield f"    part: {device.name}, {_memory(device)}, {device.id}"
        else:
            yield f"{numbers[device.id]}: {', '.join(_facts(device))}, {device.id}"
            for link in device.links:
                lanes = f" ({link.lanes} links)" if link.lanes else ""
                yield f"    to {numbers[link.peer]}: {link.kind}{lanes}"
            if device.id in divided:
                yield "    divided: models go to its parts"
    for kind, reason in sorted(machine.absent.items()):
        yield f"{kind}: none; {reason}"


def _processor(device: Device) -> str:
    facts = [device.name, f"{device.cores:g} cores", _memory(device)]
    if device.nodes > 1:
        facts.append(f"{device.nodes} NUMA nodes")
    if device.instructions:
        facts.append(" ".join(device.instructions))
    return f"cpu: {', '.join(facts)}"


def _facts(device: Device) -> Iterator[str]:
    yield device.name
    yield _memory(device)
    if device.utilization is not None:
        yield f"{device.utilization:.0%} busy"
    if device.temperature_c is not None:
        yield f"{device.temperature_c:.0f} °C"
    if device.power_w is not None:
        limit = f" of {device.power_limit_w:.0f}" if device.power_limit_w else ""
        yield f"{device.power_w:.0f}{limit} W"


def _memory(device: Device) -> str:
    total, free = device.memory_total_bytes / _GIB, device.memory_free_bytes / _GIB
    return f"{free:.1f} of {total:.1f} GiB free"
