"""Children of this process on Linux: pipes read by the event loop, ends seen through pidfds."""

import asyncio
import contextlib
import os
import signal
import subprocess
from collections.abc import Sequence
from pathlib import Path

from tiffin.errors import Unavailable
from tiffin.ports.launcher import Child, Output, Pulse

MAX_LINE = 65_536

_PIPE_BYTES = 1_048_576
_LAST_READS = 16
_CLOCK_TICK_S = 1.0 / os.sysconf("SC_CLK_TCK")


class ProcessLauncher:
    """Starts children; use it on the thread of the running event loop, which must be the main one.

    The kernel ties a child's death signal to the thread that forked it, not to the process.
    """

    def start(self, command: Sequence[str], output: Output, pass_fds: Sequence[int] = ()) -> Child:
        """See `Launcher.start`."""
        reading, writing = os.pipe()
        try:
            process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=writing,
                stderr=writing,
                pass_fds=pass_fds,
                start_new_session=True,
            )
        except OSError as failure:
            os.close(reading)
            raise Unavailable(f"{command[0]} can't be started: {failure}") from failure
        finally:
            os.close(writing)
        return _Process(process, _Lines(reading, output))


class _Process:
    def __init__(self, process: "subprocess.Popen[bytes]", lines: "_Lines") -> None:
        self._process = process
        self._lines = lines
        self._ended = asyncio.Event()
        self._pidfd = os.pidfd_open(process.pid)
        asyncio.get_running_loop().add_reader(self._pidfd, self._reap)

    @property
    def pid(self) -> int:
        return self._process.pid

    def pulse(self) -> Pulse | None:
        if self._process.returncode is not None:
            return None
        try:
            stat = Path(f"/proc/{self.pid}/stat").read_text()
        except OSError:
            return None
        # The command's name, in brackets, may itself hold brackets and blanks.
        fields = stat[stat.rindex(")") + 2 :].split()
        return Pulse(state=fields[0], cpu_s=(int(fields[11]) + int(fields[12])) * _CLOCK_TICK_S)

    def signal(self, number: int) -> None:
        if self._process.returncode is None:
            self._process.send_signal(number)

    async def wait(self) -> int:
        await self._ended.wait()
        return int(self._process.returncode)

    async def stop(self, grace_s: float) -> int:
        self.signal(signal.SIGTERM)
        # A stopped process can't act on TERM before it goes on.
        self.signal(signal.SIGCONT)
        try:
            async with asyncio.timeout(grace_s):
                return await self.wait()
        except TimeoutError:
            self.signal(signal.SIGKILL)
            return await self.wait()

    def _reap(self) -> None:
        # Until it is reaped its number can't belong to another group.
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.pid, signal.SIGKILL)
        if self._process.poll() is None:
            return
        asyncio.get_running_loop().remove_reader(self._pidfd)
        os.close(self._pidfd)
        self._lines.close()
        self._ended.set()


class _Lines:
    """Cuts what comes out of a pipe into lines and hands them on."""

    def __init__(self, fd: int, output: Output) -> None:
        self._fd = fd
        self._output = output
        self._rest = b""
        self._skipping = False
        self._open = True
        os.set_blocking(fd, False)
        asyncio.get_running_loop().add_reader(fd, self._read)

    def close(self) -> None:
        """Hand on what is left, then let go of the pipe, even if a grandchild still holds it."""
        for _ in range(_LAST_READS):
            if not self._open or not self._read():
                break
        self._end()

    def _read(self) -> bool:
        """True while there was something."""
        try:
            data = os.read(self._fd, _PIPE_BYTES)
        except BlockingIOError:
            return False
        if not data:
            self._end()
            return False
        *whole, rest = (self._rest + data).split(b"\n")
        for line in whole:
            self._line(line)
        self._rest = rest
        if len(rest) > MAX_LINE:
            self._line(rest)
            self._rest, self._skipping = b"", True
        return True

    def _line(self, line: bytes) -> None:
        if self._skipping:
            self._skipping = False
        elif line:
            self._output(line[:MAX_LINE])

    def _end(self) -> None:
        if not self._open:
            return
        self._open = False
        asyncio.get_running_loop().remove_reader(self._fd)
        os.close(self._fd)
        self._line(self._rest)
        self._rest = b""
