"""What runs on this machine, as the supervisor sees it: the value in `run/status.json`."""

from enum import Enum

import msgspec


class State(Enum):
    """Where a kept process is: `waiting` is between two starts, `failed` needs a mend.

    No process, but a replica that may come: `asleep` until a request does, `queued` until there is
    memory for it, `refused` because there can't be.
    """

    STARTING = "starting"
    READY = "ready"
    WAITING = "waiting"
    FAILED = "failed"
    STOPPING = "stopping"
    ENDED = "ended"
    ASLEEP = "asleep"
    QUEUED = "queued"
    REFUSED = "refused"


class ProcessStatus(msgspec.Struct, frozen=True, kw_only=True):
    """One kept process. `restarts` counts starts after the first; `reason` is why it last ended.

    `said` is the last that it printed, which may explain more and may hold anything: it is for
    operators alone. `pid` is 0 while none runs, `since_ns` (UTC) is when `state` began, `ready_ms`
    is how long the last start took to ready, of which `start_ms`, `load_ms` and `warm_ms` are
    parts; `first_ms` is how long the request that woke it waited for the first of an answer. About
    `cold_ms` is what the next start will take (0: unknown). A replica needs `need_bytes` of memory;
    `memory_bytes` are the most that were measured.
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
    generation: str = ""
    start_ms: int = 0
    load_ms: int = 0
    warm_ms: int = 0
    first_ms: int = 0
    cold_ms: int = 0
    need_bytes: int = 0
    memory_bytes: int = 0

    @property
    def explained(self) -> str:
        """The reason with what it said, for operators."""
        return f"{self.reason}: {self.said}" if self.said else self.reason


class Stage(Enum):
    """How far an upgrade has come. `failed` leaves what served before serving."""

    CHECKING = "checking"
    TAKING_OVER = "taking-over"
    CONTROL = "control"
    GATEWAY = "gateway"
    DONE = "done"
    FAILED = "failed"


class UpgradeStatus(msgspec.Struct, frozen=True, kw_only=True):
    """The last upgrade that somebody asked for by this `id`: from which version to which one, run
    by the interpreter `python`; `reason` is why it failed. `at_ns` (UTC) is when `stage` began."""

    id: str
    stage: Stage
    python: str
    version_before: str = ""
    version: str = ""
    reason: str = ""
    at_ns: int = 0


class Status(msgspec.Struct, frozen=True, kw_only=True):
    """All of them, and where the server answers. Replicas may take `memory_budget_bytes`; `warm`
    are processes that wait for a model. `version` is Tiffin's that runs."""

    pid: int
    address: str
    started_ns: int
    processes: tuple[ProcessStatus, ...] = ()
    memory_budget_bytes: int = 0
    warm: int = 0
    version: str = ""
    upgrade: UpgradeStatus | None = None
