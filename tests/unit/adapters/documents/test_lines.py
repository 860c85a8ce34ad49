"""From a map to lines, which way they run, in which order, and what they say."""

import random
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from tests.onnx_graphs import doubling
from tiffin.adapters.documents import detection, orientation, recognition
from tiffin.adapters.documents.rectangles import Points
from tiffin.errors import LoadFailed


def box(x: float, y: float, width: float = 100, height: float = 20) -> list[list[float]]:
    return [[x, y], [x + width, y], [x + width, y + height], [x, y + height]]


def turned(boxes: Points, angle: float) -> Points:
    """Boxes turned around a page's middle, corners in the order of what is then upper left."""
    turn = np.array([[np.cos(angle), np.sin(angle)], [-np.sin(angle), np.cos(angle)]])
    found: Points = (boxes - 500) @ turn + 500
    return found


def test_likely_pixels_become_boxes_in_the_pages_own_pixels() -> None:
    likely = np.zeros((64, 128), np.float32)
    likely[10:20, 20:80] = 0.9
    likely[40:50, 20:40] = 0.4  # too unlikely on the whole
    likely[60, 100] = 0.9  # too small
    [found] = detection.lines_of(likely, (256, 128))
    assert (found.min(axis=0) < [40, 20]).all()
    assert (found.max(axis=0) > [158, 38]).all()


def test_no_line_is_outside_its_page() -> None:
    found = detection.lines_of(np.ones((32, 64), np.float32), (128, 64))
    assert found.min() >= 0
    assert found[..., 0].max() <= 128
    assert found[..., 1].max() <= 64
    assert detection.lines_of(np.zeros((32, 64), np.float32), (128, 64)).shape == (0, 4, 2)


@given(st.integers(1, 3000), st.integers(1, 3000))
def test_a_page_goes_in_whole_in_multiples(width: int, height: int) -> None:
    made = detection.as_input(Image.new("RGB", (width, height)), 640, 320)
    assert made.shape[2] % 32 == made.shape[3] % 32 == 0
    assert 0 < max(made.shape[2:]) <= 640


@given(
    st.lists(
        st.tuples(st.integers(0, 5), st.integers(0, 15)), min_size=1, max_size=20, unique=True
    ),
    st.sampled_from([0.0, 0.05, -0.06, np.pi, np.pi / 2, np.pi + 0.05]),
    st.randoms(),
)
def test_lines_are_read_row_by_row_whichever_way_the_page_lies(
    cells: list[tuple[int, int]], angle: float, order: random.Random
) -> None:
    wanted = sorted(cells, key=lambda cell: (cell[1], cell[0]))
    order.shuffle(cells)
    boxes = turned(np.array([box(150 * column, 60 * row) for column, row in cells]), angle)
    found = [cells[at] for at in orientation.reading_order(boxes)]
    assert found == wanted


def test_a_line_across_the_others_does_not_tilt_the_page() -> None:
    lines = [box(150 * column, 40 * row) for row in range(12) for column in range(2)]
    across = [[500.0, 0], [500, 400], [480, 400], [480, 0]]
    order = orientation.reading_order(np.array([*lines, across])).tolist()
    assert [at for at in order if at < len(lines)] == list(range(len(lines)))


def test_a_short_line_follows_its_page_and_a_long_one_that_is_sure_does_not() -> None:
    boxes = np.array([box(0, 0, 300), box(0, 40, 300), box(0, 80, 30), box(0, 120, 300)])
    upside_down = np.array([0.97, 0.999, 0.1, 0.001])
    assert orientation.turned(upside_down, boxes).tolist() == [True, True, True, False]


def test_a_number_of_one_digit_runs_as_its_page_does() -> None:
    digit, line, stamp = box(0, 0, 12, 20), box(0, 0, 200, 20), box(0, 0, 20, 100)
    assert orientation.tall(np.array([digit, line, stamp])).tolist() == [False, False, True]
    sideways = [box(0, 0, 20, 12), box(0, 0, 20, 200), box(0, 0, 100, 20)]
    assert orientation.tall(np.array(sideways)).tolist() == [True, True, False]


def test_corners_begin_where_the_text_does() -> None:
    level, tall = box(0, 0), box(0, 0, 20, 100)
    boxes = np.array([level, level, tall, tall])
    found = orientation.as_read(boxes, np.array([False, True, False, True]))
    assert found[:, 0].tolist() == [[0, 0], [100, 20], [20, 0], [0, 100]]


@given(st.lists(st.integers(1, 2000), max_size=30), st.integers(1, 8))
def test_every_line_is_in_one_batch_of_lines_of_its_length(widths: list[int], size: int) -> None:
    lines = [Image.new("RGB", (width, 20)) for width in widths]
    pictures, order = recognition.batches(lines, size)
    assert sorted(order.tolist()) == list(range(len(lines)))
    assert sum(len(batch) for batch in pictures) == len(lines)
    assert all(len(batch) <= size for batch in pictures)
    assert [batch.shape[3] for batch in pictures] == sorted(batch.shape[3] for batch in pictures)


def test_repeats_and_blanks_are_not_letters() -> None:
    alphabet = ["", "a", "b", " "]
    classes = np.array([0, 1, 1, 0, 1, 2, 2, 3, 0])
    likely = np.array([0.1, 0.9, 0.2, 0.1, 0.7, 0.8, 0.1, 0.6, 0.1], np.float32)
    text, sure = recognition.text_of(classes, likely, alphabet)
    assert text == "aab"
    assert sure == pytest.approx((0.9 + 0.7 + 0.8 + 0.6) / 4)
    assert recognition.text_of(np.zeros(4, int), likely[:4], alphabet) == ("", 0.0)


def test_a_recognizer_without_an_alphabet_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "model.onnx"
    file.write_bytes(doubling())
    with pytest.raises(LoadFailed, match="no alphabet"):
        recognition.alphabet_of(file)
