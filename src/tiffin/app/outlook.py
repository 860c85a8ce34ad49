"""What the supervisor says of replicas, as the gateway asks it: read again only when it changed."""

from collections.abc import Iterator
from pathlib import Path

import msgspec

from tiffin.app.polled_file import PolledFile
from tiffin.gateway.vigil import Foresight
from tiffin.types.paths import replica_of
from tiffin.types.snapshot import Target

ENDED = ("failed", "waiting", "refused")
# One that waits for its next start isn't lost to whoever waits for it anyway.
LOST = ("failed", "refused")


class _Process(msgspec.Struct):
    """The part of a process's status that is about what may be expected of it."""

    name: str
    state: str
    reason: str = ""
    since_ns: int = 0
    ready_ms: int = 0
    cold_ms: int = 0


class _Told(msgspec.Struct):
    processes: tuple[_Process, ...] = ()


class StatusOutlook:
    """Satisfies `gateway.pool.Outlook` from `status.json`."""

    def __init__(self, path: Path) -> None:
        self._file = PolledFile(path, _Told)
        self._processes: dict[str, _Process] = {}

    def explain(self, target: Target) -> str:
        """Why its first replica that ended did; of a model on demand, only if none is tried."""
        ended = LOST if target.on_demand else ENDED
        return next((one.reason for one in self._of(target) if one.state in ended), "")

    def foresee(self, target: Target) -> Foresight:
        """The slowest known start of its replicas, and the last failure of any."""
        found = list(self._of(target))
        load_ms = max((one.cold_ms or one.ready_ms for one in found), default=0)
        failed = [one for one in found if one.state in ENDED and one.reason]
        last = max(failed, key=lambda one: one.since_ns, default=None)
        if last is None:
            return Foresight(load_ms / 1000)
        return Foresight(load_ms / 1000, last.reason, last.since_ns)

    def is_ready(self, socket: str) -> bool:
        """Whether its process was ready when the supervisor last looked."""
        self._look()
        known = self._processes.get(replica_of(socket))
        return known is not None and known.state == "ready"

    def _of(self, target: Target) -> Iterator[_Process]:
        self._look()
        for socket in target.sockets:
            if (known := self._processes.get(replica_of(socket))) is not None:
                yield known

    def _look(self) -> None:
        told = self._file.changed()
        if told is not None:
            self._processes = {one.name: one for one in told.processes}
