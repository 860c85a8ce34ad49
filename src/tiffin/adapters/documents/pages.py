"""A document's bytes to its pages as pictures; what is wrong with a file is told by name.

Only what a file's first bytes say that it is gets opened, and no picture is decoded before its size
is known to be within bounds.
"""

import binascii
import io
import re
from base64 import b64decode
from collections.abc import Iterator
from itertools import islice
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageOps, ImageSequence, UnidentifiedImageError

from tiffin.adapters.documents.drawing import Bounds, Refused, drawn
from tiffin.errors import PayloadTooLarge, SchemaViolation

FORMATS: Final = ("PNG", "JPEG", "TIFF", "WEBP", "BMP", "GIF")
PDF: Final = b"%PDF-"
WHITE: Final = "white"
STRIP_PIXELS: Final = 1 << 20

# What readers of PDF allow before its header.
_HEADER_WITHIN: Final = 1024
_BASE64: Final = re.compile(rb"[A-Za-z0-9+/\s]+={0,2}\s*")
_DATA_URL: Final = re.compile(rb"data:[\w.+/-]*;base64,")


def pages_of(document: bytes, bounds: Bounds) -> list[Image.Image]:
    """The pages in RGB; raises `SchemaViolation` or `PayloadTooLarge` for what the file is."""
    if not document:
        raise _faulty("the document is empty")
    if PDF in document[:_HEADER_WITHIN]:
        return list(_pdf_pages(document, bounds))
    return list(_image_pages(document, bounds))


def decoded(text: bytes) -> bytes:
    """The bytes that base64 says, with or without `data:…;base64,` before it."""
    head = _DATA_URL.match(text)
    text = text[head.end() :] if head else text
    if not _BASE64.fullmatch(text):
        raise _faulty("the document isn't base64")
    try:
        return b64decode(text)
    except binascii.Error:
        raise _faulty("the document isn't base64: its end is missing") from None


def _pdf_pages(document: bytes, bounds: Bounds) -> Iterator[Image.Image]:
    try:
        for page in drawn(document, bounds):
            size = (page.width, page.height)
            yield Image.frombuffer("RGB", size, page.rows, "raw", "RGB", page.stride, 1)
    except Refused as refused:
        if refused.large:
            raise PayloadTooLarge(refused.told, param="document") from None
        raise _faulty(refused.told) from None


def _image_pages(document: bytes, bounds: Bounds) -> Iterator[Image.Image]:
    try:
        image = Image.open(io.BytesIO(document), formats=FORMATS)
    except UnidentifiedImageError:
        told = "PDF, PNG, JPEG, TIFF, WebP, BMP or GIF"
        raise _faulty(f"the document is none of what is read here: {told}") from None
    except (Image.DecompressionBombError, Image.DecompressionBombWarning):
        raise _too_many_pixels("too many pixels", bounds) from None
    except Exception as error:  # noqa: BLE001 - of a broken file a decoder raises anything
        raise _faulty(f"the image is broken: {_reason(error)}") from None
    kind = image.format or "image"
    left = bounds.pixels
    try:
        # Of what moves, the first picture; a TIFF's are pages.
        count = getattr(image, "n_frames", 1) if kind == "TIFF" else 1
        if count > bounds.pages:
            told = f"the TIFF has {count} pages; at most {bounds.pages} are read"
            raise PayloadTooLarge(told, param="document")
        for frame in islice(ImageSequence.Iterator(image), count):
            left -= frame.width * frame.height
            if left < 0:
                raise _too_many_pixels(f"{frame.width} x {frame.height} pixels", bounds)
            yield _upright(frame)
    except PayloadTooLarge:
        raise
    except Exception as error:  # noqa: BLE001 - of a broken file a decoder raises anything
        raise _faulty(f"the {kind} image is broken: {_reason(error)}") from None


def _upright(frame: Image.Image) -> Image.Image:
    """A picture as it is meant to be seen: turned as its camera noted, on white paper, in RGB."""
    frame.load()
    if frame.mode.startswith("I"):  # 16 or 32 bits of grey
        frame = Image.fromarray(_shallow(np.asarray(frame)))
    turned = ImageOps.exif_transpose(frame)
    if turned.has_transparency_data:
        turned = turned.convert("RGBA")
        paper = Image.new("RGBA", turned.size, WHITE)
        turned = Image.alpha_composite(paper, turned)
    return turned.convert("RGB")


def _shallow(deep: NDArray[Any]) -> NDArray[np.uint8]:
    """Grey of 8 bits whose brightest is as bright; some rows at a time, as floats take room."""
    scale = np.float32(255.0 / max(float(deep.max()), 255.0))
    grey = np.empty(deep.shape, np.uint8)
    rows = max(1, STRIP_PIXELS // max(1, deep.shape[1]))
    for at in range(0, len(deep), rows):
        strip = deep[at : at + rows].astype(np.float32)
        strip *= scale
        grey[at : at + rows] = strip.clip(0, 255, out=strip)
    return grey


def _faulty(told: str) -> SchemaViolation:
    return SchemaViolation(told, param="document")


def _too_many_pixels(told: str, bounds: Bounds) -> PayloadTooLarge:
    return PayloadTooLarge(
        f"the image has {told}; at most {bounds.pixels} in all are read: send it smaller",
        param="document",
    )


def _reason(error: Exception) -> str:
    return " ".join(str(error).split())[:100] or type(error).__name__
