"""Children of this process on Linux: pipes read by the event loop, ends seen through pidfds."""

import asyncio
import contextlib
import os
import signal
import subprocess
from collections.abc import Sequence
from pathlib import Path

from tiffin.errors import Unavailable
from tiffin.ports.launcher import Child, Left, Output, Pulse

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

    def adopt(self, left: Left, output: Output) -> Child:
        """See `Launcher.adopt`."""
        if left.output_fd >= 0:
            os.set_inheritable(left.output_fd, False)
        return _Process(_Inherited(left.pid), _Lines(left.output_fd, output, left))


class _Inherited:
    """A child that another program in this process started. Its number is its own until `poll`."""

    def __init__(self, pid: int) -> None:
        self.pid = pid
        self.returncode: int | None = None

    def poll(self) -> int | None:
        if self.returncode is None:
            try:
                pid, status = os.waitpid(self.pid, os.WNOHANG)
            except ChildProcessError:  # whatever it is, it is no child of ours
                self.returncode = -signal.SIGKILL
                return self.returncode
            if pid:
                self.returncode = os.waitstatus_to_exitcode(status)
        return self.returncode

    def send_signal(self, number: int, /) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.kill(self.pid, number)


class _Process:
    def __init__(self, process: "subprocess.Popen[bytes] | _Inherited", lines: "_Lines") -> None:
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
        return int(self._process.returncode or 0)

    def left(self) -> Left | None:
        return None if self._process.returncode is not None else self._lines.left(self.pid)

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

    def __init__(self, fd: int, output: Output, left: Left | None = None) -> None:
        self._fd = fd
        self._output = output
        self._rest = left.rest if left else b""
        self._skipping = left.skipping if left else False
        self._open = fd >= 0
        if self._open:
            os.set_blocking(fd, False)
            asyncio.get_running_loop().add_reader(fd, self._read)

    def left(self, pid: int) -> Left:
        """What is to be known of the output of this child."""
        fd = self._fd if self._open else -1
        return Left(pid=pid, output_fd=fd, rest=self._rest, skipping=self._skipping)

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
