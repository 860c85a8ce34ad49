from pathlib import Path

import pytest

from tiffin.control.fleet.budget import budget_bytes

GIB = 1 << 30


@pytest.fixture
def machine(tmp_path: Path) -> Path:
    write(tmp_path, "proc/meminfo", f"MemTotal:       {16 * GIB // 1024} kB\nMemFree: 1 kB\n")
    return tmp_path


def write(root: Path, name: str, text: str) -> None:
    path = root / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def test_what_the_setting_says_counts(machine: Path) -> None:
    assert budget_bytes(100, machine) == 100 << 20


def test_a_tenth_of_the_machine_is_left_to_others(machine: Path) -> None:
    assert budget_bytes(0, machine) == pytest.approx(0.9 * 16 * GIB, rel=1e-6)


@pytest.mark.parametrize(
    ("group", "limit"),
    [
        ("0::/box/inner\n", "box/memory.max"),
        ("4:memory:/box\n", "memory/box/memory.limit_in_bytes"),
    ],
    ids=["second", "first"],
)
def test_a_control_group_limits_it_by_either_version(machine: Path, group: str, limit: str) -> None:
    write(machine, "proc/self/cgroup", group)
    write(machine, f"sys/fs/cgroup/{limit}", f"{4 * GIB}\n")
    assert budget_bytes(0, machine) == 4 * GIB - GIB // 2


def test_a_group_without_a_limit_limits_nothing(machine: Path) -> None:
    write(machine, "proc/self/cgroup", "0::/box\n")
    write(machine, "sys/fs/cgroup/box/memory.max", "max\n")
    assert budget_bytes(0, machine) > 14 * GIB


def test_a_container_sees_its_own_group_as_the_root(machine: Path) -> None:
    write(machine, "proc/self/cgroup", "0::/\n")
    write(machine, "sys/fs/cgroup/memory.max", f"{GIB}\n")
    assert budget_bytes(0, machine) == GIB // 2


def test_it_is_more_than_nothing_where_nothing_can_be_read(tmp_path: Path) -> None:
    assert budget_bytes(0, tmp_path) > 0
