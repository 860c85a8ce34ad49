"""The memory of a process and of all that it started, as the kernel counts it."""

import os
from pathlib import Path

_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")
_MOST_PROCESSES = 256


def resident_bytes(pid: int, proc: Path = Path("/proc")) -> int:
    """Resident bytes of a process and its descendants; 0 where it has gone.

    Pages that several share, as libraries and mapped files, count for each of them: a replica
    would need them if it were alone.
    """
    total = 0
    left, seen = [pid], 0
    while left and seen < _MOST_PROCESSES:
        one = proc / str(left.pop())
        seen += 1
        try:
            total += int((one / "statm").read_text().split()[1]) * _PAGE_BYTES
            for task in (one / "task").iterdir():
                left += map(int, (task / "children").read_text().split())
        except (OSError, ValueError, IndexError):
            continue
    return total
