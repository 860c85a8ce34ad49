"""Lines' pictures in batches of about the same length, and the classes of each step as text."""

from functools import lru_cache
from pathlib import Path
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from tiffin.adapters.documents.crops import Floats, as_input
from tiffin.dialects.onnx_file import notes
from tiffin.errors import LoadFailed

HEIGHT: Final = 48
LEAST_WIDTH: Final = 160  # the network was trained on 320; less is read as well, and sooner
MOST_WIDTH: Final = 3200
STEP: Final = 32  # widths are rounded up to this, so that more batches have the same shape
BLANK: Final = 0
ALPHABET: Final = "character"


class Batches(NamedTuple):
    """Pictures as the recognizer takes them; `order` says which line each row was, one by one."""

    pictures: list[Floats]
    order: NDArray[np.int64]


def batches(lines: list[Image.Image], size: int) -> Batches:
    """Lines by length, at most `size` a batch, padded to the longest of it."""
    widths = [_width(line) for line in lines]
    order = sorted(range(len(lines)), key=widths.__getitem__)
    pictures = []
    for at in range(0, len(order), size):
        chosen = order[at : at + size]
        width = max(widths[line] for line in chosen)
        pictures.append(np.stack([as_input(lines[line], HEIGHT, width) for line in chosen]))
    return Batches(pictures, np.array(order, np.int64))


def text_of(classes: NDArray[Any], likely: NDArray[Any], alphabet: list[str]) -> tuple[str, float]:
    """What one row's steps say: repeats are one letter, blanks are none; and how sure that is."""
    kept = (classes != BLANK) & np.r_[True, classes[1:] != classes[:-1]]
    text = "".join(alphabet[number] for number in classes[kept])
    return text.strip(), float(likely[kept].mean()) if kept.any() else 0.0


@lru_cache(4)
def alphabet_of(path: Path) -> list[str]:
    """The letters of a recognizer by class, from its file; raises `LoadFailed`."""
    letters = notes(path.read_bytes()).get(ALPHABET)
    if not letters:
        raise LoadFailed("the recognizer's file has no alphabet")
    return ["", *letters.split("\n"), " "]


def _width(line: Image.Image) -> int:
    width = HEIGHT * line.width / max(line.height, 1)
    rounded = -(-int(width) // STEP) * STEP
    return min(MOST_WIDTH, max(LEAST_WIDTH, rounded))
