"""A document's bytes to pages, and what is told of a file that can't be read."""

import contextlib
import io
import struct
import time
import tracemalloc
import zlib
from base64 import b64encode

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image, ImageDraw

from tiffin.adapters.documents.drawing import Bounds
from tiffin.adapters.documents.pages import decoded, pages_of
from tiffin.errors import PayloadTooLarge, SchemaViolation

SMALL = Bounds(pages=3, pixels=100_000, dpi=72)


def picture(width: int = 100, height: int = 50, mode: str = "RGB") -> Image.Image:
    image = Image.new(mode, (width, height), 255 if mode in ("L", "1") else "white")
    ImageDraw.Draw(image).rectangle((10, 10, 20, 20), fill=0 if mode in ("L", "1") else "black")
    return image


def saved(image: Image.Image, kind: str, **more: object) -> bytes:
    file = io.BytesIO()
    image.save(file, kind, **more)
    return file.getvalue()


def pdf(pages: int = 1) -> bytes:
    return saved(
        picture(), "PDF", save_all=True, append_images=[picture()] * (pages - 1), resolution=72
    )


def encrypted_pdf() -> bytes:
    """A PDF that says that it is encrypted, by a password that nobody has."""
    parts = [
        b"%PDF-1.4\n",
        b"1 0 obj<</Type/Catalog/Pages 2 0 R>>endobj\n",
        b"2 0 obj<</Type/Pages/Kids[3 0 R]/Count 1>>endobj\n",
        b"3 0 obj<</Type/Page/Parent 2 0 R/MediaBox[0 0 100 100]>>endobj\n",
        b"4 0 obj<</Filter/Standard/V 1/R 2/P -4/O<%b>/U<%b>>>endobj\n" % (b"28" * 32, b"51" * 32),
    ]
    table, at = b"xref\n0 5\n0000000000 65535 f \n", len(parts[0])
    for part in parts[1:]:
        table += b"%010d 00000 n \n" % at
        at += len(part)
    end = b"trailer<</Size 5/Root 1 0 R/Encrypt 4 0 R/ID[<01><01>]>>\nstartxref\n%d\n%%%%EOF\n" % at
    return b"".join(parts) + table + end


