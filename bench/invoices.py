"""Invoices that nobody wrote, drawn in many ways: what is on them is known to the letter.

Every one is made from its number alone, so that a run can be repeated.
"""

import io
import random
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from PIL import Image, ImageDraw, ImageFilter, ImageFont

FONTS = Path("/usr/share/fonts/truetype/dejavu")
FACES = (
    *("DejaVuSans.ttf", "DejaVuSerif.ttf", "DejaVuSansMono.ttf", "DejaVuSansCondensed.ttf"),
    *("DejaVuSans-Bold.ttf", "DejaVuSerif-Italic.ttf", ""),
)
"""Files of Debian's fonts-dejavu; the empty one is the face that Pillow brings along."""

WIDTH, HEIGHT = 1240, 1754  # A4 at 150 dots an inch
CITIES = ("Mumbai 400050", "Pune 411001", "Chennai 600017", "Delhi 110003", "Kochi 682016")
STREETS = ("Hill Road", "Station Street", "MG Road", "Park Lane", "Lake View")
NAMES = ("Acme Widgets", "Blue Lotus Traders", "Sagar Steel", "Nilgiri Foods", "Vega Electric")
KINDS = ("Pvt Ltd", "LLP", "& Sons", "Industries")
THINGS = (
    *(
        "Bolt M8 x 40 mm",
        "Copper wire 2.5 sqmm",
        "A4 paper, 80 gsm",
        "LED bulb 9 W",
        "Basmati rice",
    ),
    *("Hydraulic oil ISO 46", "Freight charges", "Annual maintenance", "USB-C cable 1 m"),
)


@dataclass
class Invoice:
    """`rows` are its printed rows, each its pieces from left to right; `fields` what matters."""

    kind: str
    rows: list[list[str]] = field(default_factory=list)
    fields: dict[str, str] = field(default_factory=dict)
    content: bytes = b""
    content_type: str = "image/png"
    pages: int = 1

    @property
    def text(self) -> str:
        """All of it, as it is read."""
        return " ".join(piece for row in self.rows for piece in row)


def invoice(number: int) -> Invoice:
    """The invoice of a number; its kind goes round with it."""
    random_ = random.Random(number)
    kind = list(KINDS_OF)[number % len(KINDS_OF)]
    made = Invoice(kind)
    pages = 2 if kind == "two pages" else 1
    size = random_.randint(20, 23) if kind == "small print" else random_.randint(25, 31)
    drawn = [_page(made, random_, size, at, pages) for at in range(pages)]
    made.pages = pages
    KINDS_OF[kind](made, drawn, random_)
    return made


def _page(made: Invoice, random_: random.Random, size: int, at: int, of: int) -> Image.Image:
    face = random_.choice(FACES)
    font = ImageFont.truetype(str(FONTS / face), size) if face else ImageFont.load_default(size)
    page = Image.new("RGB", (WIDTH, HEIGHT), "white")
    draw = ImageDraw.Draw(page)
    columns = (100, 560, 760, 980)
    y = random_.randint(70, 130)
    for row in _rows(made, random_, at, of):
        for column, piece in zip(columns if len(row) > 2 else (100, 760), row, strict=False):
            draw.text((column, y), piece, font=font, fill=random_.choice(("black", "#222222")))
        made.rows.append(row)
        y += round(size * 1.9)
    draw.line((100, y, WIDTH - 100, y), fill="black", width=2)
    return page


