"""`tiffin infer`: what lies at hand becomes what the model asks for; answers become lines."""

import json
import struct
from pathlib import Path
from typing import Any

import pytest

from tiffin.cli.answers import table
from tiffin.cli.infer import Given, infer_model
from tiffin.cli.inputs import from_json
from tiffin.errors import InvalidRequest

TABLE = [{"name": "x", "datatype": "FP32", "shape": [-1, 3]}]
COLUMNS = [
    {"name": "age", "datatype": "INT64", "shape": [-1, 1]},
    {"name": "town", "datatype": "BYTES", "shape": [-1, 1]},
]


class Scripted:
    """A model with these inputs, which keeps what it was asked."""

    def __init__(self, inputs: list[dict[str, Any]], reply: Any = None) -> None:
        self.inputs = inputs
        self.reply = reply or {"outputs": []}
        self.asked: list[tuple[str, Any]] = []

    def call(self, method: str, path: str, body: Any = None, *, timeout_s: float = 1.0) -> Any:
        if method == "GET":
            outputs = ["y", "decision", "score", "reasons"]
            return {"inputs": self.inputs, "outputs": [{"name": name} for name in outputs]}
        self.asked.append((path, body))
        return self.reply

    def send(
        self, path: str, content: bytes, headers: dict[str, str], *, timeout_s: float = 1.0
    ) -> Any:
        length = int(headers["Inference-Header-Content-Length"])
        self.asked.append((path, (json.loads(content[:length]), content[length:])))
        return self.reply


def asked(server: Scripted, given: Given) -> list[Any]:
    list(infer_model(server, "m", given, as_json=False))
    return [body for _, body in server.asked]


def test_rows_become_one_tensor_and_gaps_become_null() -> None:
    [body] = asked(Scripted(TABLE), Given(rows=("1, 2,3", "4,,6")))
    assert body == {
        "inputs": [
            {
                "name": "x",
                "datatype": "FP32",
                "shape": [2, 3],
                "data": [1.0, 2.0, 3.0, 4.0, None, 6.0],
            }
        ]
    }


def test_columns_become_an_input_each() -> None:
    [body] = asked(Scripted(COLUMNS), Given(rows=("41,Pune",)))
    assert [one["data"] for one in body["inputs"]] == [[41], ["Pune"]]
    assert [one["shape"] for one in body["inputs"]] == [[1, 1], [1, 1]]


def test_many_rows_go_in_several_requests(tmp_path: Path) -> None:
    path = tmp_path / "rows.csv"
    path.write_text("a,b,c\n" + "1,2,3\n" * 1500)
    bodies = asked(Scripted(TABLE), Given(csv=path))
    assert [body["inputs"][0]["shape"] for body in bodies] == [[1000, 3], [500, 3]]


def test_columns_are_found_by_the_names_that_the_configuration_has(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "tiffin.toml").write_text(
        '[models.m]\nruntime = "onnx"\n[models.m.files."model.onnx"]\n'
        f'sources = ["file:/m"]\nsha256 = "{"0" * 64}"\n'
        '[models.m.decision]\nfeatures = ["c", "a", "b"]\n'
    )
    monkeypatch.chdir(tmp_path)
    (tmp_path / "rows.csv").write_text("a,id,b,c\n1,9,2,3\n")
    [body] = asked(Scripted(TABLE), Given(csv=tmp_path / "rows.csv", explain=True))
    assert body["inputs"][0]["data"] == [3.0, 1.0, 2.0]
    assert [one["name"] for one in body["outputs"]] == ["decision", "score", "reasons"]
    (tmp_path / "rows.csv").write_text("a,id,c\n1,9,3\n")
    with pytest.raises(InvalidRequest, match="lacks the columns b"):
        asked(Scripted(TABLE), Given(csv=tmp_path / "rows.csv"))


@pytest.mark.parametrize(
    ("text", "shape", "data"),
    [
        ("[[1, 2, 3]]", [1, 3], [1, 2, 3]),
        ("[1, 2, 3]", [1, 3], [1, 2, 3]),
        ('{"x": [[1, 2, 3], [4, 5, 6]]}', [2, 3], [1, 2, 3, 4, 5, 6]),
    ],
)
def test_json_says_the_shape_by_its_lists(text: str, shape: list[int], data: list[int]) -> None:
    [tensor] = from_json(TABLE, text)["inputs"]
    assert (tensor["shape"], tensor["data"]) == (shape, data)


