"""What can be seen of the replicas of this machine, from the files that they and others write."""

from dataclasses import dataclass
from pathlib import Path

import msgspec

from tiffin.control.fleet.status import State, Status
from tiffin.types.json_file import read_json


@dataclass(frozen=True, slots=True)
class Observed:
    """Replicas by name: those that are ready, and those that have been since the server started."""

    ready: frozenset[str] = frozenset()
    served: frozenset[str] = frozenset()


class _ReplicaState(msgspec.Struct):
    phase: str = ""
    pid: int = 0


def observed(status: Status, run: Path) -> Observed:
    """What the supervisor says, and what replicas say of themselves that it doesn't know yet."""
    ready, served = set(), set()
    for process in status.processes:
        if process.ready_ms:
            served.add(process.name)
        if process.state is State.READY:
            ready.add(process.name)
        elif process.state is State.STARTING and process.role == "replica" and process.pid:
            told = _told(run / f"{process.name}.state.json")
            if told.phase == "ready" and told.pid == process.pid:
                ready.add(process.name)
    return Observed(frozenset(ready), frozenset(ready | served))


def _told(path: Path) -> _ReplicaState:
    try:
        return read_json(path, _ReplicaState)
    except (OSError, msgspec.MsgspecError):
        return _ReplicaState()
