"""Which way lines run, and the order in which they are read."""

from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from tiffin.adapters.documents.rectangles import Points

SURE: Final = 0.98
LONG: Final = 4.0  # times as wide as high: a line of this length may differ from its page
SAME_LINE: Final = 0.5  # of the median height: pieces that are no further apart are on one line

CLEARLY: Final = 1.5  # times as high as wide, or as wide as high: which way a line runs
AGAINST: Final = 3.0  # the same for a line that runs otherwise than its page

Flags = NDArray[np.bool_]


def tall(boxes: Points) -> Flags:
    """Which lines of a page run downwards or upwards.

    A page decides by the length of what is clear: a number of one or two digits has hardly a
    direction of its own.
    """
    width, height = _sides(boxes)
    downwards = height[height >= CLEARLY * width].sum()
    along = width[width >= CLEARLY * height].sum()
    if downwards > along:
        return width < AGAINST * height
    return height >= AGAINST * width


def turned(upside_down: NDArray[Any], boxes: Points) -> Flags:
    """Which lines of a page stand on their heads, by the likelihood for each.

    Short lines are easily mistaken, so that a page decides by its long ones, level and tall lines
    apart; only a long line of which that is sure goes its own way.
    """
    width, height = _sides(boxes)
    long_side, short_side = np.maximum(width, height), np.minimum(width, height)
    decided = np.zeros(len(boxes), dtype=np.bool_)
    for kind in (tall(boxes), ~tall(boxes)):
        vote = ((2 * upside_down - 1) * long_side)[kind].sum()
        decided[kind] = vote > 0
    stubborn = long_side >= LONG * short_side
    decided[stubborn & (upside_down > SURE)] = True
    decided[stubborn & (upside_down < 1 - SURE)] = False
    return decided


def as_read(boxes: Points, upside_down: Flags) -> Points:
    """The corners of each line from where its text begins, clockwise as it is read."""
    starts = tall(boxes).astype(int) + 2 * upside_down.astype(int)
    rolled = [np.roll(box, -start, axis=0) for box, start in zip(boxes, starts, strict=True)]
    return np.array(rolled).reshape(-1, 4, 2)


def reading_order(boxes: Points) -> NDArray[np.intp]:
    """The order of lines whose corners are as read: downwards, and along each line of pieces.

    All by the direction in which most of the page's text runs, tilted pages included.
    """
    if not len(boxes):
        return np.empty(0, np.intp)
    angle = _direction(boxes[:, 1] - boxes[:, 0])
    along = np.array([np.cos(angle), np.sin(angle)])
    down = np.array([-along[1], along[0]])
    centre = boxes.mean(axis=1)
    across, under = centre @ along, centre @ down
    step = SAME_LINE * float(np.median(np.hypot(*(boxes[:, 3] - boxes[:, 0]).T)))
    by_height = np.argsort(under, kind="stable")
    rows = np.zeros(len(boxes), np.intp)
    row, last = 0, under[by_height[0]]
    for at in by_height:
        if under[at] - last > step:
            row, last = row + 1, under[at]
        rows[at] = row
    return np.lexsort((across, rows))


def _direction(runs: NDArray[np.float64]) -> float:
    """The angle in which most of the text runs; what runs across that has no say."""
    as_numbers = runs[:, 0] + 1j * runs[:, 1]
    lengths = np.abs(as_numbers)
    quarters = np.round(np.angle(as_numbers) / (np.pi / 2)).astype(int) % 4
    most = np.bincount(quarters, weights=lengths, minlength=4).argmax()
    alike = quarters == most
    longest = alike & (lengths >= np.median(lengths[alike]))
    return float(np.angle((as_numbers[longest] / np.maximum(lengths[longest], 1e-9)).sum()))


def _sides(boxes: Points) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Widths and heights, at least a pixel each."""
    width = np.hypot(*(boxes[:, 1] - boxes[:, 0]).T)
    height = np.hypot(*(boxes[:, 3] - boxes[:, 0]).T)
    return np.maximum(width, 1.0), np.maximum(height, 1.0)
