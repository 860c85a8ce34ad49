"""Documents through the whole of Tiffin: PP-OCR's real models, every way in, bad files."""

import io
from base64 import b64encode
from collections.abc import Iterator
from importlib import resources
from typing import Any

import httpx
import numpy as np
import pytest
import tritonclient.http as triton  # type: ignore[import-untyped]
from PIL import Image, ImageDraw, ImageFont

from tests.real_models import fetched, store
from tests.system.server import KEY, Server, until
from tests.unit.adapters.documents.test_pages import encrypted_pdf
from tiffin.config.load import load_text
from tiffin.control.catalogue.pull import artifacts_of

pytestmark = [pytest.mark.models, pytest.mark.xdist_group("documents")]

LINES = [
    "TAX INVOICE",
    "Invoice no: INV-2024-00871",
    "Acme Widgets Pvt Ltd",
    "12 Hill Road, Mumbai 400050",
    "GSTIN 27AAPFU0939F1ZV",
    "Total: 12,345.60 INR",
]


def sections() -> str:
    """The extra's own sections, with its files fetched."""
    text = resources.files("tiffin").joinpath("starter/ocr.toml").read_text()
    for name, model in load_text(text.encode(), {}).config.models.items():
        for artifact in artifacts_of(name, model):
            path = fetched(artifact)
            text = text.replace(artifact.sources[0], f"file:{path}")
    assert store() is not None
    return text


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    server = Server(tmp_path_factory.mktemp("documents"), sections())
    try:
        server.start()
        server.until_ready("ocr", within_s=60)
        until(lambda: asked(server, saved(page())).is_success, 20, server.explain)
        yield server
    finally:
        server.close()


def page(width: int = 800, height: int = 480) -> Image.Image:
    image = Image.new("RGB", (width, height), "white")
    draw, font = ImageDraw.Draw(image), ImageFont.load_default(28)
    for number, line in enumerate(LINES):
        draw.text((60, 50 + 60 * number), line, font=font, fill="black")
    return image


def saved(image: Image.Image, kind: str = "PNG", **more: object) -> bytes:
    file = io.BytesIO()
    image.save(file, kind, **more)
    return file.getvalue()


def asked(server: Server, content: bytes) -> httpx.Response:
    return server.http.post("/v1/documents/ocr", content=content)


def read(server: Server, content: bytes) -> list[list[str]]:
    reply = asked(server, content)
    assert reply.status_code == 200, reply.text
    return [[line["text"] for line in page["lines"]] for page in reply.json()["pages"]]


@pytest.mark.parametrize("angle", [0, 3, 90, 180, 270])
def test_a_clean_page_is_read_to_the_letter_whichever_way_it_lies(
    server: Server, angle: int
) -> None:
    turned = page().rotate(angle, Image.Resampling.BICUBIC, expand=True, fillcolor="white")
    assert read(server, saved(turned)) == [LINES]


def test_a_pdf_has_pages_and_boxes_lie_where_the_lines_are(server: Server) -> None:
    pdf = saved(page(), "PDF", save_all=True, append_images=[page()], resolution=200)
    reply = asked(server, pdf).json()
    for page_ in reply["pages"]:  # its pictures are JPEGs, in which a space may get lost
        texts = [line["text"].replace(" ", "") for line in page_["lines"]]
        assert texts == [line.replace(" ", "") for line in LINES]
    assert reply["usage"]["pages"] == 2
    assert reply["usage"]["pixels"] == 2 * 800 * 480
    for number, line in enumerate(reply["pages"][1]["lines"]):
        corners = np.array(line["box"])
        middle = corners.mean(axis=0)
        assert abs(middle[1] - (50 + 60 * number + 16)) < 12
        assert corners[0][0] < 70
        assert line["confidence"] > 0.8


def test_every_way_in_says_the_same(server: Server) -> None:
    content = saved(page())
    path = "/v1/documents/ocr"
    told = server.http.post(path, content=content).json()["pages"]
    assert server.http.post(path, files={"document": content}).json()["pages"] == told
    text = b64encode(content).decode()
    assert server.http.post(path, json={"document": text}).json()["pages"] == told
    tensor = {"name": "base64", "datatype": "BYTES", "shape": [1], "data": [text]}
    body = {"inputs": [tensor], "outputs": [{"name": "text"}, {"name": "page"}]}
    reply = server.http.post("/v2/models/ocr/infer", json=body).json()
    assert {one["name"]: one["data"] for one in reply["outputs"]} == {
        "text": LINES,
        "page": [0] * len(LINES),
    }


def test_tritons_client_reads_a_document_as_bytes(server: Server) -> None:
    content = np.frombuffer(saved(page()), np.uint8)
    client = triton.InferenceServerClient(str(server.http.base_url).removeprefix("http://"))
    given = triton.InferInput("document", [len(content)], "UINT8")
    given.set_data_from_numpy(content)
    headers = {"authorization": f"Bearer {KEY}"}
    result = client.infer("ocr", [given], headers=headers)
    assert [text.decode() for text in result.as_numpy("text")] == LINES
    assert result.as_numpy("box").shape == (len(LINES), 4, 2)
    assert result.as_numpy("size").tolist() == [[800, 480]]
    client.close()


def test_a_page_without_text_has_no_lines(server: Server) -> None:
    assert read(server, saved(Image.new("RGB", (300, 200), "white"))) == [[]]


@pytest.mark.parametrize(
    ("content", "status", "told"),
    [
        (b"hello", 400, "none of what is read here"),
        (b"%PDF-1.7 broken", 400, "the PDF is broken"),
        (encrypted_pdf(), 400, "the PDF is encrypted: save it without a password"),
        (saved(page())[:2000], 400, "the PNG image is broken"),
        (saved(Image.new("1", (9000, 9000)), "PNG"), 413, "9000 x 9000 pixels; at most 64000000"),
        (b"", 400, "the document is empty"),
    ],
    ids=["text", "pdf", "encrypted", "cut", "huge", "empty"],
)
def test_what_is_wrong_with_a_file_is_told(
    server: Server, content: bytes, status: int, told: str
) -> None:
    reply = asked(server, content)
    assert reply.status_code == status
    assert told in reply.json()["error"]["message"]
    assert reply.json()["error"]["param"] == "document"


def test_pages_pixels_and_times_are_in_the_account(server: Server) -> None:
    named = asked(server, saved(page())).headers["x-request-id"]

    def entries() -> list[dict[str, Any]]:
        return [a for a in server.accounts() if a["id"] == named and a["outcome"] == "ok"]

    [entry] = until(entries, 10, server.explain)
    assert entry["pages"] == 1
    assert (entry["endpoint"], entry["model"]) == ("documents", "ocr")
    assert entry["pixels"] == 800 * 480
    assert entry["prepare_ns"] > 0
    assert entry["device_ns"] > entry["prepare_ns"] / 100
