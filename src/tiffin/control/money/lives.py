"""How long the machine, its replicas and their loading lasted, from what the supervisor says."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from tiffin.config.models import LaunchedModel, Model
from tiffin.control.fleet.status import ProcessStatus, State, Status
from tiffin.control.money.pricing import on_accelerators, slots_of, threads_of
from tiffin.ledger.bill import CPU, GPU, MACHINE
from tiffin.ports.ledger import Ran
from tiffin.types.snapshot import Deployment

LOAD = "load"
LOADED = "loaded"


@dataclass(frozen=True, slots=True)
class Here:
    """The machine, by name, with so many cores; `accelerators` says whether it has any."""

    name: str
    cores: int
    accelerators: bool = False


def lives_of(
    status: Status,
    deployments: Iterable[Deployment],
    models: Mapping[str, Model],
    here: Here,
    now_ns: int,
) -> list[Ran]:
    """What has lasted until now: each stretch from its true beginning, so that it only grows."""
    known = {one.name: one for one in deployments}
    found = [
        Ran(
            name=here.name,
            kind=MACHINE,
            since_ns=status.started_ns,
            until_ns=max(now_ns, status.started_ns),
            share=here.cores,
        )
    ]
    for process in status.processes:
        one = known.get(process.name)
        if one is not None and process.pid and process.since_ns:
            found += _of_replica(process, one, models, here, now_ns)
    return found


def _of_replica(
    process: ProcessStatus,
    one: Deployment,
    models: Mapping[str, Model],
    here: Here,
    now_ns: int,
) -> list[Ran]:
    accelerators = on_accelerators(one, there=here.accelerators)
    model = models.get(one.model)

    def stretch(kind: str, since_ns: int, until_ns: int) -> Ran:
        return Ran(
            name=process.name,
            kind=kind,
            since_ns=since_ns,
            until_ns=max(since_ns, until_ns),
            model=one.model,
            share=accelerators or threads_of(one, here.cores),
            slots=slots_of(model) if model is not None else 1,
            device=GPU if accelerators else CPU,
            opaque=isinstance(model, LaunchedModel),
        )

    if process.state is State.STARTING:
        return [stretch(LOAD, process.since_ns, now_ns)]
    if process.state is not State.READY:
        return []
    began_ns = process.since_ns - process.ready_ms * 1_000_000
    return [
        stretch(LOAD, began_ns, process.since_ns),
        stretch(LOADED, process.since_ns, now_ns),
    ]
