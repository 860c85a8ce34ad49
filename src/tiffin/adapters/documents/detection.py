"""Where lines of text are: a page as the detector takes it, and its map as rectangles.

The map says for each pixel how likely it is the inside of a line, shrunk (differentiable
binarization, https://arxiv.org/abs/1911.08947): what is likely is joined to regions, each gets the
smallest rectangle around it, and that is grown back.
"""

from math import ceil, floor
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageDraw

from tiffin.adapters.documents import rectangles, regions
from tiffin.adapters.documents.crops import Floats, normal
from tiffin.adapters.documents.rectangles import Points, Rectangle

MULTIPLE: Final = 32  # of both sides, as the network's steps down demand
INSIDE: Final = 0.3  # from this likelihood on a pixel is text
LEAST_SCORE: Final = 0.5
LEAST_SIDE: Final = 3.0  # of a region, in the map's pixels
GROWTH: Final = 1.6
MOST_REGIONS: Final = 2000


def as_input(page: Image.Image, longest: int, shortest: int) -> Floats:
    """A page as 1 x 3 x rows x columns; both are its sides, scaled alike but for rounding.

    It is made smaller to `longest`, or larger to `shortest` as far as that allows.
    """
    small, large = sorted(page.size)
    scale = min(longest / large, max(1.0, shortest / small))
    width, height = (max(MULTIPLE, round(side * scale / MULTIPLE) * MULTIPLE) for side in page.size)
    scaled = page.resize((width, height), Image.Resampling.BILINEAR)
    return normal(np.asarray(scaled))[None]


def lines_of(likely: NDArray[Any], page: tuple[int, int]) -> Points:
    """The lines on a page of this width and height: N x 4 corners x (x, y), none outside it."""
    height, width = likely.shape
    scale = np.array([page[0] / width, page[1] / height])
    found = []
    for points in regions.regions(regions.grown(likely > INSIDE))[:MOST_REGIONS]:
        around = rectangles.smallest_around(points)
        if min(around.sides) < LEAST_SIDE or _score(likely, around) < LEAST_SCORE:
            continue
        corners = rectangles.grown(around, GROWTH).corners * scale
        found.append(np.clip(corners, 0, [page[0], page[1]]))
    return np.array(found) if found else np.empty((0, 4, 2))


def _score(likely: NDArray[Any], around: Rectangle) -> float:
    """How likely its pixels are text, on average."""
    corners = around.corners
    left, top = (max(0, floor(value)) for value in corners.min(axis=0))
    right, bottom = (ceil(value) + 1 for value in corners.max(axis=0))
    part = likely[top:bottom, left:right]
    mask = Image.new("1", (part.shape[1], part.shape[0]))
    outline = [(float(x) - left, float(y) - top) for x, y in corners]
    ImageDraw.Draw(mask).polygon(outline, fill=1, outline=1)
    inside = part[np.asarray(mask)]
    return float(inside.mean()) if inside.size else 0.0
