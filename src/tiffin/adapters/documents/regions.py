"""Connected regions of a mask, found row by row from runs of set pixels; numpy alone."""

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

Mask = NDArray[np.bool_]
Integers = NDArray[np.intp]


class Runs(NamedTuple):
    """Horizontal runs of set pixels in the order of rows: `start` to before `stop` in `row`."""

    row: Integers
    start: Integers
    stop: Integers


def regions(mask: Mask) -> list[NDArray[np.float64]]:
    """For each region (8-connected), the ends of its runs as points x, y: enough for its hull."""
    runs = runs_of(mask)
    if not len(runs.row):
        return []
    labels = _labels(len(runs.row), *_touching(runs, mask.shape[0]))
    order = np.argsort(labels, kind="stable")
    edges = np.flatnonzero(np.diff(labels[order])) + 1
    found = []
    for group in np.split(order, edges):
        row = runs.row[group]
        left = np.stack([runs.start[group], row], axis=1)
        right = np.stack([runs.stop[group] - 1, row], axis=1)
        found.append(np.concatenate([left, right]).astype(np.float64))
    return found


def runs_of(mask: Mask) -> Runs:
    """The runs of set pixels of every row."""
    padded = np.zeros((mask.shape[0], mask.shape[1] + 2), dtype=np.int8)
    padded[:, 1:-1] = mask
    change = np.diff(padded, axis=1)
    row, start = np.nonzero(change == 1)
    _, stop = np.nonzero(change == -1)
    return Runs(row, start, stop)


def grown(mask: Mask) -> Mask:
    """The mask with each pixel also set where the one right of, below or across from it is."""
    wide: NDArray[Any] = mask.copy()
    wide[:, 1:] |= mask[:, :-1]
    tall = wide.copy()
    tall[1:] |= wide[:-1]
    return tall


def _touching(runs: Runs, height: int) -> tuple[Integers, Integers]:
    """Pairs of runs in neighbouring rows that touch, corners included."""
    first = np.searchsorted(runs.row, np.arange(height + 1))
    above: list[Integers] = []
    below: list[Integers] = []
    for row in range(1, height):
        a, b, c = first[row - 1], first[row], first[row + 1]
        if a == b or b == c:
            continue
        # Runs of a row are sorted, so those of the row above that touch are a range.
        low = a + np.searchsorted(runs.stop[a:b], runs.start[b:c], side="left")
        high = a + np.searchsorted(runs.start[a:b], runs.stop[b:c], side="right")
        count = np.maximum(high - low, 0)
        below.append(np.repeat(np.arange(b, c), count))
        offsets = np.arange(count.sum()) - np.repeat(np.cumsum(count) - count, count)
        above.append(np.repeat(low, count) + offsets)
    if not above:
        return np.empty(0, np.intp), np.empty(0, np.intp)
    return np.concatenate(above), np.concatenate(below)


def _labels(count: int, left: Integers, right: Integers) -> Integers:
    """One number for all that are linked: each takes the least of its neighbours, until none can.

    Pointers are halved in between, so that long chains take few rounds.
    """
    labels = np.arange(count)
    while True:
        before = labels.copy()
        least = np.minimum(labels[left], labels[right])
        np.minimum.at(labels, labels[left], least)
        np.minimum.at(labels, labels[right], least)
        while True:
            shorter = labels[labels]
            if np.array_equal(shorter, labels):
                break
            labels = shorter
        if np.array_equal(before, labels):
            return labels
