"""Which way lines run, and the order in which they are read."""

from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from tiffin.adapters.documents.crops import is_tall
from tiffin.adapters.documents.rectangles import Points

SURE: Final = 0.98
LONG: Final = 4.0  # times as wide as high: a line of this length may differ from its page
SAME_LINE: Final = 0.5  # of the median height: pieces that are no further apart are on one line

Turned = NDArray[np.bool_]


def turned(upside_down: NDArray[Any], boxes: Points) -> Turned:
    """Which lines of a page stand on their heads, by the likelihood for each.

    Short lines are easily mistaken, so that a page decides by its long ones, level and tall lines
    apart; only a long line of which that is sure goes its own way.
    """
    width = np.hypot(*(boxes[:, 1] - boxes[:, 0]).T)
    height = np.hypot(*(boxes[:, 3] - boxes[:, 0]).T)
    long_side, short_side = np.maximum(width, height), np.maximum(np.minimum(width, height), 1.0)
    tall = np.array([is_tall(box) for box in boxes], dtype=np.bool_)
    decided = np.zeros(len(boxes), dtype=np.bool_)
    for kind in (tall, ~tall):
        vote = ((2 * upside_down - 1) * long_side)[kind].sum()
        decided[kind] = vote > 0
    stubborn = long_side >= LONG * short_side
    decided[stubborn & (upside_down > SURE)] = True
    decided[stubborn & (upside_down < 1 - SURE)] = False
    return decided


def as_read(boxes: Points, upside_down: Turned) -> Points:
    """The corners of each line from where its text begins, clockwise as it is read."""
    starts = [
        int(is_tall(box)) + 2 * int(flag) for box, flag in zip(boxes, upside_down, strict=True)
    ]
    rolled = [np.roll(box, -start, axis=0) for box, start in zip(boxes, starts, strict=True)]
    return np.array(rolled).reshape(-1, 4, 2)


def reading_order(boxes: Points) -> NDArray[np.intp]:
    """The order of lines whose corners are as read: downwards, and along each line of pieces.

    All by the direction in which most of the page's text runs, tilted pages included.
    """
    if not len(boxes):
        return np.empty(0, np.intp)
    runs = boxes[:, 1] - boxes[:, 0]
    longest = runs[np.argsort(-np.hypot(*runs.T))[: max(1, len(runs) // 2)]]
    angle = np.angle(np.exp(1j * np.arctan2(longest[:, 1], longest[:, 0])).sum())
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