def _rows(made: Invoice, random_: random.Random, at: int, of: int) -> list[list[str]]:
    if at:
        rows = [["Page 2 of 2", made.fields["number"]]]
    else:
        seller, buyer = (f"{name} {random_.choice(KINDS)}" for name in random_.sample(NAMES, 2))
        made.fields |= {
            "number": f"INV-{random_.randint(2020, 2026)}-{random_.randint(1, 99999):05d}",
            "date": f"{random_.randint(1, 28):02d}/{random_.randint(1, 12):02d}/2025",
            "gstin": _gstin(random_),
            "seller": seller,
            "buyer": buyer,
        }
        street = f"{random_.randint(1, 250)} {random_.choice(STREETS)}"
        rows = [
            ["TAX INVOICE", made.fields["number"]],
            [seller, f"Date: {made.fields['date']}"],
            [f"{street}, {random_.choice(CITIES)}"],
            [f"GSTIN: {made.fields['gstin']}"],
            ["Bill to:", buyer],
        ]
    rows.append(["Description", "Qty", "Rate", "Amount"])
    total = 0
    for thing in random_.sample(THINGS, random_.randint(4, 7)):
        count, rate = random_.randint(1, 40), random_.randint(100, 99_999)
        total += count * rate
        rows.append([thing, str(count), _money(rate), _money(count * rate)])
    if at == of - 1:
        tax = round(total * 0.18)
        made.fields["total"] = _money(total + tax)
        rows += [["GST 18%", _money(tax)], ["Total INR", made.fields["total"]]]
    return rows


def _money(paise: int) -> str:
    return f"{paise / 100:,.2f}"


def _gstin(random_: random.Random) -> str:
    letters = "".join(random_.choice("ABCDEFGHJKLMNPQRSTUVWXYZ") for _ in range(5))
    return (
        f"{random_.randint(10, 37)}{letters}{random_.randint(1000, 9999)}F1Z{random_.randint(1, 9)}"
    )


def _png(made: Invoice, page: Image.Image) -> None:
    file = io.BytesIO()
    page.save(file, "PNG", compress_level=1)
    made.content = file.getvalue()


def _clean(made: Invoice, pages: list[Image.Image], random_: random.Random) -> None:
    _png(made, pages[0])


def _tilted(made: Invoice, pages: list[Image.Image], random_: random.Random) -> None:
    angle = random_.choice((-1, 1)) * random_.uniform(0.5, 4)
    _png(made, pages[0].rotate(angle, Image.Resampling.BICUBIC, fillcolor="white"))


def _upside_down(made: Invoice, pages: list[Image.Image], random_: random.Random) -> None:
    _png(made, pages[0].transpose(Image.Transpose.ROTATE_180))


def _on_its_side(made: Invoice, pages: list[Image.Image], random_: random.Random) -> None:
    turns = (Image.Transpose.ROTATE_90, Image.Transpose.ROTATE_270)
    _png(made, pages[0].transpose(random_.choice(turns)))


def _noisy(made: Invoice, pages: list[Image.Image], random_: random.Random) -> None:
    """A bad scan: blurred, grainy, on grey paper, as a JPEG."""
    dice = np.random.default_rng(random_.randrange(2**32))
    blurred = pages[0].filter(ImageFilter.GaussianBlur(random_.uniform(0.6, 1.2)))
    pixels = np.asarray(blurred).astype(np.float32) * random_.uniform(0.75, 0.95)
    pixels += dice.normal(0, random_.uniform(8, 20), pixels.shape[:2])[:, :, None]
    file = io.BytesIO()
    Image.fromarray(pixels.clip(0, 255).astype(np.uint8)).save(
        file, "JPEG", quality=random_.randint(40, 70)
    )
    made.content, made.content_type = file.getvalue(), "image/jpeg"


def _pdf(made: Invoice, pages: list[Image.Image], random_: random.Random) -> None:
    file = io.BytesIO()
    pages[0].save(file, "PDF", save_all=True, append_images=pages[1:], resolution=150)
    made.content, made.content_type = file.getvalue(), "application/pdf"


KINDS_OF: dict[str, Callable[[Invoice, list[Image.Image], random.Random], None]] = {
    "clean": _clean,
    "tilted": _tilted,
    "noisy": _noisy,
    "small print": _clean,
    "upside down": _upside_down,
    "PDF": _pdf,
    "on its side": _on_its_side,
    "two pages": _pdf,
}
"""How a document of each kind is made of its pages."""
