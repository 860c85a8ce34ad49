"""The processor as files of /proc and /sys tell of it."""

import os
from pathlib import Path

import pytest

from tiffin.adapters.devices.cpu import CpuDevices

MIB = 1 << 20
FILES = {
    "proc/cpuinfo": (
        "processor\t: 0\nmodel name\t: Xeon 6\nflags\t\t: fpu avx avx2 avx512f amx_tile amx_int8\n"
        "\nprocessor\t: 1\nmodel name\t: another\n"
    ),
    "proc/meminfo": "MemTotal:       8388608 kB\nMemFree: 1 kB\nMemAvailable:   4194304 kB\n",
    "proc/stat": "cpu  100 0 100 700 100 0 0 0 50 0\ncpu0 1 2 3\n",
    "proc/self/cgroup": "0::/pods/one\n",
    "sys/fs/cgroup/pods/cpu.max": "max 100000\n",
    "sys/fs/cgroup/pods/one/cpu.max": "50000 100000\n",
    "sys/fs/cgroup/pods/one/memory.max": f"{2048 * MIB}\n",
    "sys/fs/cgroup/pods/one/memory.current": f"{1536 * MIB}\n",
    "sys/fs/cgroup/pods/one/memory.stat": f"anon 5\ninactive_file {512 * MIB}\n",
    "sys/devices/system/node/node0/x": "",
    "sys/devices/system/node/node1/x": "",
    "sys/class/thermal/thermal_zone3/type": "x86_pkg_temp\n",
    "sys/class/thermal/thermal_zone3/temp": "41500\n",
}


@pytest.fixture
def root(tmp_path: Path) -> Path:
    for name, text in FILES.items():
        write(tmp_path / name, text)
    return tmp_path


def write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def test_the_first_core_speaks_for_all(root: Path) -> None:
    [cpu] = CpuDevices(root).look().devices
    assert cpu.name == "Xeon 6"
    assert cpu.instructions == ("avx", "avx2", "avx512f", "amx_tile", "amx_int8")
    assert cpu.nodes == 2
    assert cpu.temperature_c == pytest.approx(41.5)


def test_a_control_groups_quota_limits_cores_and_memory(root: Path) -> None:
    [cpu] = CpuDevices(root).look().devices
    assert cpu.cores == pytest.approx(0.5)
    assert cpu.memory_total_bytes == 2048 * MIB
    assert cpu.memory_free_bytes == 1024 * MIB


def test_without_a_quota_all_cores_of_this_process_count(root: Path) -> None:
    write(root / "proc/self/cgroup", "1:name=systemd:/\n")
    [cpu] = CpuDevices(root).look().devices
    assert cpu.cores == len(os.sched_getaffinity(0))
    assert cpu.memory_free_bytes == 4096 * MIB


def test_utilization_is_since_the_last_look(root: Path) -> None:
    devices = CpuDevices(root)
    devices.look()
    write(root / "proc/stat", "cpu  130 0 130 730 110 0 0 0 50 0\n")
    assert devices.look().devices[0].utilization == pytest.approx(0.6)


def test_a_machine_that_tells_nothing_still_has_a_processor(tmp_path: Path) -> None:
    [cpu] = CpuDevices(tmp_path).look().devices
    assert cpu.name
    assert cpu.memory_total_bytes == 0
    assert cpu.utilization is None
