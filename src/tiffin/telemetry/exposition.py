"""All processes' numbers as one, in Prometheus' text format: the living and what the dead left.

A process that ended is folded once into a file of totals and its own file goes, so that a restart
neither loses nor doubles a count. Gauges end with their process.
https://prometheus.io/docs/instrumenting/exposition_formats/
"""

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

import msgspec

from tiffin.telemetry import epochs
from tiffin.telemetry.metrics import MAX_SERIES, OTHER, FamilyState, Labels, MeterState, SeriesState
from tiffin.types.json_file import read_json
from tiffin.types.whole_file import replace_file

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
FOLDED = "_folded.json"

Numbers = tuple[float, ...]


class Folded(msgspec.Struct, frozen=True, kw_only=True):
    """Totals of ended processes; `files` are those that are in it and perhaps not yet deleted."""

    families: tuple[FamilyState, ...] = ()
    files: tuple[str, ...] = ()


class Collector:
    """Reads the files of a folder; the only one that folds them. Its methods block, briefly."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def collect(self) -> tuple[FamilyState, ...]:
        """Every family's sums over living and ended processes; raises `OSError`."""
        folded = self._fold()
        living = [state.families for state in self._states(self._files())]
        return merged([folded.families, *living])

    def _files(self) -> list[Path]:
        return sorted(path for path in self._folder.glob("*.json") if path.name != FOLDED)

    def _states(self, paths: Iterable[Path]) -> Iterator[MeterState]:
        for path in paths:
            try:
                yield read_json(path, MeterState)
            except (FileNotFoundError, msgspec.MsgspecError):
                continue

    def _fold(self) -> Folded:
        """Move what ended processes counted into the totals."""
        folded = self._load()
        for name in folded.files:
            self._delete(self._folder / name)
        for lock in self._folder.glob("*.lock"):
            with epochs.seize(lock) as ended:
                if ended:
                    folded = self._fold_one(folded, lock.with_suffix(".json"))
        return folded

    def _fold_one(self, folded: Folded, path: Path) -> Folded:
        for state in self._states([path]):
            lasting = [family for family in state.families if family.kind != "gauge"]
            families = merged([folded.families, lasting])
            # Named in the totals before it goes: after a crash it doesn't count a second time.
            folded = Folded(families=families, files=(path.name,))
            replace_file(self._folder / FOLDED, msgspec.json.encode(folded), lasting=False)
        self._delete(path)
        return folded

    def _delete(self, path: Path) -> None:
        for suffix in (".json", ".json.tmp", ".lock"):
            path.with_suffix(suffix).unlink(missing_ok=True)

    def _load(self) -> Folded:
        try:
            return read_json(self._folder / FOLDED, Folded)
        except (FileNotFoundError, msgspec.MsgspecError):
            return Folded()


def merged(groups: Sequence[Sequence[FamilyState]]) -> tuple[FamilyState, ...]:
    """Families added up by name and labels, of those that are alike the largest; of two shapes of
    one name the later counts.

    Series over the bound share the one that is called `_other`.
    """
    shapes: dict[str, FamilyState] = {}
    sums: dict[str, dict[Labels, Numbers]] = {}
    for family in (family for group in groups for family in group):
        shape = msgspec.structs.replace(family, series=(), help="")
        if shapes.get(family.name, shape) != shape or family.name not in sums:
            sums[family.name] = {}
        shapes[family.name] = shape
        _add(sums[family.name], family)
    helps = {family.name: family.help for group in groups for family in group}
    return tuple(
        msgspec.structs.replace(
            shape,
            help=helps[name],
            series=tuple(SeriesState(labels, n) for labels, n in sums[name].items()),
        )
        for name, shape in shapes.items()
    )


def render(families: Iterable[FamilyState]) -> str:
    """The text that a Prometheus server scrapes."""
    lines: list[str] = []
    for family in families:
        lines.append(f"# HELP {family.name} {_escaped(family.help)}")
        lines.append(f"# TYPE {family.name} {family.kind}")
        for series in family.series:
            if family.kind == "histogram":
                lines.extend(_histogram(family, series))
            else:
                labels = _labels(family.labels, series.labels)
                lines.append(f"{family.name}{labels} {_number(series.numbers[0])}")
    return "\n".join([*lines, ""])


def _add(into: dict[Labels, Numbers], family: FamilyState) -> None:
    for series in family.series:
        labels, numbers = series.labels, series.numbers
        if labels not in into and len(into) >= MAX_SERIES:
            labels = (OTHER,) * len(labels)
        known = into.get(labels)
        join = max if family.alike else sum
        into[labels] = (
            numbers if known is None else tuple(map(join, zip(known, numbers, strict=True)))
        )


def _histogram(family: FamilyState, series: SeriesState) -> Iterator[str]:
    total, *counts = series.numbers
    names = (*family.labels, "le")
    below = 0.0
    for bound, count in zip((*map(_number, family.buckets), "+Inf"), counts, strict=True):
        below += count
        labels = _labels(names, (*series.labels, bound))
        yield f"{family.name}_bucket{labels} {_number(below)}"
    labels = _labels(family.labels, series.labels)
    yield f"{family.name}_sum{labels} {_number(total)}"
    yield f"{family.name}_count{labels} {_number(below)}"


def _labels(names: Labels, values: Labels) -> str:
    if not names:
        return ""
    pairs = (
        f'{name}="{_escaped(value).replace(chr(34), chr(92) + chr(34))}"'
        for name, value in zip(names, values, strict=True)
    )
    return "{" + ",".join(pairs) + "}"


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace("\n", "\\n")


def _number(value: float) -> str:
    return str(int(value)) if value == int(value) else repr(float(value))
