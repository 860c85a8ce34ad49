"""Started replica processes that wait for a model, and a launcher that uses them."""

import contextlib
import fcntl
import os
import signal
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import msgspec

from tiffin.app.adapters import imports_of
from tiffin.app.boot import Boot, command
from tiffin.errors import Unavailable
from tiffin.ports.launcher import Child, Launcher, Left, Output
from tiffin.types.snapshot import Deployment

AGAIN_S = 30.0
"""How long after one ended by itself the next is started."""

PIPE_BYTES = 1 << 20


def wanted_size(setting: int, deployments: Iterable[Deployment]) -> int:
    """How many should wait; -1 leaves it to whether a model is loaded on demand."""
    if setting >= 0:
        return setting
    return int(any(one.on_demand for one in deployments))


class WarmPool:
    """Keeps processes waiting; `boot` makes the boot value of one that reads from a descriptor."""

    def __init__(
        self, launcher: Launcher, boot: Callable[[int, tuple[str, ...]], Boot], output: Output
    ) -> None:
        self._launcher = launcher
        self._boot = boot
        self._output = output
        self._waiting: list[_Waiting] = []
        self._not_before = 0.0

    def __len__(self) -> int:
        return len(self._waiting)

    def keep(self, size: int, deployments: Iterable[Deployment]) -> None:
        """Have so many wait for one of these; starts or ends at most one."""
        self._drop_dead()
        if len(self._waiting) > size:
            self._waiting.pop().end()
        elif len(self._waiting) < size and time.monotonic() >= self._not_before:
            self._start(imports_of(deployments))

    def take(self, boot: Boot, output: Output) -> Child | None:
        """A process that becomes what `boot` says, if one waits; its lines go to `output`."""
        self._drop_dead()
        given = msgspec.json.encode(boot) + b"\n"
        if len(given) > PIPE_BYTES:
            return None
        while self._waiting:
            waiting = self._waiting.pop(0)
            if waiting.give(given):
                waiting.relay.output = output
                return waiting.child
        return None

    async def close(self) -> None:
        """End those that wait."""
        gone, self._waiting = self._waiting, []
        for waiting in gone:
            waiting.end()
        for waiting in gone:
            await waiting.child.wait()

    def _start(self, imports: tuple[str, ...]) -> None:
        reading, writing = os.pipe()
        relay = _Relay(self._output)
        try:
            with contextlib.suppress(OSError):
                fcntl.fcntl(writing, fcntl.F_SETPIPE_SZ, PIPE_BYTES)
            os.set_blocking(writing, False)
            child = self._launcher.start(command(self._boot(reading, imports)), relay, (reading,))
        except Unavailable:
            os.close(writing)
            self._not_before = time.monotonic() + AGAIN_S
            return
        finally:
            os.close(reading)
        self._waiting.append(_Waiting(child, relay, writing))

    def _drop_dead(self) -> None:
        for waiting in [one for one in self._waiting if one.child.pulse() is None]:
            self._waiting.remove(waiting)
            waiting.end()
            self._not_before = time.monotonic() + AGAIN_S


class WarmLauncher:
    """Satisfies `ports.launcher.Launcher`: a replica gets a waiting process where there is one."""

    def __init__(self, launcher: Launcher) -> None:
        self._launcher = launcher
        self.pool: WarmPool | None = None

    def start(self, command: Sequence[str], output: Output, pass_fds: Sequence[int] = ()) -> Child:
        """See `Launcher.start`."""
        if self.pool is not None and list(command[1:3]) == ["-m", "tiffin.app.replica"]:
            boot = msgspec.json.decode(command[3], type=Boot)
            # Which devices a process may see is settled before it is started.
            if boot.deployment is not None and {"cpu"}.issuperset(boot.deployment.devices):
                child = self.pool.take(boot, output)
                if child is not None:
                    return child
        return self._launcher.start(command, output, pass_fds)

    def adopt(self, left: Left, output: Output) -> Child:
        """See `Launcher.adopt`."""
        return self._launcher.adopt(left, output)


@dataclass(slots=True)
class _Relay:
    output: Output

    def __call__(self, line: bytes) -> None:
        self.output(line)


@dataclass(slots=True)
class _Waiting:
    child: Child
    relay: _Relay
    pipe: int

    def give(self, given: bytes) -> bool:
        """Whether it took what it is to become; one that didn't is of no use any more."""
        try:
            taken = os.write(self.pipe, given) == len(given)
        except OSError:
            taken = False
        os.close(self.pipe)
        if not taken:
            self.child.signal(signal.SIGKILL)
        return taken

    def end(self) -> None:
        """Have it end."""
        os.close(self.pipe)
        self.child.signal(signal.SIGKILL)
