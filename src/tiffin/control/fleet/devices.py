"""Which devices a replica computes on, decided from values alone, and how it is kept to them.

- A device is given no more than it has, less all that was promised of it; and no more than is free
  on it now, less what was promised to replicas that are still loading.
- Who needs a whole device (`need_bytes` 0) gets one of which nothing is promised.
- One device: the one on which least is left over, so that large ones stay free for large models.
  Several: those that reach each other fastest, then those on which least is left over.
- A device that is divided isn't computed on itself; its parts are, one at a time.
- Equal choices fall to the lower number, so that the same values always give the same devices.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Final

from tiffin.types.machine import CPU, NEAREST_FIRST, Device, Machine

AUTO: Final = "auto"
MAX_CHOSEN_FROM: Final = 16

_BY_NUMBER: Final = "cuda:"
_GIB: Final = 1 << 30
_UNRELATED: Final = len(NEAREST_FIRST)


@dataclass(frozen=True, slots=True, kw_only=True)
class Promise:
    """What a replica was given of each of its devices; 0 bytes are all of it."""

    devices: tuple[str, ...]
    need_bytes: int
    loading: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class Seat:
    """Where a replica goes: `devices` by their ids, `cpu`, or none where nobody knows what there
    is; or the `refusal`."""

    devices: tuple[str, ...] = ()
    refusal: str = ""


def seat(
    wanted: Sequence[str], need_bytes: int, machine: Machine, promises: Sequence[Promise]
) -> Seat:
    """A place for a replica that needs so much of each device.

    `wanted` has a name for each device: `auto`, `cuda:0` or an id; `cpu` at the end of others
    stands for "or else there".
    """
    names = [name for name in wanted if name != CPU]
    if not names:
        return Seat(devices=(CPU,))
    or_else = Seat(devices=(CPU,)) if CPU in wanted else None
    devices = {one.id: one for one in machine.devices if one.kind != CPU}
    if not devices and machine.unseen:
        if names == [AUTO] * len(names):
            return Seat()
        return _refused(f"{', '.join(names)} can't be seen: {_none(machine)}")
    if names == [AUTO] * len(names):
        if not devices:
            return Seat(devices=(CPU,))
        found = _chosen(len(names), need_bytes, devices, promises)
    else:
        found = _named(names, need_bytes, machine, promises)
    return or_else if found.refusal and or_else else found


def variables(devices: Sequence[str]) -> dict[str, str]:
    """The environment in which a process sees these devices alone.

    By their ids, since numbers mean other devices in other libraries and after a reboot. Empty
    where it isn't settled which devices these are.
    """
    if not devices or not all(one == CPU or one.startswith(("GPU-", "MIG-")) for one in devices):
        return {}
    shown = ",".join(one for one in devices if one != CPU)
    return {
        "CUDA_DEVICE_ORDER": "PCI_BUS_ID",
        "CUDA_VISIBLE_DEVICES": shown,
        "HIP_VISIBLE_DEVICES": "-1",
    }


def room_bytes(device: Device, promises: Sequence[Promise]) -> int:
    """How much of a device may still be given."""
    own = [one for one in promises if device.id in one.devices]
    given = sum(one.need_bytes or device.memory_total_bytes for one in own)
    coming = sum(one.need_bytes or device.memory_total_bytes for one in own if one.loading)
    left = min(device.memory_total_bytes - given, device.memory_free_bytes - coming)
    return max(0, left)


def _chosen(
    count: int, need_bytes: int, devices: dict[str, Device], promises: Sequence[Promise]
) -> Seat:
    divided = {one.parent for one in devices.values() if one.parent}
    usable = [
        one for one in devices.values() if one.id not in divided and (count == 1 or not one.parent)
    ]
    usable.sort(key=_order)
    fitting = [one for one in usable if _fits(one, need_bytes, promises)][:MAX_CHOSEN_FROM]
    if len(fitting) < count:
        return _refused(_full(count, need_bytes, usable, promises))
    rooms = {one.id: room_bytes(one, promises) for one in fitting}
    # The first of equals: combinations come in the order of numbers.
    best = min(
        combinations(fitting, count),
        key=lambda group: (_distance(group), sum(rooms[one.id] for one in group)),
    )
    return Seat(devices=tuple(one.id for one in best))


def _named(
    names: Sequence[str], need_bytes: int, machine: Machine, promises: Sequence[Promise]
) -> Seat:
    found: list[Device] = []
    for name in names:
        device = next(_called(name, machine), None)
        if device is None:
            return _refused(f"there is no device {name}: {_none(machine)}")
        parts = [one.id for one in machine.devices if one.parent == device.id]
        if parts:
            return _refused(f"{name} is divided; name one of its parts: {', '.join(parts)}")
        found.append(device)
    if len({one.id for one in found}) < len(found):
        return _refused(f"a device is named twice: {', '.join(names)}")
    if not all(_fits(one, need_bytes, promises) for one in found):
        return _refused(_full(len(found), need_bytes, found, promises))
    return Seat(devices=tuple(one.id for one in found))


def _called(name: str, machine: Machine) -> Iterator[Device]:
    for one in machine.devices:
        numbered = f"{_BY_NUMBER}{one.index}"
        if one.id == name or (name == numbered and one.kind != CPU and not one.parent):
            yield one


def _fits(device: Device, need_bytes: int, promises: Sequence[Promise]) -> bool:
    if need_bytes:
        return room_bytes(device, promises) >= need_bytes
    return not any(device.id in one.devices for one in promises)


def _distance(group: Sequence[Device]) -> int:
    """How far apart the two of a group are that are farthest."""
    farthest = 0
    for one, other in combinations(group, 2):
        kinds = [link.kind for link in one.links if link.peer == other.id]
        rank = NEAREST_FIRST.index(kinds[0]) if kinds else _UNRELATED
        farthest = max(farthest, rank)
    return farthest


def _order(device: Device) -> tuple[int, str, str]:
    return device.index, device.parent, device.id


def _refused(why: str) -> Seat:
    return Seat(refusal=why)


def _full(
    count: int, need_bytes: int, devices: Sequence[Device], promises: Sequence[Promise]
) -> str:
    what = f"{need_bytes / _GIB:.1f} GiB" if need_bytes else "a whole device"
    rooms = ", ".join(
        f"{one.id} has {room_bytes(one, promises) / _GIB:.1f} of"
        f" {one.memory_total_bytes / _GIB:.1f} GiB left"
        for one in devices
    )
    which = "no device has" if count == 1 else f"no {count} devices have"
    return f"{which} {what} to give: {rooms or 'there is none'}"


def _none(machine: Machine) -> str:
    known = [one.id for one in machine.devices if one.kind != CPU]
    reasons = "; ".join(f"{kind}: {why}" for kind, why in sorted(machine.absent.items()))
    return f"there are {', '.join(known)}" if known else reasons or "there is none"
