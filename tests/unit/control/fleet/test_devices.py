"""Placement on devices: laws on any machine, and choices on those that people have."""

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tiffin.control.fleet.devices import Promise, Seat, room_bytes, seat, variables
from tiffin.types.machine import CPU, NEAREST_FIRST, NVLINK, Device, Link, Machine

GIB = 1 << 30


def gpu(number: int, *, total: int = 80, free: int = 80, links: str = "", of: str = "") -> Device:
    """`links` has a letter for each other device: n is NVLink, p the same switch."""
    kinds = {"n": NVLINK, "p": "switch", ".": "machine"}
    return Device(
        id=f"{'MIG' if of else 'GPU'}-{number}",
        kind="nvidia",
        name="x",
        index=number,
        memory_total_bytes=total * GIB,
        memory_free_bytes=free * GIB,
        parent=of,
        links=tuple(
            Link(peer=f"GPU-{n}", kind=kinds[k]) for n, k in enumerate(links) if n != number
        ),
    )


def machine(*devices: Device, unseen: tuple[str, ...] = ()) -> Machine:
    cpu = Device(id=CPU, kind=CPU, name="x", memory_total_bytes=GIB, memory_free_bytes=GIB)
    return Machine(devices=(cpu, *devices), absent={"nvidia": "no driver"}, unseen=unseen)


def promised(*devices: str, gib: int = 0, loading: bool = True) -> Promise:
    return Promise(devices=devices, need_bytes=gib * GIB, loading=loading)


AUTO = ("auto",)


def test_the_tightest_fit_is_taken_so_that_large_ones_stay_free() -> None:
    three = machine(gpu(0, free=70), gpu(1, free=30), gpu(2, free=10))
    assert seat(AUTO, 20 * GIB, three, ()).devices == ("GPU-1",)


def test_equal_devices_fall_to_the_lower_number() -> None:
    assert seat(AUTO, GIB, machine(gpu(1), gpu(0)), ()).devices == ("GPU-0",)


def test_what_is_promised_to_one_that_loads_is_not_there() -> None:
    one = machine(gpu(0, free=80))
    assert seat(AUTO, 50 * GIB, one, [promised("GPU-0", gib=40)]).refusal
    assert seat(AUTO, 40 * GIB, one, [promised("GPU-0", gib=40)]).devices


def test_what_a_ready_one_took_is_not_counted_twice() -> None:
    one = machine(gpu(0, free=40))
    assert seat(AUTO, 40 * GIB, one, [promised("GPU-0", gib=40, loading=False)]).devices


def test_a_ready_one_may_still_grow_to_what_it_was_promised() -> None:
    one = machine(gpu(0, free=75))
    assert seat(AUTO, 60 * GIB, one, [promised("GPU-0", gib=40, loading=False)]).refusal


def test_who_takes_a_whole_device_shares_it_with_nobody() -> None:
    two = machine(gpu(0), gpu(1))
    first = seat(AUTO, 0, two, ())
    second = seat(AUTO, 0, two, [promised(*first.devices)])
    assert {*first.devices, *second.devices} == {"GPU-0", "GPU-1"}
    assert seat(AUTO, GIB, two, [promised("GPU-0"), promised("GPU-1")]).refusal


def test_several_are_those_that_reach_each_other_fastest() -> None:
    four = machine(
        gpu(0, links=".pn."), gpu(1, links="p..n"), gpu(2, links="n..p"), gpu(3, links=".np.")
    )
    assert seat(AUTO * 2, GIB, four, ()).devices == ("GPU-0", "GPU-2")
    taken = [promised("GPU-0")]
    assert seat(AUTO * 2, GIB, four, taken).devices == ("GPU-1", "GPU-3")


def test_a_divided_device_is_used_by_its_parts() -> None:
    divided = machine(gpu(0), gpu(5, total=20, free=20, of="GPU-0"))
    assert seat(AUTO, 10 * GIB, divided, ()).devices == ("MIG-5",)
    assert "MIG-5" in seat(("cuda:0",), GIB, divided, ()).refusal
    assert seat(("MIG-5",), GIB, divided, ()).devices == ("MIG-5",)
    assert seat(AUTO * 2, GIB, divided, ()).refusal


