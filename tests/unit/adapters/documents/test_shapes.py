"""Regions, rectangles, crops: geometry by its laws."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from PIL import Image

from tiffin.adapters.documents.crops import as_input, cut
from tiffin.adapters.documents.rectangles import Points, grown, hull_of, smallest_around
from tiffin.adapters.documents.regions import Mask, regions, runs_of
from tiffin.adapters.documents.regions import grown as thickened

MASKS = arrays(np.bool_, st.tuples(st.integers(1, 12), st.integers(1, 12)))
NUMBERS = st.floats(-100, 100).map(lambda value: round(value, 3))
POINTS = st.lists(st.tuples(NUMBERS, NUMBERS), min_size=1, max_size=20).map(np.array)


def flooded(mask: Mask) -> set[frozenset[tuple[int, int]]]:
    """The regions of a mask, found pixel by pixel."""
    left = {(int(y), int(x)) for y, x in np.argwhere(mask)}
    found = set()
    while left:
        waiting, region = [left.pop()], set()
        while waiting:
            y, x = waiting.pop()
            region.add((y, x))
            near = {(y + dy, x + dx) for dy in (-1, 0, 1) for dx in (-1, 0, 1)} & left
            left -= near
            waiting += near
        found.add(frozenset(region))
    return found


@given(MASKS)
def test_regions_are_those_that_a_flood_finds(mask: Mask) -> None:
    def ends(region: frozenset[tuple[int, int]]) -> frozenset[tuple[int, int]]:
        return frozenset(
            (x, y) for y, x in region if (y, x - 1) not in region or (y, x + 1) not in region
        )

    found = {frozenset((int(x), int(y)) for x, y in points) for points in regions(mask)}
    assert found == {ends(region) for region in flooded(mask)}


@given(MASKS)
def test_runs_cover_the_mask_exactly(mask: Mask) -> None:
    drawn = np.zeros_like(mask)
    for row, start, stop in zip(*runs_of(mask), strict=True):
        assert not drawn[row, start:stop].any()
        drawn[row, start:stop] = True
    assert np.array_equal(drawn, mask)


def test_a_long_snake_is_one_region() -> None:
    mask = np.zeros((81, 40), np.bool_)
    mask[::2] = True
    mask[1::4, -1] = True
    mask[3::4, 0] = True
    assert len(regions(mask)) == 1


def test_thickening_sets_right_below_and_across() -> None:
    mask = np.zeros((3, 3), np.bool_)
    mask[0, 0] = True
    assert np.argwhere(thickened(mask)).tolist() == [[0, 0], [0, 1], [1, 0], [1, 1]]


@given(POINTS)
def test_the_smallest_rectangle_holds_all_points(points: Points) -> None:
    corners, (width, height) = smallest_around(points)
    for at in range(4):
        side = corners[(at + 1) % 4] - corners[at]
        outward = np.array([side[1], -side[0]])
        length = float(np.hypot(*outward))
        assert length < 1e-6 or ((points - corners[at]) @ outward / length).max() < 1e-6
    assert width >= 0
    assert height >= 0


@given(POINTS)
def test_it_is_no_larger_than_the_upright_one(points: Points) -> None:
    width, height = smallest_around(points).sides
    upright = np.ptp(points, axis=0)
    assert width * height <= upright[0] * upright[1] + 1e-6


@given(st.floats(-1.4, 1.4), st.floats(5, 80), st.floats(1, 4))
def test_a_turned_rectangle_is_found_again(angle: float, width: float, height: float) -> None:
    along = np.array([math.cos(angle), math.sin(angle)]) * width
    down = np.array([-math.sin(angle), math.cos(angle)]) * height
    points = np.array([along * a + down * b for a in (0, 0.3, 1) for b in (0, 1)])
    found = sorted(smallest_around(points).sides)
    assert found == pytest.approx(sorted((width, height)))


@given(POINTS)
def test_a_hull_turns_one_way(points: Points) -> None:
    hull = hull_of(points)
    if len(hull) > 2:
        before, after = hull - np.roll(hull, 1, axis=0), np.roll(hull, -1, axis=0) - hull
        assert (before[:, 0] * after[:, 1] - before[:, 1] * after[:, 0] > 0).all()


def test_growing_moves_every_side_by_area_over_perimeter() -> None:
    box = smallest_around(np.array([[0.0, 0.0], [10.0, 0.0], [10.0, 4.0], [0.0, 4.0]]))
    larger = grown(box, 1.4)
    moved = 10 * 4 * 1.4 / 28
    assert larger.corners.tolist() == [
        [-moved, -moved],
        [10 + moved, -moved],
        [10 + moved, 4 + moved],
        [-moved, 4 + moved],
    ]


def page() -> Image.Image:
    """A white page with a black bar whose left tenth is grey."""
    pixels = np.full((100, 200, 3), 255, np.uint8)
    pixels[40:60, 50:150] = 0
    pixels[40:60, 50:60] = 128
    return Image.fromarray(pixels)


def test_a_cut_is_what_is_inside() -> None:
    part = np.asarray(cut(page(), np.array([[50.0, 40], [150, 40], [150, 60], [50, 60]])))
    assert part.shape == (20, 100, 3)
    assert (part[:, :10] == 128).all()
    assert (part[:, 10:] == 0).all()


def test_a_tilted_cut_is_level() -> None:
    turned = page().rotate(-10, Image.Resampling.BICUBIC, fillcolor="white")
    angle, middle = math.radians(10), np.array([100.0, 50.0])
    turn = np.array([[math.cos(angle), math.sin(angle)], [-math.sin(angle), math.cos(angle)]])
    corners = (np.array([[50.0, 40], [150, 40], [150, 60], [50, 60]]) - middle) @ turn + middle
    part = np.asarray(cut(turned, corners)).astype(int)
    assert abs(part[5:15, 2:8].mean() - 128) < 12
    assert part[5:15, 14:96].mean() < 8


def test_a_tall_cut_is_laid_down() -> None:
    corners = np.array([[50.0, 10], [60, 10], [60, 90], [50, 90]])
    assert cut(page(), corners, tall=True).size == (80, 10)


def test_what_a_picture_does_not_fill_is_zero() -> None:
    filled = as_input(Image.new("RGB", (10, 10), (255, 0, 0)), 48, 100)
    assert filled.shape == (3, 48, 100)
    assert (filled[:, :, 48:] == 0).all()
    assert filled[:, 0, 0].tolist() == [-1.0, -1.0, 1.0]
