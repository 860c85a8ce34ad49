"""Cumulative numbers of one process: cheap to count, bounded in labels, written whole to a file.

Every series starts at nothing with the process; whoever reads the files adds up processes and
epochs (`exposition`). One thread counts: an increment isn't atomic.
"""

import asyncio
import contextlib
import os
import threading
from bisect import bisect_left
from collections.abc import Callable, Sequence
from itertools import count
from math import isfinite
from pathlib import Path
from typing import Any, Generic, TypeVar

import msgspec

from tiffin.telemetry import epochs
from tiffin.types.whole_file import replace_file

MAX_SERIES = 1000
OTHER = "_other"
OVERFLOWED = "tiffin_metrics_overflowed_total"

Labels = tuple[str, ...]


class SeriesState(msgspec.Struct, frozen=True, array_like=True):
    """One series: a histogram's `numbers` are its sum and a count for each bucket, the last +Inf;
    other kinds have one number."""

    labels: Labels
    numbers: tuple[float, ...]


class FamilyState(msgspec.Struct, frozen=True, kw_only=True):
    """All series of one name; `kind` is `counter`, `gauge` or `histogram`. Of a gauge that is
    `alike` each process says the same of what they share: the largest counts, not the sum."""

    name: str
    kind: str
    help: str
    labels: Labels = ()
    buckets: tuple[float, ...] = ()
    alike: bool = False
    series: tuple[SeriesState, ...] = ()


class MeterState(msgspec.Struct, frozen=True, kw_only=True):
    """Everything that one process counted."""

    role: str
    epoch: str
    families: tuple[FamilyState, ...]


class Number:
    """One counter's or gauge's series; `value` is read by whoever likes."""

    __slots__ = ("value",)

    def __init__(self) -> None:
        self.value: float = 0

    def add(self, amount: float = 1) -> None:
        """Count; a gauge takes negative amounts too."""
        self.value += amount

    def set(self, value: float) -> None:
        """Say what the value is now (gauges)."""
        self.value = value

    def numbers(self) -> tuple[float, ...]:
        """What its `SeriesState` holds."""
        return (self.value,)


class Distribution:
    """One histogram's series."""

    __slots__ = ("_bounds", "counts", "sum")

    def __init__(self, bounds: Sequence[float]) -> None:
        self._bounds = bounds
        self.counts = [0] * (len(bounds) + 1)
        self.sum = 0.0

    def observe(self, value: float) -> None:
        """Count a value in the first bucket whose bound isn't below it."""
        self.counts[bisect_left(self._bounds, value)] += 1
        self.sum += value

    def numbers(self) -> tuple[float, ...]:
        """What its `SeriesState` holds."""
        return (self.sum, *self.counts)


S = TypeVar("S", bound="Number | Distribution")
F = TypeVar("F", bound="Counter | Gauge | Histogram")


class Family(Generic[S]):
    """All series of one metric; label sets over the bound share one that is called `_other`."""

    def __init__(
        self, shape: FamilyState, make: Callable[[], S], bound: int, overflow: Callable[[], None]
    ) -> None:
        self.shape = shape
        self._make = make
        self._overflow = overflow
        self._bound = bound
        self._series: dict[Labels, S] = {}
        if not shape.labels:
            self._series[()] = make()

    def labels(self, values: Labels) -> S:
        """The series of these label values; bind it once where the values are known ahead."""
        found = self._series.get(values)
        return found if found is not None else self._grow(values)

    def state(self) -> FamilyState:
        """The family with all its series."""
        series = tuple(SeriesState(k, _sayable(s.numbers())) for k, s in self._series.items())
        return msgspec.structs.replace(self.shape, series=series)

    def _grow(self, values: Labels) -> S:
        if len(values) != len(self.shape.labels):
            raise ValueError(f"{self.shape.name} has the labels {self.shape.labels}: {values}")
        if len(self._series) >= self._bound:
            self._overflow()
            values = (OTHER,) * len(values)
            if values in self._series:
                return self._series[values]
        self._series[values] = made = self._make()
        return made


class Counter(Family[Number]):
    """Only grows."""

    def add(self, values: Labels = (), amount: float = 1) -> None:
        """Count for these label values."""
        series = self._series.get(values)
        (series if series is not None else self._grow(values)).value += amount


class Gauge(Family[Number]):
    """Goes up and down, and is gone with its process."""

    def set(self, value: float, values: Labels = ()) -> None:
        """Say what the value is now."""
        self.labels(values).value = value

    def inc(self, amount: float = 1, values: Labels = ()) -> None:
        """Change the value by an amount of either sign."""
        self.labels(values).value += amount


