"""Starting and ending processes of this machine.

Contract:
- A child's stdin is empty; its stdout and stderr come line by line to `output`, without newline,
  and are always read, so that a child never waits for its reader. A line that is too long is cut
  and its rest dropped.
- A child gets no signal of the terminal, and it doesn't outlive this process if it calls
  `tiffin.app.boot.enter`.
- `wait` may be called by many and again; cancelling it does nothing to the child. When it
  returns, all that the child said was handed to `output`.
- A child outlives its starter's program where another one takes over the process: what `left` says
  of it there, `adopt` takes up here. Nothing that it said meanwhile is lost.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

import msgspec

Output = Callable[[bytes], None]


@dataclass(frozen=True, slots=True)
class Pulse:
    """The kernel's view of a process: its state letter and the CPU seconds that it has used."""

    state: str
    cpu_s: float


class Left(msgspec.Struct, frozen=True, kw_only=True):
    """What this process knows of a child, for the program that it is about to become.

    `output_fd` is where the child's output comes from, -1 where that is over; `rest` is what came
    of a line that isn't complete, `skipping` whether what follows of it is dropped.
    """

    pid: int
    output_fd: int
    rest: bytes = b""
    skipping: bool = False


class Child(Protocol):
    """A process that was started here."""

    @property
    def pid(self) -> int:
        """Its process id."""
        ...

    def pulse(self) -> Pulse | None:
        """What the kernel says now; nothing once it ended."""
        ...

    def signal(self, number: int) -> None:
        """Send a signal; no effect once it ended."""
        ...

    def left(self) -> Left | None:
        """What `Launcher.adopt` needs to know of it; nothing once it ended."""
        ...

    async def wait(self) -> int:
        """Its exit code when it has ended; negative: the signal that ended it."""
        ...

    async def stop(self, grace_s: float) -> int:
        """Ask it to end, kill it `grace_s` seconds later, wait; returns the exit code."""
        ...


class Launcher(Protocol):
    """A way to start processes."""

    def start(self, command: Sequence[str], output: Output, pass_fds: Sequence[int] = ()) -> Child:
        """Start a child that inherits only `pass_fds`; raises `Unavailable` when it can't."""
        ...

    def adopt(self, left: Left, output: Output) -> Child:
        """The child that this process had before it became this program."""
        ...
