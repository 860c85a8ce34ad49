"""Rows to try a tabular model on: from a file of its owner, or made up within sensible ranges."""

import csv
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tiffin.adapters.importers.order import Order
from tiffin.errors import ArtifactError, ConfigInvalid

MAX_ROWS = 10_000
MADE_ROWS = 256
WHERE = "--sample"

Rows = NDArray[np.float32]
Range = tuple[float, float]


@dataclass(frozen=True, slots=True)
class Sample:
    """Rows of FP32, the names of their columns (none where nobody knows), and whose they are."""

    rows: Rows
    features: tuple[str, ...]
    made: bool

    @property
    def words(self) -> str:
        """What it is, for a sentence."""
        return f"{len(self.rows)} {'made-up rows' if self.made else 'rows of the sample'}"

    def reference(self) -> list[float]:
        """The median of each column, 0 where a column has nothing; 6 significant digits."""
        with np.errstate(all="ignore"):
            known = np.where(np.isfinite(self.rows), self.rows, np.nan)
            empty = np.isnan(known).all(axis=0)
            medians = np.nanmedian(np.where(empty, 0.0, known), axis=0)
        return [float(f"{value:.6g}") for value in medians.tolist()]


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


def one_row(text: Sequence[str], where: str = "the row") -> list[float]:
    """Numbers of one row of a CSV; an empty cell is NaN. Raises `ConfigInvalid` by column."""
    return [_number(cell, f"{where}, column {at}") for at, cell in enumerate(text, start=1)]


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
    """The model's columns in the model's order."""
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
    if rows.dtype != object:
        return rows.astype(np.float32), header
    columns = [header[at] if header else f"column {at + 1}" for at in range(width)]
    numbers = [
        [_number(cell, f"{WHERE}: line {line}, {columns[at]}") for at, cell in enumerate(row)]
        for line, row in enumerate(rows.tolist(), start=1)
    ]
    return np.array(numbers, np.float32).reshape(len(numbers), width), header


def _numeric(line: Sequence[str]) -> bool:
    try:
        one_row(line)
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
