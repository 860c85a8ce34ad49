"""NVIDIA's devices through NVML, its management library; satisfies `ports.devices.Devices`.

https://docs.nvidia.com/deploy/nvml-api/, by the bindings `nvidia-ml-py` (module `pynvml`), of which
a stand-in with recorded answers is in `tiffin.testing.nvml`.
"""

import contextlib
from collections.abc import Callable, Iterator
from importlib import import_module
from typing import Any, Final

import msgspec

from tiffin.ports.devices import Found
from tiffin.types.machine import NVLINK, Device, Link

MAX_NVLINKS: Final = 18
MAX_MIG_PARTS: Final = 16
# NVML's names for the nearest thing of the PCIe tree that two devices share.
_SHARED: Final = {
    0: "board",
    10: "switch",
    20: "switches",
    30: "bridge",
    40: "node",
    50: "machine",
}
_TEMPERATURE_GPU: Final = 0
_LIBRARY_NOT_FOUND: Final = 12
_DRIVER_NOT_LOADED: Final = 9


class NvidiaDevices:
    """All devices that the driver shows; `library` gives the bindings, or raises `ImportError`."""

    kind = "nvidia"

    def __init__(self, library: Callable[[], Any] = lambda: import_module("pynvml")) -> None:
        self._import = library
        self._nvml: Any = None
        self._links: dict[str, tuple[Link, ...]] = {}

    def look(self) -> Found:
        """What there is now; without bindings, library or driver nothing, and the reason."""
        try:
            nvml = self._open()
        except ImportError:
            return Found(
                reason="the bindings aren't installed: pip install 'tiffin[nvidia]'", unseen=True
            )
        except _Absent as absent:
            return Found(reason=str(absent))
        try:
            devices = tuple(self._devices(nvml))
        except nvml.NVMLError as failure:
            # The driver may have been replaced under us: the next look begins anew.
            self.close()
            return Found(reason=f"NVML fails: {failure}", unseen=True)
        return Found(devices=devices, reason="" if devices else "the driver shows no device")

    def close(self) -> None:
        """Let go of the library."""
        nvml, self._nvml = self._nvml, None
        self._links.clear()
        if nvml is not None:
            with contextlib.suppress(nvml.NVMLError):
                nvml.nvmlShutdown()

    def _open(self) -> Any:
        if self._nvml is None:
            nvml = self._import()
            try:
                nvml.nvmlInit()
            except nvml.NVMLError as failure:
                if failure.value == _LIBRARY_NOT_FOUND:
                    raise _Absent("libnvidia-ml.so isn't here: no NVIDIA driver") from failure
                if failure.value == _DRIVER_NOT_LOADED:
                    raise _Absent("NVIDIA's driver isn't loaded") from failure
                raise _Absent(f"NVML can't start: {failure}") from failure
            self._nvml = nvml
        return self._nvml

    def _devices(self, nvml: Any) -> Iterator[Device]:
        handles = {}
        for index in range(nvml.nvmlDeviceGetCount()):
            # One that fell off the bus is missing, and the others stay.
            with contextlib.suppress(nvml.NVMLError):
                handle = nvml.nvmlDeviceGetHandleByIndex(index)
                handles[_text(nvml.nvmlDeviceGetUUID(handle))] = index, handle
        buses = {uuid: _bus(nvml, handle) for uuid, (_, handle) in handles.items()}
        if self._links.keys() != handles.keys():  # how they are wired doesn't change
            self._links = {
                uuid: tuple(_links(nvml, uuid, {u: h for u, (_, h) in handles.items()}, buses))
                for uuid in handles
            }
        for uuid, (index, handle) in handles.items():
            device = _device(nvml, uuid, index, handle)
            yield msgspec.structs.replace(device, bus=buses[uuid], links=self._links[uuid])
            yield from _parts(nvml, device, handle)


class _Absent(Exception):
    pass


