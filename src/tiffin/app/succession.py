"""How a supervisor's process goes from one program to another: what it has, and the step itself."""

import contextlib
import os
import signal
import socket
from collections.abc import Iterator
from contextlib import contextmanager

from tiffin.app.claim import claim, keep, listen
from tiffin.app.handover import Handover, only_inheriting, write
from tiffin.app.options import Options
from tiffin.types.paths import DataFolder

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
"""They wait while one program takes the place of another, until it handles them."""


@contextmanager
def possessions(options: Options) -> Iterator[tuple[int, socket.socket]]:
    """The folder's lock and the public socket: new ones, or those that were left to us.

    Raises `Conflict` and `ConfigInvalid` as `claim` and `listen` do.
    """
    folder, taken = DataFolder(options.data), options.taken
    if taken is None:
        with claim(folder) as lock, listen(options.server) as listener:
            if options.lost:
                _reap()
            yield lock, listener
    else:
        with (
            keep(folder, taken.lock_fd) as lock,
            socket.socket(fileno=taken.listener_fd) as listener,
        ):
            yield lock, listener


def _reap() -> None:
    """See off the children of the program that this process was before; they have ended."""
    with contextlib.suppress(ChildProcessError):
        while os.waitpid(-1, os.WNOHANG) != (0, 0):
            pass


def become(python: str, options: Options, port: int, handover: Handover) -> None:
    """Replace this program by the one beside another interpreter; raises `OSError` where it can't.

    It is told to serve what `options` say on this very port, in case that it can't take over.
    """
    memory = write(handover)
    argv = [python, "-m", "tiffin.cli.main", "serve", "--data", str(options.data)]
    argv += ["--host", options.server.host, "--port", str(port), "--handover", str(memory)]
    if options.config_path:
        argv += ["--config", options.config_path]
    signal.pthread_sigmask(signal.SIG_BLOCK, SIGNALS)
    try:
        with only_inheriting(handover.fds | {memory}):
            os.execv(python, argv)  # noqa: S606 - its owner chose it
    finally:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, SIGNALS)
        os.close(memory)