@pytest.mark.parametrize("name", ["cuda:1", "GPU-1"])
def test_a_device_by_name_is_that_one_or_none(name: str) -> None:
    two = machine(gpu(0), gpu(1, free=4))
    assert seat((name,), GIB, two, ()).devices == ("GPU-1",)
    assert "4.0 of 80.0 GiB" in seat((name,), 8 * GIB, two, ()).refusal


def test_a_name_that_nothing_has_is_told_with_what_there_is() -> None:
    assert "GPU-0" in seat(("cuda:7",), GIB, machine(gpu(0)), ()).refusal
    assert "no driver" in seat(("cuda:0",), GIB, machine(), ()).refusal


def test_without_devices_auto_is_the_processor() -> None:
    assert seat(AUTO * 2, GIB, machine(), ()).devices == (CPU,)
    assert seat((CPU,), GIB, machine(gpu(0)), ()).devices == (CPU,)


def test_a_full_device_is_no_reason_to_compute_elsewhere_unless_that_is_said() -> None:
    full = machine(gpu(0, free=1))
    assert seat(AUTO, 2 * GIB, full, ()).refusal
    assert seat((*AUTO, CPU), 2 * GIB, full, ()).devices == (CPU,)


def test_where_nobody_could_look_nothing_is_settled() -> None:
    assert seat(AUTO, GIB, machine(unseen=("nvidia",)), ()) == Seat()
    assert seat(("cuda:0",), GIB, machine(unseen=("nvidia",)), ()).refusal


def test_a_process_sees_its_devices_alone() -> None:
    assert variables(("GPU-1", "GPU-0"))["CUDA_VISIBLE_DEVICES"] == "GPU-1,GPU-0"
    assert variables((CPU,))["CUDA_VISIBLE_DEVICES"] == ""
    assert variables(()) == variables(("auto",)) == {}


SIZES = st.integers(min_value=0, max_value=90)


@st.composite
def machines(draw: st.DrawFn) -> Machine:
    count = draw(st.integers(min_value=0, max_value=5))
    kinds = draw(st.lists(st.sampled_from(NEAREST_FIRST), min_size=25, max_size=25))
    devices = []
    for number in range(count):
        total = draw(st.integers(min_value=1, max_value=90))
        links = tuple(
            Link(peer=f"GPU-{n}", kind=kinds[min(n, number) * 5 + max(n, number)])
            for n in range(count)
            if n != number
        )
        one = gpu(number, total=total, free=min(total, draw(SIZES)))
        devices.append(msgspec.structs.replace(one, links=links))
    return machine(*devices)


@given(
    machine=machines(),
    wishes=st.lists(st.tuples(st.integers(min_value=1, max_value=3), SIZES), max_size=8),
)
def test_no_device_is_ever_promised_more_than_it_has(
    machine: Machine, wishes: list[tuple[int, int]]
) -> None:
    promises: list[Promise] = []
    for count, gib in wishes:
        given = seat(AUTO * count, gib * GIB, machine, promises)
        assert given == seat(AUTO * count, gib * GIB, machine, list(promises)), (
            "it is deterministic"
        )
        if given.devices and given.devices != (CPU,):
            assert len(set(given.devices)) == len(given.devices) == count
            promises.append(Promise(devices=given.devices, need_bytes=gib * GIB))
    for device in machine.devices:
        own = [one.need_bytes for one in promises if device.id in one.devices]
        assert sum(own) <= device.memory_free_bytes or 0 in own
        assert 0 not in own or own == [0], "who has all of it is alone"
        assert 0 <= room_bytes(device, promises) <= device.memory_total_bytes


@given(machine=machines(), gib=st.integers(min_value=1, max_value=90))
def test_one_is_refused_only_where_none_has_room(machine: Machine, gib: int) -> None:
    given = seat(AUTO, gib * GIB, machine, ())
    room = any(one.memory_free_bytes >= gib * GIB for one in machine.devices if one.kind != CPU)
    there = len(machine.devices) > 1
    assert bool(given.refusal) == (there and not room)
