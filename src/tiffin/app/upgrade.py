"""Upgrades of the running server: who asks for one, whether it may be tried, how far it has come.

Whoever may write in the run folder, its owner alone, asks by a file there, which stays until the
upgrade is over; so there is one at a time.
"""

import asyncio
import logging
import os
import signal
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec

from tiffin.control.fleet.status import Stage, UpgradeStatus
from tiffin.errors import Conflict, Unavailable
from tiffin.ports.launcher import Launcher
from tiffin.types.json_file import read_json

CHECK_WITHIN_S = 60.0
REQUEST = "upgrade.json"

_LOG = logging.getLogger("tiffin.supervisor")
_LAST_WORDS = 3


class Request(msgspec.Struct, frozen=True, kw_only=True):
    """Become what is installed beside this interpreter (an absolute path)."""

    id: str
    python: str


class _Tried(msgspec.Struct):
    """What `tiffin.app.trial` says there."""

    version: str


def ask(run: Path, request: Request) -> None:
    """Ask the server of a run folder; raises `Conflict` while it is asked already, `OSError`."""
    fresh = run / f"{request.id}.tmp"
    fd = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    try:
        with os.fdopen(fd, "wb") as file:
            file.write(msgspec.json.encode(request))
        (run / REQUEST).hardlink_to(fresh)
    except FileExistsError as cause:
        raise Conflict(
            "another upgrade is under way; `tiffin status` says how far it is"
        ) from cause
    finally:
        fresh.unlink(missing_ok=True)


def withdraw(run: Path, request: Request) -> None:
    """Don't ask any more."""
    if _read(run) == request:
        (run / REQUEST).unlink(missing_ok=True)


class Upgrades:
    """The upgrade that a supervisor is in, or was in last."""

    def __init__(self, run: Path, under_way: UpgradeStatus | None = None) -> None:
        self._run = run
        self.status = under_way

    @property
    def busy(self) -> bool:
        """Whether one is under way."""
        return self.status is not None and self.status.stage not in (Stage.DONE, Stage.FAILED)

    def asked(self) -> Request | None:
        """What somebody asks for now, where nothing is under way; it is under way then."""
        if self.busy or not (self._run / REQUEST).exists():
            return None
        request = _read(self._run)
        if request is None:
            (self._run / REQUEST).unlink(missing_ok=True)
            return None
        self.status = UpgradeStatus(id=request.id, stage=Stage.CHECKING, python=request.python)
        self.at(Stage.CHECKING)
        return request

    def at(self, stage: Stage, **more: Any) -> UpgradeStatus:
        """It has come to this stage."""
        if self.status is None:
            raise ValueError("nothing is under way")
        now_ns = time.time_ns()
        self.status = status = msgspec.structs.replace(
            self.status, stage=stage, at_ns=now_ns, **more
        )
        fields = {"stage": stage.value, "python": status.python, "version": status.version}
        if stage is Stage.FAILED:
            _LOG.error("upgrade failed", extra={"fields": {**fields, "reason": status.reason}})
        else:
            _LOG.info("upgrade", extra={"fields": fields})
        if not self.busy:
            (self._run / REQUEST).unlink(missing_ok=True)
        return status


async def checked(launcher: Launcher, python: str, handover_fd: int, configs: Sequence[str]) -> str:
    """The version beside an interpreter, which could take over, with these configurations (empty:
    as it finds one); raises `Conflict` with the reason where it couldn't."""
    trial = [python, "-m", "tiffin.app.trial", str(handover_fd)]
    lines = await _ran(launcher, trial, (handover_fd,))
    try:
        version = msgspec.json.decode(lines[-1] if lines else b"", type=_Tried).version
    except msgspec.MsgspecError as cause:
        raise Conflict(f"{python} says {lines[-3:]} instead of its version") from cause
    for config in configs:
        check = [python, "-m", "tiffin.cli.main", "check", *filter(None, [config])]
        await _ran(launcher, check)
    return version


async def _ran(launcher: Launcher, command: list[str], fds: tuple[int, ...] = ()) -> list[bytes]:
    lines: list[bytes] = []
    try:
        child = launcher.start(command, lines.append, fds)
    except Unavailable as failure:
        raise Conflict(failure.message) from failure
    try:
        async with asyncio.timeout(CHECK_WITHIN_S):
            code = await child.wait()
    except TimeoutError as cause:
        raise Conflict(f"{' '.join(command[:4])} took longer than {CHECK_WITHIN_S:g} s") from cause
    finally:
        child.signal(signal.SIGKILL)
    if code != 0:
        words = b" ".join(lines[-_LAST_WORDS:]).decode(errors="replace")[-500:]
        raise Conflict(f"`{' '.join(command[:4])}` failed with exit code {code}: {words}")
    return lines


def _read(run: Path) -> Request | None:
    path = run / REQUEST
    try:
        return read_json(path, Request)
    except (OSError, msgspec.MsgspecError):
        return None