def test_a_whole_request_goes_as_it_is(tmp_path: Path) -> None:
    request = {"inputs": [{"name": "x", "shape": [0, 3], "datatype": "FP32", "data": []}]}
    (tmp_path / "request.json").write_text(json.dumps(request))
    assert from_json(TABLE, str(tmp_path / "request.json")) == request


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (Given(), "give it one of"),
        (Given(text="[1]", rows=("1",)), "give it one of"),
        (Given(text='{"y": [1]}'), "there is no input y; the model takes x FP32"),
        (Given(text="[[1, 2], [3]]"), "differ in length"),
        (Given(text="[[1], 2]"), "differ in depth"),
        (Given(text="{"), "is no JSON"),
        (Given(text="absent.json"), "neither JSON nor a file"),
        (Given(rows=("1,2",)), "x has 3 columns, and a row has 2"),
        (Given(rows=("1,2,3", "1,2")), "differ in length"),
        (Given(rows=("1,2,many",)), '"many" is no FP32'),
        (Given(csv=Path("absent.csv")), "can't be read"),
        (Given(image=Path("absent.png")), "can't be read"),
    ],
)
def test_what_can_not_be_asked_is_told(given: Given, message: str) -> None:
    server = Scripted(TABLE)
    with pytest.raises(InvalidRequest, match=message):
        asked(server, given)
    assert server.asked == []


@pytest.mark.parametrize(
    ("name", "datatype", "shape", "sent"),
    [
        ("document", "UINT8", [4], b"%PDF"),
        ("document", "BYTES", [1], struct.pack("<I", 4) + b"%PDF"),
        ("base64", "BYTES", [1], struct.pack("<I", 8) + b"JVBERg=="),
    ],
)
def test_a_file_goes_whole_where_the_model_reads_files(
    name: str, datatype: str, shape: list[int], sent: bytes, tmp_path: Path
) -> None:
    path = tmp_path / "scan.pdf"
    path.write_bytes(b"%PDF")
    inputs = [{"name": name, "datatype": datatype, "shape": [-1]}]
    [(header, tail)] = asked(Scripted(inputs), Given(image=path))
    assert header["inputs"][0]["shape"] == shape
    assert tail == sent


def test_a_picture_goes_as_pixels_where_the_model_wants_them(tmp_path: Path) -> None:
    from PIL import Image

    path = tmp_path / "red.png"
    Image.new("RGB", (4, 4), (255, 0, 0)).save(path)
    inputs = [{"name": "image", "datatype": "FP32", "shape": [-1, 3, 2, 2]}]
    [(header, tail)] = asked(Scripted(inputs), Given(image=path))
    assert header["inputs"][0]["shape"] == [1, 3, 2, 2]
    assert struct.unpack("<12f", tail) == (1.0,) * 4 + (0.0,) * 8


def test_texts_are_embedded_and_ranked() -> None:
    vectors = {"data": [{"index": 0, "embedding": [0.5] * 9}]}
    server = Scripted([], vectors)
    lines = list(infer_model(server, "m", Given(texts=("a",)), as_json=False))
    assert server.asked == [("/v1/embeddings", {"model": "m", "input": ["a"]})]
    assert lines == ["0  9 numbers: 0.5, 0.5, 0.5, 0.5, …"]
    server = Scripted([], {"results": [{"index": 1, "relevance_score": 0.9}]})
    lines = list(infer_model(server, "m", Given(texts=("a", "b"), query="q"), as_json=False))
    assert lines == ["0.9000  1  b"]


def test_decisions_are_lines_with_reasons_in_words() -> None:
    reasons = '[{"feature":"debt","effect":0.25},{"feature":"age","effect":-0.1}]'
    outputs = [
        {"name": "decision", "datatype": "BYTES", "shape": [2], "data": ["bad", "ok"]},
        {"name": "score", "datatype": "FP32", "shape": [2], "data": [0.75, None]},
        {"name": "reasons", "datatype": "BYTES", "shape": [2], "data": [reasons, "[]"]},
    ]
    assert list(table({"outputs": outputs})) == [
        "decision  score  reasons",
        "bad       0.75   debt +0.25, age -0.1",
        "ok        nan    []",
    ]


def test_large_answers_are_told_by_their_beginning() -> None:
    outputs = [{"name": "y", "datatype": "FP32", "shape": [1, 9], "data": [0.0] * 9}]
    assert list(table({"outputs": outputs})) == ["y FP32[1, 9]: 0, 0, 0, 0, 0, 0, 0, 0, …"]


def test_lines_of_a_document_stand_beside_what_was_found_of_them() -> None:
    outputs = [
        {"name": "text", "datatype": "BYTES", "shape": [2], "data": ["Invoice", "Total 5"]},
        {"name": "box", "datatype": "FP32", "shape": [2, 4, 2], "data": [1.0] * 16},
        {"name": "confidence", "datatype": "FP32", "shape": [2], "data": [0.99, 0.5]},
        {"name": "pages", "datatype": "INT64", "shape": [1], "data": [1]},
    ]
    assert list(table({"outputs": outputs})) == [
        "box FP32[2, 4, 2]: 1, 1, 1, 1, 1, 1, 1, 1, …",
        "text     confidence",
        "Invoice  0.99",
        "Total 5  0.5",
        "pages",
        "1",
    ]
