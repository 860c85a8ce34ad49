"""What a supervisor tells the program that takes its place in the same process.

A process that becomes another program keeps its number, its children and the descriptors that it
chooses to keep: the public socket, the lock of the data folder, the pipes of its children's output.
This is the rest: what they are.
"""

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path

import msgspec

from tiffin.app.keeper import Kept
from tiffin.control.fleet.devices import Promise
from tiffin.control.fleet.status import UpgradeStatus
from tiffin.errors import Conflict
from tiffin.types.snapshot import Deployment

FORMAT = 1
"""Goes up when a program that knows the format before would misread this one."""

MAX_BYTES = 64 << 20
OPEN = Path("/proc/self/fd")


class Replica(msgspec.Struct, frozen=True, kw_only=True):
    """One replica; `leaving` says that it only finishes what it has begun."""

    deployment: Deployment
    kept: Kept
    leaving: bool = False


class Handover(msgspec.Struct, frozen=True, kw_only=True):
    """Everything that goes on. The first `gateways_serving` of `gateways` take connections, the
    others finish; `gateways_made` counts all that there ever were."""

    format: int = FORMAT
    data: str
    listener_fd: int
    lock_fd: int
    started_ns: int
    upgrade: UpgradeStatus
    control: Kept
    gateways: tuple[Kept, ...]
    gateways_made: int = 1
    gateways_serving: int = 1
    replicas: tuple[Replica, ...] = ()
    promises: dict[str, Promise] = {}

    @property
    def fds(self) -> frozenset[int]:
        """The descriptors that go along."""
        everyone = (self.control, *self.gateways, *(one.kept for one in self.replicas))
        pipes = {kept.left.output_fd for kept in everyone if kept.left is not None}
        return frozenset({self.listener_fd, self.lock_fd, *pipes} - {-1})


class _Head(msgspec.Struct):
    format: int = 0


def encode(handover: Handover) -> bytes:
    """As bytes that `decode` reads, in this version or another of the same format."""
    return msgspec.json.encode(handover)


def decode(content: bytes) -> Handover:
    """Raises `Conflict` where this program can't take over from the one that wrote it."""
    try:
        head = msgspec.json.decode(content, type=_Head)
        if head.format != FORMAT:
            raise Conflict(f"its handover has format {head.format}, this version reads {FORMAT}")
        return msgspec.json.decode(content, type=Handover)
    except msgspec.MsgspecError as cause:
        raise Conflict(f"its handover can't be read: {cause}") from cause


def write(handover: Handover) -> int:
    """A descriptor in memory that holds it; whoever inherits it may `read` it. Raises `OSError`."""
    fd = os.memfd_create("tiffin-handover", os.MFD_CLOEXEC)
    try:
        with os.fdopen(os.dup(fd), "wb") as file:
            file.write(encode(handover))
    except OSError:
        os.close(fd)
        raise
    return fd


def read(fd: int) -> Handover:
    """What `write` wrote; raises `Conflict`."""
    try:
        return decode(os.pread(fd, MAX_BYTES, 0))
    except OSError as cause:
        raise Conflict(f"its handover can't be read: {cause.strerror}") from cause


def take(fd: int) -> Handover:
    """Take over: its descriptors are this program's from now on; raises `Conflict`, and then none
    of them is open any more: whoever else has them must be ended."""
    try:
        handover = read(fd)
        for kept in handover.fds:
            os.set_inheritable(kept, False)
    except (Conflict, OSError) as cause:
        for left in _above_standard():
            with contextlib.suppress(OSError):
                os.close(left)
        raise Conflict(f"what runs can't be taken over: {cause}") from cause
    os.close(fd)
    return handover


@contextlib.contextmanager
def only_inheriting(fds: frozenset[int]) -> Iterator[None]:
    """Have exactly these go along to another program, beside the standard ones, while it lasts."""
    for fd in _above_standard():
        with contextlib.suppress(OSError):
            os.set_inheritable(fd, fd in fds)
    try:
        yield
    finally:
        for fd in fds:
            os.set_inheritable(fd, False)


def _above_standard() -> list[int]:
    return [fd for fd in (int(entry.name) for entry in OPEN.iterdir()) if fd > 2]
