"""PDFs drawn by a process of their own, which is ended where one takes too long.

A few kilobytes of PDF can keep its renderer at work for hours, ask for any amount of memory, or
crash it, and a thread can't be ended. The two ends of that process are here: `drawn` and `main`.
"""

import ctypes
import math
import mmap
import os
import resource
import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

import msgspec

POINTS_PER_INCH: Final = 72
# What the renderer may take besides the pages that it draws.
MEMORY_BYTES: Final = 1 << 30
_PIXEL_BYTES: Final = 8


@dataclass(frozen=True)
class Bounds:
    """The most pages of a document, and pixels of all its pages together; PDFs become `dpi`, in
    at most so many seconds."""

    pages: int = 20
    pixels: int = 64_000_000
    dpi: int = 200
    seconds: float = 15.0


class Drawn(NamedTuple):
    """A page's rows of RGB as a buffer; each is `stride` bytes long."""

    width: int
    height: int
    stride: int
    rows: Any


class Refused(Exception):
    """Why a PDF isn't drawn; `large` where it is more than its bounds allow."""

    def __init__(self, told: str, *, large: bool = False) -> None:
        super().__init__(told)
        self.told = told
        self.large = large


class _Report(msgspec.Struct, omit_defaults=True):
    """What the process tells: pages by width, height and stride, or why there are none."""

    pages: list[tuple[int, int, int]] = []
    refused: str = ""
    large: bool = False


_REPORT = msgspec.json.Decoder(_Report)


def drawn(document: bytes, bounds: Bounds) -> Iterator[Drawn]:
    """The pages of a PDF; raises `Refused`."""
    settings = [str(os.getpid()), str(bounds.pages), str(bounds.pixels), str(bounds.dpi)]
    # Memory that has a descriptor: what comes back isn't copied, and nothing is left behind.
    with (
        os.fdopen(os.memfd_create("pdf"), "wb") as given,
        os.fdopen(os.memfd_create("pages"), "rb") as pages,
    ):
        given.write(document)
        given.flush()
        os.lseek(given.fileno(), 0, os.SEEK_SET)
        try:
            ended = subprocess.run(
                [sys.executable, "-P", "-m", __name__, *settings, str(pages.fileno())],
                stdin=given,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                pass_fds=[pages.fileno()],
                timeout=bounds.seconds,
                check=False,
            )
        except subprocess.TimeoutExpired:
            told = f"drawing the PDF takes longer than {bounds.seconds:g} s"
            raise Refused(told, large=True) from None
        if ended.returncode:
            raise Refused("the PDF is broken, or too much to draw")
        report = _REPORT.decode(ended.stdout)
        if report.refused:
            raise Refused(report.refused, large=report.large)
        rows, at = memoryview(mmap.mmap(pages.fileno(), 0, access=mmap.ACCESS_READ)), 0
    for width, height, stride in report.pages:
        yield Drawn(width, height, stride, rows[at : at + height * stride])
        at += height * stride


def main(argv: list[str]) -> None:
    """Draw the PDF on standard input into the descriptor that is named last."""
    parent, *bounds, to = (int(value) for value in argv)
    ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG: don't outlive who asked
    if os.getppid() != parent:
        sys.exit("nobody waits for the pages")
    allowed = Bounds(*bounds)
    memory = MEMORY_BYTES + _PIXEL_BYTES * allowed.pixels
    resource.setrlimit(resource.RLIMIT_AS, (memory, memory))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    try:
        with os.fdopen(0, "rb") as given, os.fdopen(to, "wb") as pages:
            report = _Report(pages=list(_draw(given.read(), allowed, pages)))
    except Refused as refused:
        report = _Report(refused=refused.told, large=refused.large)
    sys.stdout.buffer.write(msgspec.json.encode(report))


def _draw(document: bytes, bounds: Bounds, to: Any) -> Iterator[tuple[int, int, int]]:
    import pypdfium2  # type: ignore[import-untyped]

    try:
        pdf = pypdfium2.PdfDocument(document)
    except pypdfium2.PdfiumError as error:
        locked = (pypdfium2.raw.FPDF_ERR_PASSWORD, pypdfium2.raw.FPDF_ERR_SECURITY)
        if error.err_code in locked:
            raise Refused(
                "the PDF is encrypted: save it without a password, and send that"
            ) from None
        raise Refused("the PDF is broken and can't be opened") from None
    if len(pdf) > bounds.pages:
        told = f"the PDF has {len(pdf)} pages; at most {bounds.pages} are read"
        raise Refused(told, large=True)
    budget = bounds.pixels // len(pdf)
    for number in range(len(pdf)):
        try:
            page = pdf[number]
            width, height = page.get_size()
            scale = _scale(width, height, budget, bounds.dpi)
            bitmap = page.render(scale=scale, rev_byteorder=True)
        except pypdfium2.PdfiumError:
            raise Refused(f"page {number + 1} of the PDF is broken") from None
        to.write(memoryview(bitmap.buffer)[: bitmap.height * bitmap.stride])
        yield bitmap.width, bitmap.height, bitmap.stride
        bitmap.close()
        page.close()


def _scale(width: float, height: float, pixels: int, dpi: int) -> float:
    """The resolution that is wanted, or the highest that is within bounds."""
    inches = max(width, 1.0) * max(height, 1.0) / POINTS_PER_INCH**2
    scale = min(dpi, math.sqrt(pixels / inches)) / POINTS_PER_INCH
    # Sides are rounded up, so that what is whole but for the last digit would gain a pixel.
    return scale * (1 - 1e-6)


if __name__ == "__main__":
    main(sys.argv[1:])
