"""Rows to try a tabular model on: from a file of its owner, or made up within sensible ranges."""

import csv
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from tiffin.adapters.importers.order import Order
from tiffin.errors import ArtifactError, ConfigInvalid

MAX_ROWS = 10_000
MADE_ROWS = 256
WHERE = "--sample"

Rows = NDArray[np.float32]
Range = tuple[float, float]


INPUT = "input"


class Table(Protocol):
    """Rows for a model that takes tables, in the form that its graph wants."""

    @property
    def rows(self) -> NDArray[Any]:
        """All of them as the original takes them: N by features."""
        ...

    @property
    def features(self) -> tuple[str, ...]:
        """The columns' names, none where nobody knows."""
        ...

    @property
    def made(self) -> bool:
        """Whether they are made up."""
        ...

    @property
    def words(self) -> str:
        """What they are, for a sentence."""
        ...

    def inputs(self) -> dict[str, NDArray[Any]]:
        """The graph's inputs."""
        ...

    def example(self) -> dict[str, NDArray[Any]]:
        """One row of them, for people to look at."""
        ...

    def reference(self) -> list[float]:
        """An ordinary value of each column; none where not all are numbers."""
        ...


@dataclass(frozen=True, slots=True)
class Sample:
    """Rows of FP32, which a graph takes as one input."""

    rows: Rows
    features: tuple[str, ...]
    made: bool

    @property
    def words(self) -> str:
        """What it is, for a sentence."""
        return f"{len(self.rows)} {'made-up rows' if self.made else 'rows of the sample'}"

    def inputs(self) -> dict[str, NDArray[Any]]:
        """All rows as the one input."""
        return {INPUT: self.rows}

    def example(self) -> dict[str, NDArray[Any]]:
        """A row without gaps, where there is one."""
        whole = np.flatnonzero(np.isfinite(self.rows).all(axis=1))
        at = int(whole[0]) if len(whole) else 0
        return {INPUT: self.rows[at : at + 1]}

    def reference(self) -> list[float]:
        """The median of each column, 0 where a column has nothing; 6 significant digits."""
        with np.errstate(all="ignore"):
            known = np.where(np.isfinite(self.rows), self.rows, np.nan)
            empty = np.isnan(known).all(axis=0)
            medians = np.nanmedian(np.where(empty, 0.0, known), axis=0)
        return [float(f"{value:.6g}") for value in medians.tolist()]


@dataclass(frozen=True, slots=True)
class Mixed:
    """Rows of numbers and texts, which a graph takes as an input for each column.

    `rows` has floats, and texts at the places `texts`.
    """

    rows: NDArray[Any]
    features: tuple[str, ...]
    texts: frozenset[int]

    @property
    def made(self) -> bool:
        """Never: nobody can make up texts that mean something."""
        return False

    @property
    def words(self) -> str:
        """What it is, for a sentence."""
        return f"{len(self.rows)} rows of the sample"

    def inputs(self) -> dict[str, NDArray[Any]]:
        """N by 1 of each column, FP32 or texts."""
        kinds = {at: object if at in self.texts else np.float32 for at in range(self.rows.shape[1])}
        return {
            name: np.ascontiguousarray(self.rows[:, at : at + 1]).astype(kinds[at])
            for at, name in enumerate(self.features)
        }

    def example(self) -> dict[str, NDArray[Any]]:
        """The first row."""
        return {name: column[:1] for name, column in self.inputs().items()}

    def reference(self) -> list[float]:
        """None: a text has no median."""
        return []


def mixed_for(order: Order, names: Sequence[str], width: int, texts: frozenset[int]) -> Mixed:
    """The owner's rows for a model with columns of text; raises `ConfigInvalid` without them."""
    names = order.features or tuple(names)
    if order.sample is None:
        told = ", ".join(str(names[at] if names else at + 1) for at in sorted(texts))
        raise ConfigInvalid(f"the columns {told} are texts, so give rows to try it on", where=WHERE)
    header, rows = _read(order.sample)
    rows, header = _picked(header, rows[:MAX_ROWS], names, width)
    features = tuple(names or header or [f"column_{at + 1}" for at in range(width)])
    if len(set(features)) != width:
        raise ConfigInvalid(f"{width} different names are needed", where="--features")
    cells = rows.astype(object)
    for at in range(width):
        if at not in texts:
            cells[:, at] = _numbers(cells[:, at].tolist(), features[at])
    return Mixed(cells, features, texts)


