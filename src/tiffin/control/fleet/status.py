"""What runs on this machine, as the supervisor sees it: the value in `run/status.json`."""

from enum import Enum

import msgspec


class State(Enum):
    """Where a kept process is: `waiting` is between two starts, `failed` needs a mend."""

    STARTING = "starting"
    READY = "ready"
    WAITING = "waiting"
    FAILED = "failed"
    STOPPING = "stopping"
    ENDED = "ended"


class ProcessStatus(msgspec.Struct, frozen=True, kw_only=True):
    """One kept process. `restarts` counts starts after the first; `reason` is why it last ended.

    `said` is the last that it printed, which may explain more and may hold anything: it is for
    operators alone. `pid` is 0 while none runs, `since_ns` (UTC) is when `state` began, `ready_ms`
    is how long the last start took to ready.
    """

    name: str
    role: str
    model: str = ""
    state: State = State.STARTING
    pid: int = 0
    restarts: int = 0
    reason: str = ""
    said: str = ""
    since_ns: int = 0
    ready_ms: int = 0

    @property
    def explained(self) -> str:
        """The reason with what it said, for operators."""
        return f"{self.reason}: {self.said}" if self.said else self.reason


class Status(msgspec.Struct, frozen=True, kw_only=True):
    """All of them, and where the server answers."""

    pid: int
    address: str
    started_ns: int
    processes: tuple[ProcessStatus, ...] = ()
