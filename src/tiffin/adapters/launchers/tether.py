"""Ties a program that isn't ours to our life: `python -m tiffin.adapters.launchers.tether PID …`.

It stands between, as the leader of the program's process group. When process PID, which started it,
dies in whatever way, the whole group is killed; when the program ends, this ends with its code.
"""

import ctypes
import os
import signal
import subprocess
import sys
from types import FrameType

NOT_FOUND = 127
BY_SIGNAL = 128

_PR_SET_PDEATHSIG = 1


def command(owner: int, program: list[str]) -> list[str]:
    """The argument vector that runs a program on a tether held by process `owner`."""
    return [sys.executable, "-m", "tiffin.adapters.launchers.tether", str(owner), *program]


def main() -> int:
    """Run the program; its exit code, 128 and the number where a signal ended it."""
    owner, program = int(sys.argv[1]), sys.argv[2:]
    if os.getpgrp() != os.getpid():
        os.setpgid(0, 0)
    signal.signal(signal.SIGUSR1, _owner_died)
    _tell_of_death(signal.SIGUSR1)
    if os.getppid() != owner:
        return BY_SIGNAL
    try:
        # This process has one thread, so it is safe to run code between fork and exec.
        child = subprocess.Popen(
            program,
            stdin=subprocess.DEVNULL,
            preexec_fn=lambda: _tell_of_death(signal.SIGKILL),
        )
    except OSError as failure:
        sys.stderr.write(f"{program[0]} can't be started: {failure.strerror}\n")
        return NOT_FOUND

    def pass_on(number: int, frame: FrameType | None) -> None:
        child.send_signal(number)

    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, pass_on)
    code = child.wait()
    return code if code >= 0 else BY_SIGNAL - code


def _owner_died(number: int, frame: FrameType | None) -> None:
    os.killpg(0, signal.SIGKILL)


def _tell_of_death(number: int) -> None:
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, number, 0, 0, 0)


if __name__ == "__main__":
    sys.exit(main())
