"""`tiffin upgrade`: has the running server become what is installed here, and shows how it goes."""

import time
from collections.abc import Callable
from pathlib import Path

from tiffin.app.upgrade import Request, ask, withdraw
from tiffin.cli import locate
from tiffin.cli.connect import Refused, Unreachable
from tiffin.control.fleet.status import Stage, Status, UpgradeStatus
from tiffin.errors import Conflict
from tiffin.types.ids import new_id
from tiffin.types.paths import DataFolder

NOTICED_WITHIN_S = 10.0
LOOK_S = 0.1

_SAID = {
    Stage.CHECKING: "checking {python}",
    Stage.TAKING_OVER: "Tiffin {version} takes over from {version_before}",
    Stage.CONTROL: "control starts anew",
    Stage.GATEWAY: "a new gateway starts beside the old one",
    Stage.DONE: "done: the server runs Tiffin {version}; connections of the old gateway finish",
}


def upgrade_here(python: str, data: Path | None, say: Callable[[str], None] = print) -> None:
    """Return when it is done; raises `Conflict` where it is refused or fails, `Unreachable`."""
    here = locate.folder(locate.configured(None, data).config, data)
    status = locate.running(here)
    if status is None:
        raise Unreachable(f"nothing serves the data folder {here.root}")
    if not status.version:
        raise Conflict("the running server is too old for this; stop it and start the new one")
    request = Request(id=new_id("up"), python=python)
    try:
        ask(here.run, request)
    except OSError as cause:
        raise Refused(0, f"{here.run} can't be written: {cause.strerror}") from cause
    done = _watched(here, request, say)
    if done.stage is Stage.FAILED:
        raise Conflict(f"not upgraded, what served goes on: {done.reason}")


def _watched(here: DataFolder, request: Request, say: Callable[[str], None]) -> UpgradeStatus:
    deadline = time.monotonic() + NOTICED_WITHIN_S
    told: Stage | None = None
    while True:
        seen = _upgrade_of(locate.running(here), request, here)
        if seen is None:
            if told is None and time.monotonic() > deadline:
                withdraw(here.run, request)
                raise Unreachable("the server doesn't react; its log may say why")
        elif seen.stage is not told:
            told = seen.stage
            if told in _SAID:
                say(
                    _SAID[told].format(
                        python=seen.python,
                        version=seen.version,
                        version_before=seen.version_before,
                    )
                )
            if told in (Stage.DONE, Stage.FAILED):
                return seen
        time.sleep(LOOK_S)


def _upgrade_of(status: Status | None, request: Request, here: DataFolder) -> UpgradeStatus | None:
    if status is None:
        raise Unreachable(f"the server of {here.root} ended; its log may say why")
    upgrade = status.upgrade
    return upgrade if upgrade is not None and upgrade.id == request.id else None
