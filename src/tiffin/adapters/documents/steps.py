"""The functions of the pipeline that reads documents, between its three models.

read, detect_input, [detect], find_lines, orient_input, [orient], recognise_input, [recognise],
spell, arrange. Pages and lines are many, each of its own size.
"""

import io
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageDraw, ImageFont

from tiffin.adapters.documents import detection, orientation, recognition
from tiffin.adapters.documents.crops import as_input, cut
from tiffin.adapters.documents.drawing import Bounds
from tiffin.adapters.documents.pages import WHITE, decoded, pages_of
from tiffin.errors import LoadFailed, SchemaViolation
from tiffin.serving.pipeline.functions import Counted, step

Array = NDArray[Any]

PAGES = "UINT8[-1,-1,3]*"
PAGE = "UINT8[-1,-1,3]"
ORIENT_HEIGHT, ORIENT_WIDTH = 48, 192


def example() -> dict[str, Array]:
    """A page with a word on it, for a warm-up."""
    page = Image.new("RGB", (320, 160), WHITE)
    font = ImageFont.load_default(32)
    ImageDraw.Draw(page).text((40, 60), "Invoice 42", fill="black", font=font)
    file = io.BytesIO()
    page.save(file, "PNG")
    return {
        "document": np.frombuffer(file.getvalue(), np.uint8),
        "base64": np.array([b""], object),
    }


@step(
    takes={"document": "UINT8[-1]?", "base64": "BYTES[1]?"},
    gives={"pages": PAGES},
    example=example,
)
def read(
    document: Array | None = None,
    base64: Array | None = None,
    *,
    max_pages: int = Bounds.pages,
    max_pixels: int = Bounds.pixels,
    dpi: int = Bounds.dpi,
    max_seconds: float = Bounds.seconds,
) -> Counted:
    """A document's pages, from its bytes or from base64 of them."""
    content = b"" if document is None else document.tobytes()
    if not content and base64 is not None:
        content = decoded(base64[0])
    elif document is None:
        raise SchemaViolation("expected the input 'document' or 'base64'", param="inputs")
    pages = pages_of(content, Bounds(max_pages, max_pixels, dpi, max_seconds))
    pixels = sum(page.width * page.height for page in pages)
    return Counted({"pages": [np.asarray(page) for page in pages]}, len(pages), pixels)


@step(takes={"page": PAGE}, gives={"image": "FP32[1,3,-1,-1]"})
def detect_input(page: Array, *, longest: int = 1472, shortest: int = 736) -> dict[str, Array]:
    """A page as the detector takes it."""
    return {"image": detection.as_input(Image.fromarray(page), longest, shortest)}


@step(takes={"page": PAGE, "likely": "FP32[1,1,-1,-1]"}, gives={"boxes": "FP32[-1,4,2]"})
def find_lines(page: Array, likely: Array) -> dict[str, Array]:
    """The lines of a page, from the detector's map."""
    height, width = page.shape[:2]
    return {"boxes": detection.lines_of(likely[0, 0], (width, height)).astype(np.float32)}


@step(
    takes={"pages": PAGES, "boxes": "FP32[-1,4,2]*"},
    gives={"lines": PAGES, "batches": "FP32[-1,3,48,192]*"},
)
def orient_input(
    pages: list[Array], boxes: list[Array], *, batch: int = 16
) -> dict[str, list[Array]]:
    """The lines of all pages, cut out, and in batches as the classifier takes them."""
    lines = []
    for page, found in zip(pages, boxes, strict=True):
        picture = Image.fromarray(page)
        corners = found.astype(np.float64)
        lines += [
            cut(picture, box, tall=bool(flag))
            for box, flag in zip(corners, orientation.tall(corners), strict=True)
        ]
    small = [as_input(line, ORIENT_HEIGHT, ORIENT_WIDTH) for line in lines]
    parts = [np.stack(small[at : at + batch]) for at in range(0, len(small), batch)]
    return {"lines": [np.asarray(line) for line in lines], "batches": parts}


@step(
    takes={"lines": PAGES, "boxes": "FP32[-1,4,2]*", "directions": "FP32[-1,2]*"},
    gives={"batches": "FP32[-1,3,48,-1]*", "order": "INT64[-1]", "turned": "BOOL[-1]"},
)
def recognise_input(
    lines: list[Array], boxes: list[Array], directions: list[Array], *, batch: int = 4
) -> dict[str, Any]:
    """All lines the right way up, in batches as the recognizer takes them."""
    upside_down = np.concatenate([*directions, np.empty((0, 2), np.float32)])[:, 1]
    turned: list[bool] = []
    for found in boxes:
        part = upside_down[len(turned) : len(turned) + len(found)]
        turned += orientation.turned(part, found.astype(np.float64)).tolist()
    upright = [
        Image.fromarray(line[::-1, ::-1] if flag else line)
        for line, flag in zip(lines, turned, strict=True)
    ]
    made = recognition.batches(upright, batch)
    return {
        "batches": made.pictures,
        "order": made.order,
        "turned": np.array(turned, np.bool_),
    }


@step(
    takes={"order": "INT64[-1]", "classes": "INT64[-1,-1]*", "likely": "FP32[-1,-1]*"},
    gives={"text": "BYTES[-1]", "confidence": "FP32[-1]"},
)
def spell(
    order: Array,
    classes: list[Array],
    likely: list[Array],
    *,
    alphabet: str = "recognise.onnx",
    files: Mapping[str, Path],
) -> dict[str, Array]:
    """What each line says, and how sure that is; `alphabet` names the file with the letters."""
    if alphabet not in files:
        raise LoadFailed(f"the pipeline has no file '{alphabet}' with the recognizer's alphabet")
    letters = recognition.alphabet_of(files[alphabet])
    texts = np.full(len(order), b"", object)
    confidences = np.zeros(len(order), np.float32)
    rows = iter(order.tolist())
    for steps, sure in zip(classes, likely, strict=True):
        for at in range(len(steps)):
            line = next(rows)
            text, confidences[line] = recognition.text_of(steps[at], sure[at], letters)
            texts[line] = text.encode()
    return {"text": texts, "confidence": confidences}


@step(
    takes={
        "pages": PAGES,
        "boxes": "FP32[-1,4,2]*",
        "turned": "BOOL[-1]",
        "text": "BYTES[-1]",
        "confidence": "FP32[-1]",
    },
    gives={
        "text": "BYTES[-1]",
        "confidence": "FP32[-1]",
        "box": "FP32[-1,4,2]",
        "page": "INT32[-1]",
        "size": "INT32[-1,2]",
    },
)
def arrange(
    pages: list[Array],
    boxes: list[Array],
    turned: Array,
    text: Array,
    confidence: Array,
    *,
    least: float = 0.5,
) -> dict[str, Array]:
    """The document's lines in the order in which they are read, those that are sure enough."""
    order, at = [np.empty(0, np.intp)], 0
    corners = np.empty((len(text), 4, 2), np.float32)
    numbers = np.empty(len(text), np.int32)
    for number, found in enumerate(boxes):
        end = at + len(found)
        corners[at:end] = orientation.as_read(found.astype(np.float64), turned[at:end])
        numbers[at:end] = number
        order.append(at + orientation.reading_order(corners[at:end].astype(np.float64)))
        at = end
    kept = np.concatenate(order)
    kept = kept[(confidence[kept] >= least) & (text[kept] != b"")]
    return {
        "text": text[kept],
        "confidence": confidence[kept],
        "box": corners[kept],
        "page": numbers[kept],
        "size": np.array([page.shape[1::-1] for page in pages], np.int32),
    }