class Histogram(Family[Distribution]):
    """Counts values in buckets."""

    def observe(self, values: Labels, value: float) -> None:
        """Count a value for these label values."""
        series = self._series.get(values)
        (series if series is not None else self._grow(values)).observe(value)


def _sayable(numbers: tuple[float, ...]) -> tuple[float, ...]:
    """Numbers as JSON can say them; one that isn't finite must not hide all others."""
    return tuple(n + 0 if isfinite(n) else 0.0 for n in numbers)


class Meter:
    """All metrics of one process. Asking twice for the same metric gives the same one."""

    def __init__(self, role: str, epoch: str, *, max_series: int = MAX_SERIES) -> None:
        self.role = role
        self.epoch = epoch
        self.write_failures = 0
        self._bound = max_series
        self._families: dict[str, Counter | Gauge | Histogram] = {}
        self._written = b""
        self._lock = -1
        self._writing = threading.Lock()
        self._turns, self._turn = count(1), 0
        shape = FamilyState(
            name=OVERFLOWED,
            kind="counter",
            help="Times that labels over the bound were counted as _other",
            labels=("metric",),
        )
        self._overflow = Counter(shape, Number, max_series, lambda: None)
        self._families[OVERFLOWED] = self._overflow

    def counter(self, name: str, help: str, labels: Labels = ()) -> Counter:
        """A counter; its name ends in `_total` by custom."""
        shape = FamilyState(name=name, kind="counter", help=help, labels=labels)
        return self._add(Counter, shape, Number)

    def gauge(self, name: str, help: str, labels: Labels = (), *, alike: bool = False) -> Gauge:
        """A gauge; `alike` where it is about what all processes share."""
        shape = FamilyState(name=name, kind="gauge", help=help, labels=labels, alike=alike)
        return self._add(Gauge, shape, Number)

    def histogram(
        self, name: str, help: str, labels: Labels, buckets: Sequence[float]
    ) -> Histogram:
        """A histogram; `buckets` are ascending upper bounds without infinity."""
        bounds = tuple(float(bound) for bound in buckets)
        if not bounds or list(bounds) != sorted(set(bounds)) or bounds[-1] == float("inf"):
            raise ValueError(f"{name}: buckets ascend and don't name infinity: {bounds}")
        shape = FamilyState(name=name, kind="histogram", help=help, labels=labels, buckets=bounds)
        return self._add(Histogram, shape, lambda: Distribution(bounds))

    def snapshot(self) -> MeterState:
        """Everything counted until now, as a value."""
        families = tuple(family.state() for family in self._families.values())
        return MeterState(role=self.role, epoch=self.epoch, families=families)

    def state(self) -> bytes:
        """The same as JSON."""
        return msgspec.json.encode(self.snapshot())

    def write(self, path: Path) -> bool:
        """Replace the file when anything changed; false, and counted, where that failed.

        The first write locks `path` with the suffix `.lock` for this process's life, by which
        readers know that these numbers may still grow.
        """
        state = self.state()
        return state == self._written or self._replace(path, state, next(self._turns))

    async def write_aside(self, path: Path) -> bool:
        """As `write`, and a disk that is slow holds up nobody else."""
        state = self.state()
        if state == self._written:
            return True
        return await asyncio.to_thread(self._replace, path, state, next(self._turns))

    def _replace(self, path: Path, state: bytes, turn: int) -> bool:
        with self._writing:
            if turn < self._turn:
                return True  # what is newer is there already
            try:
                if self._lock < 0:
                    self._lock = epochs.hold(path.with_suffix(".lock"))
                replace_file(path, state, lasting=False)
            except OSError:
                self.write_failures += 1
                return False
            self._written, self._turn = state, turn
        return True

    def close(self) -> None:
        """Let go of the lock: from now on these numbers count as a dead process's."""
        if self._lock >= 0:
            with contextlib.suppress(OSError):
                os.close(self._lock)
            self._lock = -1

    def _add(self, kind: type[F], shape: FamilyState, make: Callable[[], Any]) -> F:
        known = self._families.get(shape.name)
        if known is None:
            known = kind(shape, make, self._bound, lambda: self._overflow.add((shape.name,)))
            self._families[shape.name] = known
        if not isinstance(known, kind) or known.shape != shape:
            raise ValueError(f"{shape.name} already exists with another shape")
        return known
