"""The processor and the memory, as Linux tells of them; satisfies `ports.devices.Devices`.

https://docs.kernel.org/admin-guide/cgroup-v2.html, proc(5)
"""

import contextlib
import os
import platform
from pathlib import Path
from typing import Final

from tiffin.ports.devices import Found
from tiffin.types.machine import CPU, Device

# As /proc/cpuinfo calls them: what kernels of linear algebra are written for, widest last.
INSTRUCTIONS: Final = (
    *("sse4_2", "avx", "f16c", "fma", "avx2", "avx_vnni"),
    *("avx512f", "avx512bw", "avx512_vnni", "avx512_bf16", "avx512_fp16"),
    *("amx_tile", "amx_int8", "amx_bf16"),
    *("asimd", "asimddp", "bf16", "i8mm", "sve", "sve2"),
)
_IDLE: Final = slice(3, 5)  # idle and waiting for a disk, in /proc/stat
_ALL: Final = slice(0, 8)  # guests' time is in the user's already


class CpuDevices:
    """One device, `cpu`; `root` is where `/proc` and `/sys` lie."""

    kind = CPU

    def __init__(self, root: Path = Path("/")) -> None:
        self._root = root
        self._ticks = (0, 0)

    def look(self) -> Found:
        """What this process may use of it now; a quota of its control group counts."""
        name, flags = self._model()
        total, free = self._memory()
        device = Device(
            id=CPU,
            kind=CPU,
            name=name,
            memory_total_bytes=total,
            memory_free_bytes=min(free, total),
            utilization=self._utilization(),
            temperature_c=self._temperature(),
            cores=self._cores(),
            instructions=tuple(one for one in INSTRUCTIONS if one in flags),
            nodes=len(list(self._root.glob("sys/devices/system/node/node[0-9]*"))) or 1,
        )
        return Found(devices=(device,))

    def close(self) -> None:
        """Nothing to let go of."""

    def _model(self) -> tuple[str, frozenset[str]]:
        fields: dict[str, str] = {}
        for line in self._text("proc/cpuinfo").splitlines():
            name, colon, value = line.partition(":")
            if colon:
                fields.setdefault(name.strip().lower(), value.strip())
            elif fields:
                break  # the first core speaks for all
        flags = fields.get("flags") or fields.get("features") or ""
        return fields.get("model name") or platform.machine(), frozenset(flags.split())

    def _cores(self) -> float:
        usable = float(len(os.sched_getaffinity(0)))
        for folder in self._groups():
            quota, _, period = self._text(f"{folder}/cpu.max").partition(" ")
            if quota.isdecimal() and period.strip().isdecimal():
                usable = min(usable, int(quota) / int(period))
        return usable

    def _memory(self) -> tuple[int, int]:
        told = {}
        for line in self._text("proc/meminfo").splitlines():
            name, _, value = line.partition(":")
            told[name] = int(value.split()[0]) * 1024 if value.split() else 0
        total, free = told.get("MemTotal", 0), told.get("MemAvailable", 0)
        for folder in self._groups():
            limit = self._text(f"{folder}/memory.max").strip()
            used = self._text(f"{folder}/memory.current").strip()
            if limit.isdecimal() and used.isdecimal():
                # Files that the kernel keeps in memory are counted as used and can go.
                held = int(used) - self._reclaimable(folder)
                total, free = min(total, int(limit)), min(free, max(0, int(limit) - held))
        return total, free

    def _reclaimable(self, folder: str) -> int:
        for line in self._text(f"{folder}/memory.stat").splitlines():
            name, _, value = line.partition(" ")
            if name == "inactive_file":
                return int(value)
        return 0

    def _groups(self) -> list[str]:
        """This process's control group (version 2) and those around it, by their folders."""
        own = next(
            (
                line[3:]
                for line in self._text("proc/self/cgroup").splitlines()
                if line.startswith("0::")
            ),
            "",
        )
        parts = [part for part in own.split("/") if part]
        return ["/".join(("sys/fs/cgroup", *parts[:depth])) for depth in range(len(parts), -1, -1)]

    def _utilization(self) -> float | None:
        first = self._text("proc/stat").partition("\n")[0].split()[1:]
        ticks = [int(tick) for tick in first[_ALL]]
        if not ticks:
            return None
        before, self._ticks = self._ticks, (sum(ticks), sum(ticks[_IDLE]))
        passed = self._ticks[0] - before[0]
        idle = self._ticks[1] - before[1]
        return min(1.0, max(0.0, 1.0 - idle / passed)) if passed > 0 else None

    def _temperature(self) -> float | None:
        for zone in sorted(self._root.glob("sys/class/thermal/thermal_zone*")):
            folder = str(zone.relative_to(self._root))
            if self._text(f"{folder}/type").strip() in ("x86_pkg_temp", "cpu-thermal"):
                with contextlib.suppress(ValueError):
                    return int(self._text(f"{folder}/temp")) / 1000
        return None

    def _text(self, path: str) -> str:
        try:
            return (self._root / path).read_text(encoding="utf-8", errors="replace")
        except OSError:
            return ""
