"""How much memory all replicas of this machine may take together."""

from collections.abc import Iterable
from pathlib import Path
from typing import Final

_MIB: Final = 1 << 20
RESERVE_BYTES: Final = 512 * _MIB
RESERVE_SHARE: Final = 0.1


def budget_bytes(memory_mb: int, machine: Path = Path("/")) -> int:
    """What the setting says; for 0 what the machine or its control group has, less a reserve.

    The reserve is for the system and for Tiffin's other processes: a tenth, at least 512 MB, never
    more than half.
    """
    if memory_mb:
        return memory_mb * _MIB
    there = min(_limits(machine))
    return there - int(min(there / 2, max(RESERVE_BYTES, there * RESERVE_SHARE)))


def _limits(machine: Path) -> Iterable[int]:
    yield _total(machine)
    for group in _groups(machine):
        try:
            text = group.read_text().strip()
        except OSError:
            continue
        if text.isdigit():
            yield int(text)


def _total(machine: Path) -> int:
    try:
        lines = (machine / "proc/meminfo").read_text().splitlines()
        return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("MemTotal:"))
    except (OSError, StopIteration, ValueError, IndexError):
        return _UNKNOWN_BYTES


def _groups(machine: Path) -> Iterable[Path]:
    """The files with limits of this process's control groups and of those around them."""
    root = machine / "sys/fs/cgroup"
    try:
        lines = (machine / "proc/self/cgroup").read_text().splitlines()
    except OSError:
        lines = []
    for line in lines:
        _, controllers, path = line.split(":", 2)
        if controllers and "memory" not in controllers.split(","):
            continue
        top, name = (
            (root / "memory", "memory.limit_in_bytes") if controllers else (root, "memory.max")
        )
        inner = top / path.lstrip("/")
        yield from (
            folder / name for folder in (inner, *inner.parents) if top in (folder, *folder.parents)
        )
    # In a container its own group is the root that it sees.
    yield root / "memory.max"
    yield root / "memory/memory.limit_in_bytes"


_UNKNOWN_BYTES: Final = 4 << 30
