"""What an operator gets to know about the whole installation, as one value."""

from collections.abc import Iterable
from pathlib import Path
from typing import TypeVar

import msgspec

from tiffin.control.chores import Chore
from tiffin.control.fetch import Download
from tiffin.control.fleet.status import ProcessStatus, State, Status
from tiffin.control.office import Office
from tiffin.control.publish import READY
from tiffin.types.paths import DataFolder, replica_of
from tiffin.types.snapshot import Plan, Snapshot, Target

T = TypeVar("T")


class ModelStatus(msgspec.Struct, frozen=True, kw_only=True):
    """One model: `state` is `ready`, `loading`, `fetching`, `failed` or `unloaded`; `reason` says
    why.

    `done_bytes` of `total_bytes` of its file are here while it is fetched. `replica` names its
    process; times are milliseconds.
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


class RouteStatus(msgspec.Struct, frozen=True, kw_only=True):
    """One route and the models that it tries."""

    name: str
    models: list[str]


class JournalStatus(msgspec.Struct, frozen=True, kw_only=True):
    """By how many seconds entries are behind, and how many bytes of journals there are."""

    behind_s: float
    bytes: int


class Report(msgspec.Struct, frozen=True, kw_only=True):
    """Everything. `degraded` are reasons, empty while all is well."""

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
    processes = {process.name: process for process in status.processes}
    models = [
        _model(folder.run, plan.targets[0], coming.get(plan.name), processes)
        for plan in plans
        if _is_model(plan)
    ]
    degraded = [f"{chore.name}: {chore.fault}" for chore in chores if chore.fault]
    if office.fault:
        degraded.insert(0, office.fault)
    degraded += [f"model {m.name}: {m.reason}" for m in models if m.state == "failed"]
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
    )


def _is_model(plan: Plan) -> bool:
    return len(plan.targets) == 1 and plan.targets[0].model == plan.name


def _model(
    run: Path, target: Target, download: Download | None, processes: dict[str, ProcessStatus]
) -> ModelStatus:
    model = ModelStatus(
        name=target.model,
        kind=target.kind,
        state=target.state,
        reason=target.reason,
        revision=target.revision,
        done_bytes=download.done_bytes if download else 0,
        total_bytes=download.total_bytes if download else 0,
    )
    if target.state != READY:
        return model
    if target.kind == "remote":
        return msgspec.structs.replace(model, state="ready")
    name = replica_of(target.sockets[0])
    process = processes.get(name)
    replica = _read(run / f"{name}.state.json", _ReplicaState) or _ReplicaState()
    if process is not None and process.state is State.FAILED:
        replica = _ReplicaState(phase="failed", reason=replica.reason or process.explained)
    return msgspec.structs.replace(
        model,
        state=replica.phase if replica.phase in ("ready", "failed") else "loading",
        reason=replica.reason,
        replica=name,
        load_ms=replica.load_ms,
        warm_ms=replica.warm_ms,
    )


def _read(path: Path, kind: type[T]) -> T | None:
    try:
        return msgspec.json.decode(path.read_bytes(), type=kind)
    except (OSError, msgspec.MsgspecError):
        return None
