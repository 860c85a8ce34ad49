"""Has those replicas in memory that should be: looks, has the policy decide, does what it says."""

import logging
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import msgspec

from tiffin.adapters.launchers.memory import resident_bytes
from tiffin.app.demand import NONE, Asked
from tiffin.app.keeper import Keeper
from tiffin.app.replicas import Replicas
from tiffin.control.fleet.measured import Measured
from tiffin.control.fleet.residency import Decision, Lodger, Presence, decide
from tiffin.control.fleet.status import ProcessStatus, State
from tiffin.serving.progress import Phase, read_progress
from tiffin.telemetry.metrics import Meter
from tiffin.types.snapshot import Deployment

DECIDE_EVERY_S = 0.5
MEASURE_EVERY_S = 2.0
SAVE_EVERY_S = 10.0
FORGIVEN_NS = 60_000_000_000
"""How long after it ended one that didn't start has to leave their memory to others."""

TRIES = 3
"""After so many ends before it was ever ready, a replica counts as one that doesn't start."""

_LOG = logging.getLogger("tiffin.supervisor")
_PRESENCE: Mapping[State, Presence] = {
    State.READY: Presence.READY,
    State.FAILED: Presence.FAILED,
    State.WAITING: Presence.FAILED,
    State.STOPPING: Presence.STOPPING,
    State.ENDED: Presence.STOPPING,
}


@dataclass(frozen=True, slots=True)
class Machine:
    """The folder of running processes' files, the memory for replicas, what was measured here.

    `look` tells the memory of a process by its pid.
    """

    run: Path
    budget_bytes: int
    measured: Measured
    look: Callable[[int], int] = resident_bytes


@dataclass(slots=True)
class Seen:
    """What was seen of one replica lately: its steps, when they last grew, its outstanding work."""

    ready_ns: int = 0
    steps: int = 0
    moved_s: float = 0.0
    outstanding: int = 0
    measured_steps: int = 0
    waking_ns: int = 0
    first_ms: int = 0