def sample_for(
    order: Order, names: Sequence[str], ranges: Sequence[Range], *, gaps: bool = False
) -> Sample:
    """The owner's rows, else made-up ones within the ranges, a pair for each column.

    `names` are the model's own. `gaps` puts missing values into made-up rows. Raises
    `ConfigInvalid` for a file that doesn't fit the model.
    """
    width = len(ranges)
    if order.features and len(order.features) != width:
        raise ConfigInvalid(
            f"{len(order.features)} names were given, the model has {width} inputs",
            where="--features",
        )
    names = order.features or tuple(names)
    if order.sample is None:
        return Sample(_made_up(ranges, gaps=gaps), tuple(names), made=True)
    header, rows = _read(order.sample)
    rows, kept = _chosen(header, rows, names, width)
    return Sample(np.ascontiguousarray(rows[:MAX_ROWS]), tuple(names or kept), made=False)


def _made_up(ranges: Sequence[Range], *, gaps: bool) -> Rows:
    random = np.random.default_rng(0)
    lows, highs = (np.array(side, np.float64) for side in zip(*ranges, strict=True))
    rows = random.uniform(lows, highs, (MADE_ROWS, len(ranges))).astype(np.float32)
    if gaps:
        rows[random.random(rows.shape) < 0.05] = np.nan
    return rows


def _read(path: Path) -> tuple[tuple[str, ...], NDArray[Any]]:
    try:
        if path.suffix == ".npy":
            return (), np.load(path, allow_pickle=False)
        with path.open(newline="", encoding="utf-8-sig") as file:
            lines = [line for _, line in zip(range(MAX_ROWS + 1), csv.reader(file), strict=False)]
    except (OSError, ValueError, EOFError, csv.Error) as cause:
        raise ConfigInvalid(f"{path} can't be read: {cause}", where=WHERE) from cause
    lines = [line for line in lines if line]
    header = () if not lines or _numeric(lines[0]) else tuple(lines.pop(0))
    if not lines:
        raise ConfigInvalid(f"{path} has no rows", where=WHERE)
    if any(len(line) != len(header or lines[0]) for line in lines):
        raise ConfigInvalid(f"the lines of {path} differ in length", where=WHERE)
    return header, np.array(lines, dtype=object).reshape(len(lines), -1)


def _chosen(
    header: tuple[str, ...], rows: NDArray[Any], names: Sequence[str], width: int
) -> tuple[Rows, tuple[str, ...]]:
    """The model's columns in the model's order, as numbers."""
    rows, header = _picked(header, rows, names, width)
    if rows.dtype != object:
        return rows.astype(np.float32), header
    columns = [header[at] if header else f"column {at + 1}" for at in range(width)]
    numbers = [_numbers(rows[:, at].tolist(), columns[at]) for at in range(width)]
    return np.array(numbers, np.float32).T, header


def _picked(
    header: tuple[str, ...], rows: NDArray[Any], names: Sequence[str], width: int
) -> tuple[NDArray[Any], tuple[str, ...]]:
    if rows.ndim != 2:
        raise ConfigInvalid(f"expected rows and columns, found shape {rows.shape}", where=WHERE)
    if header and names and set(names) <= set(header):
        rows = rows[:, [header.index(name) for name in names]]
        header = tuple(names)
    if rows.shape[1] != width:
        lacking = [name for name in names if header and name not in header]
        more = f"; it lacks {', '.join(lacking[:8])}" if lacking else ""
        raise ConfigInvalid(
            f"it has {rows.shape[1]} columns, the model has {width} inputs{more}", where=WHERE
        )
    return rows, header


def _numbers(cells: Sequence[str], column: str) -> list[float]:
    """Single-precision numbers: what the graph gets is what the original is asked, too."""
    found = [_number(cell, f"{WHERE}: line {n}, {column}") for n, cell in enumerate(cells, start=1)]
    return [float(value) for value in np.array(found, np.float32)]


def _numeric(line: Sequence[str]) -> bool:
    try:
        _numbers(line, "")
    except ConfigInvalid:
        return False
    return True


def _number(cell: str, where: str) -> float:
    try:
        return float(cell) if cell.strip() else float("nan")
    except ValueError:
        raise ConfigInvalid(f'"{cell[:40]}" is not a number', where=where) from None


def widened(lows: NDArray[Any], highs: NDArray[Any]) -> list[Range]:
    """Ranges a tenth wider than what a model has seen or asks about, and never empty."""
    if len(lows) == 0:
        raise ArtifactError("the model says nothing about its inputs; give --sample")
    margin = np.maximum((highs - lows) * 0.1, 0.5)
    return list(zip((lows - margin).tolist(), (highs + margin).tolist(), strict=True))
