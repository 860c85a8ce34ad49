"""Taking possession of a data folder and of the public port: one supervisor each, nothing stale."""

import contextlib
import errno
import fcntl
import os
import shutil
import signal
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec

from tiffin.config.schema import Server
from tiffin.errors import ConfigInvalid, Conflict
from tiffin.types.paths import OWN_FILES, DataFolder, sockets

BACKLOG = 2048

_LEFTOVER_S = 10.0


@contextmanager
def claim(folder: DataFolder) -> Iterator[int]:
    """Hold the folder for as long as the context lives; everything of its last holder is gone.

    Gives the lock's descriptor: whoever inherits it may `keep` the folder. Raises `Conflict` while
    another supervisor holds it, `ConfigInvalid` when it can't be used.
    """
    lock = _open_lock(folder)
    try:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as failure:
            holder = os.pread(lock, 32, 0).decode(errors="replace").strip() or "unknown"
            raise Conflict(
                f"another tiffin (pid {holder}) already serves the data folder {folder.root}; "
                "stop it, or choose another folder with TIFFIN__SERVER__DATA"
            ) from failure
        with contextlib.suppress(OSError):  # a full disk: who holds it is only told
            os.ftruncate(lock, 0)
            os.pwrite(lock, f"{os.getpid()}\n".encode(), 0)
        _end_leftovers(folder.root)
        _make_folders(folder)
        _link_sockets(folder.run)
    except BaseException:
        os.close(lock)
        raise
    with keep(folder, lock):
        yield lock


@contextmanager
def keep(folder: DataFolder, lock: int) -> Iterator[int]:
    """Go on holding a folder that this process had claimed before it became this program."""
    try:
        yield lock
        _empty(folder.run)
        _unlink_sockets(folder.run)
    finally:
        os.close(lock)


def listen(server: Server) -> socket.socket:
    """The bound, listening public socket; port 0 takes a free one. Raises `ConfigInvalid`.

    That the port for gRPC can be had is looked at too; its library opens it by itself, later.
    """
    listener = _opened(server.host, server.port, "port")
    if server.grpc_port:
        try:
            _opened(server.host, server.grpc_port, "grpc_port").close()
        except ConfigInvalid:
            listener.close()
            raise
    return listener


def _opened(host: str, port: int, setting: str) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    variable = f"TIFFIN__SERVER__{setting.upper()}"
    where = f"server.{setting}"
    try:
        return socket.create_server((host, port), family=family, backlog=BACKLOG)
    except OSError as failure:
        if failure.errno == errno.EADDRINUSE:
            mend = f"another program listens there; choose a port with {variable}"
            raise ConfigInvalid(f"port {port} is taken: {mend}", where=where) from failure
        if failure.errno == errno.EACCES:
            mend = f"ports below 1024 need a privilege; choose one above with {variable}"
            raise ConfigInvalid(mend, where=where) from failure
        raise ConfigInvalid(
            f"{host!r} is no address of this machine: {failure}", where="server.host"
        ) from failure


def url(listener: socket.socket, scheme: str = "http") -> str:
    """Where a client on this machine reaches the socket."""
    host, port = listener.getsockname()[:2]
    host = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)  # noqa: S104 - read, not bound
    return f"{scheme}://[{host}]:{port}" if ":" in host else f"{scheme}://{host}:{port}"


def _open_lock(folder: DataFolder) -> int:
    try:
        folder.root.mkdir(mode=0o700, parents=True, exist_ok=True)
        return os.open(folder.supervisor_lock, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError as failure:
        raise _unusable(folder, failure) from failure


def _unusable(folder: DataFolder, failure: OSError) -> ConfigInvalid:
    reason = f"the data folder {folder.root} can't be used: {failure.strerror}"
    return ConfigInvalid(reason, where="server.data")


def _make_folders(folder: DataFolder) -> None:
    try:
        for path in (folder.root, folder.run, folder.logs, folder.journal, folder.metrics):
            path.mkdir(mode=0o700, exist_ok=True)
            path.chmod(0o700)
        _empty(folder.run)
    except OSError as failure:
        raise _unusable(folder, failure) from failure


def _link_sockets(run: Path) -> None:
    """Make the short way to a run folder whose path is too long for sockets; it must be ours."""
    link = sockets(run)
    if link == run:
        return
    _unlink_sockets(run)
    try:
        link.symlink_to(run)
    except OSError as failure:
        raise ConfigInvalid(
            f"its path is too long for sockets, and {link} can't be made: {failure.strerror}",
            where="server.data",
        ) from failure


def _unlink_sockets(run: Path) -> None:
    link = sockets(run)
    if link != run:
        with contextlib.suppress(OSError):
            link.unlink()


def _empty(run: Path) -> None:
    for path in run.iterdir():
        if not path.is_dir():
            path.unlink(missing_ok=True)
        elif path.suffix == OWN_FILES:
            shutil.rmtree(path, ignore_errors=True)


class _Argument(msgspec.Struct):
    """The part of a child's boot value that says whose it is."""

    data: str
    parent_pid: int


def _end_leftovers(root: Path) -> None:
    """End children of a supervisor that died, and wait until they let go of files and memory.

    They die with their parent by themselves; a big one takes a moment, one that was just being
    started may not know yet.
    """
    deadline = time.monotonic() + _LEFTOVER_S
    while leftovers := _leftovers(root):
        if time.monotonic() > deadline:
            raise Conflict(f"processes of an earlier run don't end: {leftovers}")
        for pid in leftovers:
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                continue
        time.sleep(0.01)


def _leftovers(root: Path) -> list[int]:
    found = []
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit() or int(entry.name) == os.getpid():
            continue
        try:
            argv = (entry / "cmdline").read_bytes().split(b"\0")
        except OSError:
            continue
        if len(argv) > 3 and argv[1] == b"-m" and argv[2].startswith(b"tiffin.app."):
            try:
                argument = msgspec.json.decode(argv[3], type=_Argument)
            except msgspec.DecodeError:
                continue
            if argument.data == str(root):
                found.append(int(entry.name))
    return found
