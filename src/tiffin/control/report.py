"""What an operator gets to know about the whole installation, as one value."""

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

import msgspec

from tiffin.control.chores import Chore
from tiffin.control.fetch import Download
from tiffin.control.fleet.status import ProcessStatus, State, Status, UpgradeStatus
from tiffin.control.machine import FILE
from tiffin.control.office import Office
from tiffin.control.rollout import READY
from tiffin.control.standing import faults
from tiffin.types.json_file import read_json
from tiffin.types.machine import Machine
from tiffin.types.paths import DataFolder, replica_of
from tiffin.types.snapshot import Plan, Snapshot, Target

T = TypeVar("T")

_BEST_FIRST = ("ready", "loading", "asleep", "queued", "refused", "failed")
_AWAY = {State.ASLEEP: "asleep", State.QUEUED: "queued", State.REFUSED: "refused"}


class ReplicaStatus(msgspec.Struct, frozen=True, kw_only=True):
    """One replica: `state` is `ready`, `loading`, `failed`, or why it isn't in memory: `asleep`
    (until a request comes), `queued` (others must end first), `refused` (there can't be room).

    Times are milliseconds of its last start: process, model, first inference; `first_ms` is how
    long the request that woke it waited for an answer's beginning, `cold_ms` what a start takes. It
    is counted with `need_bytes` of memory; `memory_bytes` are the most that were measured.
    """

    name: str
    state: str
    reason: str = ""
    start_ms: int = 0
    load_ms: int = 0
    warm_ms: int = 0
    first_ms: int = 0
    cold_ms: int = 0
    need_bytes: int = 0
    memory_bytes: int = 0


class ComingStatus(msgspec.Struct, frozen=True, kw_only=True):
    """What takes a model's place once it is ready: `state` is as a model's, `reason` says why."""

    revision: str
    state: str
    reason: str = ""
    replicas: list[ReplicaStatus] = []


class ModelStatus(msgspec.Struct, frozen=True, kw_only=True):
    """One model: `state` is as its best replica's, `fetching` or `unloaded`; `reason` says why.

    `done_bytes` of `total_bytes` of its file are here while it is fetched. It is as well as the
    best of its `replicas`, which `replica` names; times are that one's, in milliseconds. `coming`
    is what replaces them as soon as it can. `engine` is what runs it where there is a choice, and
    `engine_why` says why it is that one.
    """

    name: str
    kind: str
    state: str
    reason: str = ""
    revision: str = ""
    replica: str = ""
    done_bytes: int = 0
    total_bytes: int = 0
    load_ms: int = 0
    warm_ms: int = 0
    download_ms: int = 0
    replicas: list[ReplicaStatus] = []
    coming: ComingStatus | None = None
    engine: str = ""
    engine_why: str = ""


class RouteStatus(msgspec.Struct, frozen=True, kw_only=True):
    """One route and the models that it tries."""

    name: str
    models: list[str]


class JournalStatus(msgspec.Struct, frozen=True, kw_only=True):
    """By how many seconds entries are behind, and how many bytes of journals there are."""

    behind_s: float
    bytes: int


class Report(msgspec.Struct, frozen=True, kw_only=True):
    """Everything. `degraded` are reasons, empty while all is well.

    Of `memory_budget_bytes` for replicas, `memory_counted_bytes` are taken; `warm` processes wait
    for a model to load. `version` is Tiffin's that runs, `upgrade` the last that was asked for.
    """

    degraded: list[str]
    snapshot: int
    config_hash: str
    config_source: str
    published_ns: int
    models: list[ModelStatus]
    routes: list[RouteStatus]
    journal: JournalStatus
    processes: tuple[ProcessStatus, ...] = ()
    address: str = ""
    started_ns: int = 0
    machine: Machine | None = None
    memory_budget_bytes: int = 0
    memory_counted_bytes: int = 0
    warm: int = 0
    version: str = ""
    upgrade: UpgradeStatus | None = None


class _Spec(msgspec.Struct):
    engine: str = ""


class _ReplicaState(msgspec.Struct):
    phase: str = ""
    reason: str = ""
    load_ms: int = 0
    warm_ms: int = 0


