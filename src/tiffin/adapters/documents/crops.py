"""Lines cut out of a page, set level, and brought to the height that a model reads."""

from math import ceil

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from tiffin.adapters.documents.rectangles import Points

Pixels = NDArray[np.uint8]
Floats = NDArray[np.float32]


def cut(page: Image.Image, corners: Points, *, tall: bool = False) -> Image.Image:
    """The rectangle with these corners (clockwise from the top left) as a level picture.

    One that is tall is turned a quarter to the left.
    """
    width = max(1, round(float(np.hypot(*(corners[1] - corners[0])))))
    height = max(1, round(float(np.hypot(*(corners[3] - corners[0])))))
    left, top = corners[0]
    along = (corners[1] - corners[0]) / width
    down = (corners[3] - corners[0]) / height
    if abs(along[1]) * width < 0.5 and abs(down[0]) * height < 0.5:
        box = (round(left), round(top), round(left) + width, round(top) + height)
        picture = page.crop(box)
    else:
        matrix = (along[0], down[0], left, along[1], down[1], top)
        picture = page.transform(
            (width, height),
            Image.Transform.AFFINE,
            tuple(float(number) for number in matrix),
            Image.Resampling.BICUBIC,
            fillcolor="white",
        )
    return picture.transpose(Image.Transpose.ROTATE_90) if tall else picture


def as_input(picture: Image.Image, height: int, width: int) -> Floats:
    """3 x `height` x `width`, from -1 to 1; what the picture doesn't fill on the right is 0."""
    wanted = min(width, max(1, ceil(height * picture.width / picture.height)))
    scaled = picture.resize((wanted, height), Image.Resampling.BILINEAR)
    filled = np.zeros((3, height, width), np.float32)
    filled[:, :, :wanted] = normal(np.asarray(scaled))
    return filled


def normal(pixels: Pixels) -> Floats:
    """Rows x columns x RGB from 0 to 255 as BGR x rows x columns from -1 to 1."""
    # The models were trained on BGR.
    planes: Floats = pixels[:, :, ::-1].transpose(2, 0, 1).astype(np.float32)
    planes /= np.float32(127.5)
    planes -= np.float32(1.0)
    return planes
