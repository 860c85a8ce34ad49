"""How a process of Tiffin is started and what it does first: one value in, one call before work."""

import ctypes
import os
import signal
import sys
from collections.abc import Sequence
from pathlib import Path

import msgspec

from tiffin.config.schema import Server, Telemetry
from tiffin.types.paths import DataFolder
from tiffin.types.snapshot import Deployment

EXIT_PERMANENT = 3
FINISH = signal.SIGUSR1
"""Tells a ready replica to take nothing more, and to end when all that it has begun is finished."""

_PR_SET_PDEATHSIG = 1


class Boot(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Everything that a child needs to start, in one argument; it holds no secret.

    `name` is the stem of the child's files in the run folder; `data` is absolute; `listen_fd` is
    the gateways' inherited listening socket, `ordinal` which of them this is; `deployment` is what
    a replica runs; `spawned_ns` is when it was asked for (UTC). A process that waits for its model
    reads that from `listen_fd`, and has the modules of `imports` imported by then.
    """

    role: str
    name: str
    data: str
    parent_pid: int
    epoch: str
    server: Server
    telemetry: Telemetry
    config_path: str = ""
    listen_fd: int = -1
    ordinal: int = 0
    deployment: Deployment | None = None
    spawned_ns: int = 0
    imports: tuple[str, ...] = ()


def command(boot: Boot) -> list[str]:
    """The argument vector that starts this child with this very interpreter."""
    return [sys.executable, "-m", f"tiffin.app.{boot.role}", msgspec.json.encode(boot).decode()]


def read_boot(argv: Sequence[str]) -> Boot:
    """The child's side of `command`; raises `msgspec.ValidationError` when it isn't one."""
    if len(argv) != 2:
        raise msgspec.ValidationError("a child takes one argument: its boot value as JSON")
    return msgspec.json.decode(argv[1], type=Boot)


def cannot_start(boot: Boot, failure: Exception) -> int:
    """Tell why this child can't start, which trying again won't change; its exit code."""
    from tiffin.telemetry import log
    from tiffin.types.whole_file import replace_file

    state = msgspec.json.encode({"phase": "failed", "reason": str(failure)})
    replace_file(DataFolder(Path(boot.data)).run / f"{boot.name}.state.json", state, lasting=False)
    log.error(f"{boot.role} can't start", error=str(failure))
    return EXIT_PERMANENT


def enter(boot: Boot) -> None:
    """Tie this process's life to its parent's, keep its files private, log JSON to stderr.

    Call it first, from the main thread; exits at once when the parent has already died.
    """
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "prctl(PR_SET_PDEATHSIG) failed")
    if os.getppid() != boot.parent_pid:
        sys.exit(f"{boot.name}: its supervisor (pid {boot.parent_pid}) is gone")
    os.umask(0o077)
    from tiffin.telemetry.log import set_up, to_stderr

    route = set_up(process=boot.name, level=boot.telemetry.log_level, write=to_stderr())
    sys.excepthook = route.crashed