def report(
    folder: DataFolder,
    office: Office,
    snapshot: Snapshot | None,
    downloads: Iterable[Download],
    chores: Iterable[Chore],
    journal: JournalStatus,
) -> Report:
    """Look at everything now."""
    status = _read(folder.run / "status.json", Status) or Status(pid=0, address="", started_ns=0)
    coming = {download.name: download for download in downloads}
    plans = list(snapshot.plans.values()) if snapshot else []
    look = _Look(folder.run, {process.name: process for process in status.processes})
    replacing = snapshot.coming if snapshot else {}
    models = [
        _model(look, plan.targets[0], replacing.get(plan.name), coming.get(plan.name))
        for plan in plans
        if _is_model(plan)
    ]
    models = [
        msgspec.structs.replace(
            one,
            download_ms=office.download_ms.get(one.name, 0),
            engine=_engine(snapshot, one.replica),
            engine_why=office.calibrations.why(office.config.models.get(one.name)),
        )
        for one in models
    ]
    degraded = [f"{chore.name}: {chore.fault}" for chore in chores if chore.fault]
    if office.fault:
        degraded.insert(0, office.fault)
    degraded += faults(folder)
    bad = ("failed", "refused")
    degraded += [f"model {m.name}: {m.reason}" for m in models if m.state in bad]
    degraded += [
        f"model {m.name}: the old one serves, as the new one failed: {m.coming.reason}"
        for m in models
        if m.coming and m.coming.state == "failed"
    ]
    return Report(
        degraded=degraded,
        snapshot=snapshot.number if snapshot else 0,
        config_hash=snapshot.config_hash if snapshot else "",
        config_source=office.loaded.source if office.loaded else "",
        published_ns=snapshot.published_ns if snapshot else 0,
        models=models,
        routes=[
            RouteStatus(name=plan.name, models=[target.model for target in plan.targets])
            for plan in plans
            if not _is_model(plan)
        ],
        journal=journal,
        processes=status.processes,
        address=status.address,
        started_ns=status.started_ns,
        machine=_read(folder.run / FILE, Machine),
        memory_budget_bytes=status.memory_budget_bytes,
        memory_counted_bytes=sum(one.need_bytes for one in status.processes if one.pid),
        warm=status.warm,
        version=status.version,
        upgrade=status.upgrade,
    )


def _engine(snapshot: Snapshot | None, replica: str) -> str:
    """What a replica's own section says, which while engines change isn't the configuration's."""
    for one in snapshot.deployments if snapshot else ():
        if one.name == replica:
            return msgspec.json.decode(one.spec, type=_Spec).engine
    return ""


def _is_model(plan: Plan) -> bool:
    return len(plan.targets) == 1 and plan.targets[0].model == plan.name


@dataclass(frozen=True, slots=True)
class _Look:
    """Where replicas say how they are, and what the supervisor says of their processes."""

    run: Path
    processes: dict[str, ProcessStatus]

    def replicas(self, target: Target) -> list[ReplicaStatus]:
        return [self._replica(replica_of(socket)) for socket in target.sockets]

    def _replica(self, name: str) -> ReplicaStatus:
        process = self.processes.get(name)
        told = _read(self.run / f"{name}.state.json", _ReplicaState) or _ReplicaState()
        if process is not None and process.state is State.FAILED:
            told = _ReplicaState(phase="failed", reason=told.reason or process.explained)
        elif process is not None and process.state in _AWAY:
            told = _ReplicaState(phase=_AWAY[process.state], reason=process.reason)
        seen = process or ProcessStatus(name=name, role="replica")
        return ReplicaStatus(
            name=name,
            state=told.phase if told.phase in _BEST_FIRST else "loading",
            reason=told.reason,
            start_ms=seen.start_ms,
            load_ms=told.load_ms or seen.load_ms,
            warm_ms=told.warm_ms or seen.warm_ms,
            first_ms=seen.first_ms,
            cold_ms=seen.cold_ms,
            need_bytes=seen.need_bytes,
            memory_bytes=seen.memory_bytes,
        )


def _model(
    look: _Look, target: Target, coming: Target | None, download: Download | None
) -> ModelStatus:
    model = ModelStatus(
        name=target.model,
        kind=target.kind,
        state=target.state,
        reason=target.reason,
        revision=target.revision,
        done_bytes=download.done_bytes if download else 0,
        total_bytes=download.total_bytes if download else 0,
        coming=_coming(look, coming) if coming else None,
    )
    if target.state != READY:
        return model
    if target.kind == "remote":
        return msgspec.structs.replace(model, state="ready")
    replicas = look.replicas(target)
    best = min(replicas, key=lambda one: _BEST_FIRST.index(one.state))
    return msgspec.structs.replace(
        model,
        state=best.state,
        reason=best.reason,
        replica=best.name,
        load_ms=best.load_ms,
        warm_ms=best.warm_ms,
        replicas=replicas,
    )


def _coming(look: _Look, target: Target) -> ComingStatus:
    """It is as well as the worst of its replicas, since it waits for all of them."""
    if target.state != READY:
        return ComingStatus(revision=target.revision, state=target.state, reason=target.reason)
    replicas = look.replicas(target)
    worst = max(replicas, key=lambda one: _BEST_FIRST.index(one.state))
    return ComingStatus(
        revision=target.revision, state=worst.state, reason=worst.reason, replicas=replicas
    )


def _read(path: Path, kind: type[T]) -> T | None:
    try:
        return read_json(path, kind)
    except (OSError, msgspec.MsgspecError):
        return None