class Residency:
    """The replicas in memory; `tell` gets lines for the operator."""

    def __init__(
        self,
        replicas: Replicas,
        machine: Machine,
        meter: Meter,
        tell: Callable[[str], None],
    ) -> None:
        self.budget_bytes = machine.budget_bytes
        self._replicas = replicas
        self._run = machine.run
        self._measured = machine.measured
        self._numbers = _Numbers(meter)
        self._tell = tell
        self._look = machine.look
        self._demands = Asked(machine.run)
        self._seen: dict[str, Seen] = {}
        self._last: dict[str, ProcessStatus] = {}
        self._told: dict[str, str] = {}
        self._leaving: frozenset[str] = frozenset()
        self._decision = Decision()
        self._decided = self._measured_at = self._saved = 0.0
        self._numbers.budget.set(machine.budget_bytes)

    @property
    def hurried(self) -> bool:
        """Whether somebody waits for a model now."""
        return self._demands.anybody_waits

    def follow(self, desired: tuple[Deployment, ...], leaving: Mapping[str, int]) -> None:
        """Want these; those that are `leaving` aren't started any more."""
        self._leaving = frozenset(leaving)
        self._replicas.follow(desired)
        names = self._replicas.wanted.keys()
        for kept in (self._seen, self._last, self._told):
            for name in kept.keys() - names:
                del kept[name]
        self._decided = 0.0

    def adopted(self) -> None:
        """What runs was taken over: as far as is known, it was used a moment ago."""
        for deployment, _ in self._replicas.running:
            self._seen[deployment.name] = Seen(moved_s=time.time())

    def look(self) -> None:
        """See what has changed and do what follows; call it every 0.1 s or so."""
        now = time.monotonic()
        changed = self._demands.changed()
        if changed or self.hurried or now - self._decided >= DECIDE_EVERY_S:
            self._decided = now
            for deployment, keeper in self._replicas.running:
                self._watch(deployment, keeper.status)
            self._do(decide(self.budget_bytes, tuple(self._lodgers()), time.time()))
        if now - self._measured_at >= MEASURE_EVERY_S:
            self._measured_at = now
            self._measure()
        if now - self._saved >= SAVE_EVERY_S:
            self._saved = now
            self._measured.save()

    def statuses(self) -> list[ProcessStatus]:
        """Those that run, and those that may come with the reason why they aren't here."""
        running = [
            self._described(deployment, keeper.status)
            for deployment, keeper in self._replicas.running
        ]
        here = {keeper.status.name for keeper in self._replicas.keepers}
        away = (one for name, one in self._replicas.wanted.items() if name not in here)
        return [*running, *(self._absent(one) for one in away if one.name not in self._leaving)]

    def close(self) -> None:
        """Keep what was measured."""
        self._measured.save()

    def _lodgers(self) -> Iterator[Lodger]:
        ages: dict[tuple[str, str], int] = {}
        for one in self._replicas.wanted.values():
            ages.setdefault((one.model, one.generation), len(ages) + 1)
        draining = {one.name: one for one in self._replicas.leaving}
        keepers = {one.name: keeper for one, keeper in self._replicas.running}
        for one in {**draining, **self._replicas.wanted}.values():
            status = keepers[one.name].status if one.name in keepers else None
            if status is None and one.name in self._leaving and one.name not in draining:
                continue
            old = one.name in self._leaving or one.name not in self._replicas.wanted
            age = 0 if old else ages[one.model, one.generation]
            yield self._lodger(one, status, age, leaving=one.name in draining)

    def _lodger(
        self, one: Deployment, status: ProcessStatus | None, age: int, *, leaving: bool
    ) -> Lodger:
        demand = self._demands.of.get(one.model, NONE)
        seen = self._seen.get(one.name) or Seen()
        presence = Presence.STOPPING if leaving else Presence.ABSENT
        since_s = 0.0
        if status is not None and not leaving:
            presence = _PRESENCE.get(status.state, Presence.STARTING)
            since_s = status.since_ns / 1e9
        last = self._last.get(one.name)
        if last is not None and one.on_demand and last.since_ns + FORGIVEN_NS < time.time_ns():
            last = None
        failed = any(gave_up(known) for known in (status, last) if known)
        return Lodger(
            name=one.name,
            model=one.model,
            need_bytes=self._need(one),
            on_demand=one.on_demand,
            age=age,
            presence=presence,
            since_s=since_s,
            outstanding=seen.outstanding,
            waiting=demand.waiting,
            waiting_since_s=demand.since_ns / 1e9,
            used_s=max(seen.moved_s, demand.used_ns / 1e9),
            idle_s=one.idle_s,
            hold_s=one.hold_s,
            failed=failed,
        )

    def _need(self, one: Deployment) -> int:
        if one.memory_fixed:
            return one.memory_bytes
        return self._measured.need_bytes(one.generation, one.memory_bytes)

    def _do(self, decision: Decision) -> None:
        self._decision = decision
        statuses = {one.name: keeper.status for one, keeper in self._replicas.running}
        for retired in decision.retire:
            one = self._replicas.wanted[retired.name]
            self._last[one.name] = msgspec.structs.replace(
                statuses[one.name], said="", since_ns=time.time_ns()
            )
            self._replicas.retire(one.name)
            self._numbers.unloads.add((one.model,))
            self._say("model unloaded", one, retired.reason)
            self._tell(f"model {one.model} is unloaded: {retired.reason}")
        for woken in decision.wake:
            one = self._replicas.wanted[woken.name]
            waking_ns = self._demands.of.get(one.model, NONE).since_ns if one.on_demand else 0
            self._seen[one.name] = Seen(moved_s=time.time(), waking_ns=waking_ns)
            self._replicas.start(one.name)
            self._numbers.loads.add((one.model,))
            self._say("model loads", one, woken.reason)
        refused = dict(decision.refused)
        for name, reason in refused.items():
            if self._told.get(name) != reason:
                one = self._replicas.wanted[name]
                self._say("model refused", one, reason)
                self._tell(f"model {one.model} can't be loaded: {reason}")
        self._told = refused

    def _say(self, event: str, one: Deployment, reason: str) -> None:
        fields = {"child": one.name, "model": one.model, "reason": reason}
        _LOG.info(event, extra={"fields": fields})

    def _watch(self, one: Deployment, status: ProcessStatus) -> None:
        """Note whether a ready replica works, for when it was last used."""
        progress = read_progress(self._run / f"{one.name}.progress")
        if status.state is not State.READY:
            # Gateways may have seen that it is ready, and let go, before its keeper has.
            left = not self._demands.of.get(one.model, NONE).waiting
            if one.name in self._seen and left and progress.phase < Phase.READY:
                self._seen[one.name].waking_ns = 0
            return
        seen = self._seen.setdefault(one.name, Seen())
        if seen.ready_ns != status.since_ns:
            self._became_ready(one, status, seen, progress.steps)
        answered = not progress.outstanding or progress.steps != seen.steps
        if answered and seen.waking_ns and self._let_go(one.model, seen.waking_ns):
            seen.first_ms = max(0, (time.time_ns() - seen.waking_ns) // 1_000_000)
            seen.waking_ns = 0
            self._numbers.seconds(one.model, "first_answer", seen.first_ms)
        if progress.outstanding or progress.steps != seen.steps:
            seen.moved_s = time.time()
        seen.steps, seen.outstanding = progress.steps, progress.outstanding

    def _let_go(self, model: str, waking_ns: int) -> bool:
        """Whether those that woke it wait no more."""
        demand = self._demands.of.get(model, NONE)
        return not demand.waiting or demand.since_ns > waking_ns

    def _became_ready(self, one: Deployment, status: ProcessStatus, seen: Seen, steps: int) -> None:
        self._last.pop(one.name, None)
        seen.ready_ns = status.since_ns
        seen.steps = seen.measured_steps = steps
        self._measured.ready(one.generation, status.ready_ms)
        parts = {"start": status.start_ms, "load": status.load_ms, "warm_up": status.warm_ms}
        for phase, took_ms in parts.items():
            self._numbers.seconds(one.model, phase, took_ms)

    def _measure(self) -> None:
        totals: dict[str, list[int]] = {one.model: [0, 0] for one in self._replicas.wanted.values()}
        for one, keeper in self._replicas.running:
            status = keeper.status
            totals[one.model][0] += self._need(one)
            if status.state is not State.READY or not status.pid:
                continue
            seen = self._seen.setdefault(one.name, Seen())
            memory = self._look(status.pid)
            worked = seen.steps != seen.measured_steps or seen.outstanding > 0
            seen.measured_steps = seen.steps
            self._measured.memory(one.generation, memory, worked=worked)
            totals[one.model][1] += memory
        self._numbers.memory(totals)

    def _described(self, one: Deployment, status: ProcessStatus) -> ProcessStatus:
        known = self._measured.of(one.generation)
        seen = self._seen.get(one.name)
        return msgspec.structs.replace(
            status,
            generation=one.generation,
            first_ms=seen.first_ms if seen else 0,
            cold_ms=known.ready_ms,
            need_bytes=self._need(one),
            memory_bytes=known.memory_bytes,
        )

    def _absent(self, one: Deployment) -> ProcessStatus:
        last = self._last.get(one.name) or ProcessStatus(
            name=one.name, role="replica", model=one.model
        )
        state, reason = State.ASLEEP, "it is loaded when a request comes"
        if gave_up(last):
            state, reason = State.FAILED, last.reason
        refused, queued = dict(self._decision.refused), dict(self._decision.queued)
        if one.name in refused:
            state, reason = State.REFUSED, refused[one.name]
        elif one.name in queued and state is not State.FAILED:
            state, reason = State.QUEUED, queued[one.name]
        elif not one.on_demand and state is State.ASLEEP:
            state, reason = State.QUEUED, "it waits for its turn"
        away = msgspec.structs.replace(last, state=state, reason=reason, pid=0, since_ns=0)
        return self._described(one, away)


def gave_up(status: ProcessStatus) -> bool:
    """Whether it doesn't start: it said so itself, or ended again and again before it was ready."""
    if status.state is State.FAILED:
        return True
    again = status.restarts >= TRIES and not status.ready_ms
    return again and status.state is not State.READY


class _Numbers:
    """What metrics say of models' memory and loads."""

    def __init__(self, meter: Meter) -> None:
        self.budget = meter.gauge(
            "tiffin_memory_budget_bytes", "Memory that all replicas together may take"
        )
        self.loads = meter.counter("tiffin_model_loads_total", "Replicas started", ("model",))
        self.unloads = meter.counter(
            "tiffin_model_unloads_total", "Replicas ended because others came or idle", ("model",)
        )
        self._memory = meter.gauge(
            "tiffin_replica_memory_bytes",
            "Memory of a model's replicas: as counted, and as measured last",
            ("model", "kind"),
        )
        self._seconds = meter.gauge(
            "tiffin_model_load_seconds", "Seconds that a model's last load took", ("model", "phase")
        )
        self._models: set[str] = set()

    def seconds(self, model: str, phase: str, took_ms: int) -> None:
        """A part of a model's last load."""
        self._seconds.set(took_ms / 1000, (model, phase))

    def memory(self, totals: Mapping[str, list[int]]) -> None:
        """Counted and measured bytes by model; 0 for those that have gone."""
        for model in self._models - totals.keys():
            totals = {**totals, model: [0, 0]}
        self._models = set(totals)
        for model, (counted, measured) in totals.items():
            self._memory.set(counted, (model, "counted"))
            self._memory.set(measured, (model, "measured"))


def kept(keepers: list[Keeper], residency: Residency) -> tuple[ProcessStatus, ...]:
    """Everybody's status: a replica's with what is known of its memory and times."""
    known = {status.name: status for status in residency.statuses()}
    mine = [known.pop(keeper.status.name, keeper.status) for keeper in keepers]
    return (*mine, *known.values())
