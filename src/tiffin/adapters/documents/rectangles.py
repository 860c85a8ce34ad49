"""Rectangles at any angle: the smallest around points, and one grown on all sides."""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

Points = NDArray[np.float64]


class Rectangle(NamedTuple):
    """`corners` (4 x 2: x, y) go clockwise from the top left; `sides` are width and height."""

    corners: Points
    sides: tuple[float, float]


def smallest_around(points: Points) -> Rectangle:
    """The rectangle of least area that holds all points; one of its sides lies on their hull."""
    hull = hull_of(points)
    edges = np.roll(hull, -1, axis=0) - hull
    lengths = np.hypot(edges[:, 0], edges[:, 1])
    along = np.array([[1.0, 0.0]])
    if lengths.any():
        along = np.concatenate([along, edges[lengths > 0] / lengths[lengths > 0, None]])
    across = np.stack([-along[:, 1], along[:, 0]], axis=1)
    first, second = hull @ along.T, hull @ across.T
    width, height = np.ptp(first, axis=0), np.ptp(second, axis=0)
    best = int(np.argmin(width * height))
    low = np.array([first[:, best].min(), second[:, best].min()])
    high = np.array([first[:, best].max(), second[:, best].max()])
    axes = np.stack([along[best], across[best]])
    inside = np.array([low, [high[0], low[1]], high, [low[0], high[1]]])
    return upright(inside @ axes)


def grown(rectangle: Rectangle, ratio: float) -> Rectangle:
    """Grown on all sides by its area over its perimeter, times `ratio`."""
    width, height = rectangle.sides
    distance = width * height * ratio / max(2 * (width + height), 1e-9)
    corners = rectangle.corners
    along = _unit(corners[1] - corners[0]) * distance
    down = _unit(corners[3] - corners[0]) * distance
    shifts = np.array([-along - down, along - down, along + down, down - along])
    return Rectangle(corners + shifts, (width + 2 * distance, height + 2 * distance))


def upright(corners: Points) -> Rectangle:
    """The corners in the order of a rectangle that is read: from the top left, clockwise."""
    by_x = corners[np.argsort(corners[:, 0], kind="stable")]
    left = by_x[:2][np.argsort(by_x[:2, 1], kind="stable")]
    right = by_x[2:][np.argsort(by_x[2:, 1], kind="stable")]
    ordered = np.array([left[0], right[0], right[1], left[1]])
    width = float(np.hypot(*(ordered[1] - ordered[0])))
    height = float(np.hypot(*(ordered[3] - ordered[0])))
    return Rectangle(ordered, (width, height))


def hull_of(points: Points) -> Points:
    """The corners of the convex hull, in order around it (Andrew's monotone chain)."""
    unique = np.unique(points, axis=0)
    if len(unique) < 3:
        return unique
    listed = [(float(x), float(y)) for x, y in unique]
    return np.array(_chain(listed)[:-1] + _chain(listed[::-1])[:-1])


def _chain(points: list[tuple[float, float]]) -> list[tuple[float, float]]:
    chain: list[tuple[float, float]] = []
    for x, y in points:
        while len(chain) > 1:
            (ax, ay), (bx, by) = chain[-2:]
            if (bx - ax) * (y - ay) - (by - ay) * (x - ax) > 0:
                break
            chain.pop()
        chain.append((x, y))
    return chain


def _unit(vector: Points) -> Points:
    length = float(np.hypot(*vector))
    return vector / length if length else vector