def bomb() -> bytes:
    """A PNG of a few bytes that says that it is 50,000 by 50,000."""

    def chunk(name: bytes, content: bytes) -> bytes:
        checked = name + content
        return struct.pack(">I", len(content)) + checked + struct.pack(">I", zlib.crc32(checked))

    head = struct.pack(">IIBBBBB", 50_000, 50_000, 8, 2, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + chunk(b"IEND", b"")


@pytest.mark.parametrize("kind", ["PNG", "JPEG", "TIFF", "WEBP", "BMP", "GIF"])
def test_images_are_read(kind: str) -> None:
    [page] = pages_of(saved(picture(), kind), SMALL)
    assert (page.mode, page.size) == ("RGB", (100, 50))
    assert max(page.getpixel((15, 15))) < 30  # type: ignore[arg-type]
    assert min(page.getpixel((60, 30))) > 225  # type: ignore[arg-type]


@pytest.mark.parametrize("mode", ["1", "L", "P", "RGBA", "CMYK", "I;16"])
def test_every_mode_becomes_colours(mode: str) -> None:
    if mode == "I;16":
        image = picture(mode="L").convert("I").point(lambda value: value * 257)
        content = saved(image.convert("I;16"), "PNG")
    else:
        content = saved(picture().convert(mode), "TIFF")
    [page] = pages_of(content, SMALL)
    assert page.getpixel((15, 15)) == (0, 0, 0)
    assert page.getpixel((60, 30)) == (255, 255, 255)


def test_a_deep_image_takes_little_room_beside_its_pixels() -> None:
    ramp = np.tile(np.linspace(0, 40_000, 3000).astype(np.uint16), (2000, 1))
    content = saved(Image.fromarray(ramp), "PNG", compress_level=1)
    tracemalloc.start()
    try:
        [page] = pages_of(content, Bounds(pixels=6_000_000))
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < len(content) + 12 * ramp.size
    assert page.getpixel((0, 9)) == (0, 0, 0)
    assert page.getpixel((1500, 1999)) == (127, 127, 127)
    assert page.getpixel((2999, 0)) == (255, 255, 255)


def test_what_is_transparent_is_white_paper() -> None:
    [page] = pages_of(saved(Image.new("RGBA", (20, 10), (0, 0, 0, 0)), "PNG"), SMALL)
    assert page.getpixel((5, 5)) == (255, 255, 255)


def test_an_image_is_turned_as_its_camera_noted() -> None:
    exif = Image.Exif()
    exif[0x0112] = 6
    [page] = pages_of(saved(picture(), "JPEG", exif=exif), SMALL)
    assert page.size == (50, 100)


def test_a_tiff_has_pages_and_what_moves_has_one() -> None:
    frames = {"save_all": True, "append_images": [picture(80, 40)]}
    assert [page.size for page in pages_of(saved(picture(), "TIFF", **frames), SMALL)] == [
        (100, 50),
        (80, 40),
    ]
    assert len(pages_of(saved(picture(), "GIF", **frames), SMALL)) == 1


def test_a_pdf_is_drawn_in_the_resolution_asked_for() -> None:
    pages = pages_of(pdf(2), Bounds(dpi=144))
    assert [page.size for page in pages] == [(200, 100), (200, 100)]


def test_a_large_page_is_drawn_as_fine_as_its_bounds_allow() -> None:
    [page] = pages_of(pdf(), Bounds(pixels=1250, dpi=720))
    assert page.size == (50, 25)


def endless_pdf() -> bytes:
    """A PDF of a few kilobytes that takes minutes to draw."""
    curves = zlib.compress(b"0 0 m 100 100 l 90 1 10 2 50 90 c S " * 1_000_000, 9)
    objects = [
        b"<</Type/Catalog/Pages 2 0 R>>",
        b"<</Type/Pages/Kids[3 0 R]/Count 1>>",
        b"<</Type/Page/Parent 2 0 R/MediaBox[0 0 600 800]/Contents 4 0 R>>",
        b"<</Filter/FlateDecode/Length %d>>stream\n%b\nendstream" % (len(curves), curves),
    ]
    told = b"".join(b"%d 0 obj%b endobj\n" % (at, one) for at, one in enumerate(objects, 1))
    return b"%PDF-1.4\n" + told + b"trailer<</Size 5/Root 1 0 R>>\n%%EOF\n"


def test_a_pdf_that_takes_too_long_is_given_up() -> None:
    began = time.monotonic()
    with pytest.raises(PayloadTooLarge, match=r"takes longer than 0\.5 s"):
        pages_of(endless_pdf(), Bounds(seconds=0.5))
    assert time.monotonic() - began < 5


@pytest.mark.parametrize(
    ("content", "error", "told"),
    [
        (b"", SchemaViolation, "the document is empty"),
        (b"hello", SchemaViolation, "none of what is read here: PDF, PNG"),
        (encrypted_pdf(), SchemaViolation, "the PDF is encrypted"),
        (pdf()[:200], SchemaViolation, "the PDF is broken"),
        (b"%PDF-1.7 nothing else", SchemaViolation, "the PDF is broken"),
        (saved(picture(), "PNG")[:-30], SchemaViolation, "the PNG image is broken"),
        (saved(picture(), "JPEG")[:300], SchemaViolation, "the (JPEG )?image is broken"),
        (saved(picture(), "TIFF")[:40], SchemaViolation, "none of what|is broken"),
        (saved(picture(400, 300), "PNG"), PayloadTooLarge, "400 x 300 pixels; at most 100000"),
        (bomb(), PayloadTooLarge, "pixels; at most 100000"),
        (pdf(4), PayloadTooLarge, "the PDF has 4 pages; at most 3"),
    ],
    ids=[
        *("empty", "text", "encrypted", "cut pdf", "head only", "cut png", "cut jpeg", "cut tiff"),
        *("large", "bomb", "many pages"),
    ],
)
@pytest.mark.filterwarnings("ignore")  # the libraries warn of what they also tell
def test_what_is_wrong_with_a_file_is_told(
    content: bytes, error: type[Exception], told: str
) -> None:
    with pytest.raises(error, match=told):
        pages_of(content, SMALL)


def test_base64_is_read_with_and_without_its_kind() -> None:
    text = b64encode(b"some bytes")
    assert decoded(text) == b"some bytes"
    assert decoded(text[:8] + b"\n" + text[8:]) == b"some bytes"
    assert decoded(b"data:image/png;base64," + text) == b"some bytes"


@pytest.mark.parametrize("text", [b"", b"!!", b"abcde", b"\xff\xfe"])
def test_what_is_not_base64_is_refused(text: bytes) -> None:
    with pytest.raises(SchemaViolation, match="isn't base64"):
        decoded(text)


@pytest.mark.filterwarnings("ignore")
@settings(deadline=None)  # each PDF has a process of its own
@given(
    st.sampled_from([saved(picture(), kind) for kind in ("PNG", "JPEG", "TIFF", "GIF")] + [pdf()]),
    st.lists(st.tuples(st.integers(0, 5000), st.integers(0, 255)), max_size=8),
    st.integers(0, 5000),
)
def test_whatever_is_broken_is_the_files_fault(
    content: bytes, changes: list[tuple[int, int]], end: int
) -> None:
    broken = bytearray(content)
    for at, value in changes:
        broken[at % len(broken)] = value
    with contextlib.suppress(SchemaViolation, PayloadTooLarge):
        pages_of(bytes(broken[: end % (len(broken) + 1) or None]), SMALL)