def _device(nvml: Any, uuid: str, index: int, handle: Any) -> Device:
    memory = _told(nvml, nvml.nvmlDeviceGetMemoryInfo, handle)
    rates = _told(nvml, nvml.nvmlDeviceGetUtilizationRates, handle)
    return Device(
        id=uuid,
        kind="nvidia",
        name=_text(_told(nvml, nvml.nvmlDeviceGetName, handle) or "NVIDIA device"),
        index=index,
        memory_total_bytes=int(memory.total) if memory else 0,
        memory_free_bytes=int(memory.free) if memory else 0,
        utilization=rates.gpu / 100 if rates else None,
        temperature_c=_told(nvml, nvml.nvmlDeviceGetTemperature, handle, _TEMPERATURE_GPU),
        power_w=_thousandth(_told(nvml, nvml.nvmlDeviceGetPowerUsage, handle)),
        power_limit_w=_thousandth(_told(nvml, nvml.nvmlDeviceGetEnforcedPowerLimit, handle)),
        energy_j=_thousandth(_told(nvml, nvml.nvmlDeviceGetTotalEnergyConsumption, handle)),
    )


def _parts(nvml: Any, whole: Device, handle: Any) -> Iterator[Device]:
    """The MIG instances of a device that is divided into such."""
    mode = _told(nvml, nvml.nvmlDeviceGetMigMode, handle)
    if not mode or not mode[0]:
        return
    most = _told(nvml, nvml.nvmlDeviceGetMaxMigDeviceCount, handle) or 0
    for index in range(min(most, MAX_MIG_PARTS)):
        part = _told(nvml, nvml.nvmlDeviceGetMigDeviceHandleByIndex, handle, index)
        if part is None:
            continue  # places may be free between those in use
        memory = _told(nvml, nvml.nvmlDeviceGetMemoryInfo, part)
        uuid = _told(nvml, nvml.nvmlDeviceGetUUID, part)
        if uuid and memory:
            yield Device(
                id=_text(uuid),
                kind="nvidia",
                name=_text(_told(nvml, nvml.nvmlDeviceGetName, part) or f"{whole.name} MIG"),
                index=index,
                memory_total_bytes=int(memory.total),
                memory_free_bytes=int(memory.free),
                parent=whole.id,
            )


def _links(nvml: Any, own: str, handles: dict[str, Any], buses: dict[str, str]) -> Iterator[Link]:
    lanes = _nvlinks(nvml, handles[own])
    for peer, handle in handles.items():
        if peer == own:
            continue
        shared = _told(nvml, nvml.nvmlDeviceGetTopologyCommonAncestor, handles[own], handle)
        # Through a switch of NVLinks the far end is the switch, which reaches every device.
        count = lanes.get(buses[peer], 0) or sum(
            n for bus, n in lanes.items() if bus not in buses.values()
        )
        if count:
            yield Link(peer=peer, kind=NVLINK, lanes=count)
        elif shared is not None:
            yield Link(peer=peer, kind=_SHARED.get(int(shared), "machine"))


def _nvlinks(nvml: Any, handle: Any) -> dict[str, int]:
    """How many of a device's NVLinks are up, by where they lead."""
    found: dict[str, int] = {}
    for link in range(MAX_NVLINKS):
        if _told(nvml, nvml.nvmlDeviceGetNvLinkState, handle, link):
            far = _told(nvml, nvml.nvmlDeviceGetNvLinkRemotePciInfo, handle, link)
            if far is not None:
                bus = _text(far.busId).lower()
                found[bus] = found.get(bus, 0) + 1
    return found


def _bus(nvml: Any, handle: Any) -> str:
    place = _told(nvml, nvml.nvmlDeviceGetPciInfo, handle)
    return _text(place.busId).lower() if place is not None else ""


def _told(nvml: Any, ask: Callable[..., Any], *given: Any) -> Any:
    """An answer, or None where this device doesn't have it."""
    try:
        return ask(*given)
    except nvml.NVMLError:
        return None


def _thousandth(value: int | None) -> float | None:
    return None if value is None else value / 1000


def _text(value: str | bytes) -> str:
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else value
