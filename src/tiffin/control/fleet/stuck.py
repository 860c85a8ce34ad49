"""Whether a process still makes progress, judged from outside by what can't lie.

A heartbeat of a Python thread is blind while an engine holds the GIL, and CPU time says nothing
about an idle process, so each is trusted only together with the others.
"""

from dataclasses import dataclass

AWAY_S = 2.0


@dataclass(frozen=True, slots=True)
class Vitals:
    """One look at a process: counters that only grow, and the kernel's view of it.

    `ready` is false while it starts, `outstanding` is requests inside; `state` is the letter of
    `/proc/<pid>/stat` (`T`: stopped, `D`: waits for the disk); `cpu_s` is user and system time.
    """

    heartbeat: int
    steps: int
    outstanding: int
    ready: bool
    cpu_s: float
    state: str


@dataclass(frozen=True, slots=True)
class Patience:
    """How long each kind of silence is borne, in seconds.

    `frozen_s`: nothing moves at all. `idle_s`: work is outstanding, no step, hardly any CPU; or
    nothing moves because the disk doesn't answer.
    `silent_s`: CPU moves, but neither step nor heartbeat, or no step with work outstanding.
    `start_s`: from start to ready. `by_work` is false where others do the work and waiting for
    them is no fault.
    """

    frozen_s: float = 6.0
    idle_s: float = 30.0
    silent_s: float = 600.0
    start_s: float = 300.0
    idle_cpu_share: float = 0.05
    by_work: bool = True


class Watch:
    """Looks at one process again and again and says when it is stuck."""

    def __init__(self, patience: Patience, now: float) -> None:
        self._patience = patience
        self._last: Vitals | None = None
        self._seen = now
        self._started = now
        self._moved = now
        self._worked = now
        self._idle_since = now
        self._idle_cpu_s = 0.0

    def look(self, vitals: Vitals, now: float) -> str:
        """Why the process must be replaced, or an empty string; `now` is monotonic seconds.

        Time in which nobody looked (the watcher itself was stopped) doesn't count.
        """
        last, self._last = self._last, vitals
        away = now - self._seen
        self._seen = now
        if last is None:
            self._forget(vitals, now)
            return ""
        if away > AWAY_S:
            self._started += away
            self._forget(vitals, now)
            return ""
        self._note(last, vitals, now)
        return self._verdict(vitals, now)

    def _forget(self, vitals: Vitals, now: float) -> None:
        self._moved = self._worked = self._idle_since = now
        self._idle_cpu_s = vitals.cpu_s

    def _note(self, last: Vitals, vitals: Vitals, now: float) -> None:
        outstanding = vitals.outstanding if self._patience.by_work else 0
        stepped = vitals.steps != last.steps
        beaten = vitals.heartbeat != last.heartbeat
        if stepped or beaten or vitals.cpu_s != last.cpu_s or vitals.ready != last.ready:
            self._moved = now
        if stepped or (beaten and not outstanding):
            self._worked = now
        allowed_s = self._patience.idle_cpu_share * max(1.0, now - self._idle_since)
        if stepped or not outstanding or vitals.cpu_s - self._idle_cpu_s > allowed_s:
            self._idle_since = now
            self._idle_cpu_s = vitals.cpu_s

    def _verdict(self, vitals: Vitals, now: float) -> str:
        return self._while_ready(vitals, now) if vitals.ready else self._while_starting(vitals, now)

    def _while_starting(self, vitals: Vitals, now: float) -> str:
        still_s = now - self._moved
        if vitals.state == "T" and still_s >= self._patience.frozen_s:
            return f"stopped for {still_s:.0f} s while it was starting"
        if now - self._started >= self._patience.start_s:
            return f"not ready after {self._patience.start_s:g} s"
        return ""

    def _while_ready(self, vitals: Vitals, now: float) -> str:
        patience = self._patience
        # Who waits for the disk can't move, and killing it doesn't make the disk faster.
        frozen_s = patience.idle_s if vitals.state == "D" else patience.frozen_s
        if now - self._moved >= frozen_s:
            return f"nothing moved for {now - self._moved:.0f} s"
        if now - self._idle_since >= patience.idle_s:
            return f"no progress for {patience.idle_s:g} s on {vitals.outstanding} requests"
        if now - self._worked >= patience.silent_s:
            return f"no progress for {patience.silent_s:g} s, although it is busy"
        return ""
