"""Inputs of a tensor model from JSON, rows and pictures, as the model's metadata asks for them."""

import base64
import csv
import json
import struct
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tiffin.errors import InvalidRequest

Json = dict[str, Any]
_PICTURES = ("UINT8", "FP32", "FP16")


@dataclass(frozen=True, slots=True)
class Columns:
    """Which columns of a file are the model's; `named` says that the first line has names."""

    named: bool
    places: tuple[int, ...]

    def chosen(self, row: list[str]) -> list[str]:
        """The model's cells of a row, in the model's order; raises `InvalidRequest`."""
        if not self.places:
            return row
        if len(row) <= max(self.places):
            raise InvalidRequest(f"a line has {len(row)} cells, which is too few: {row[:4]}")
        return [row[place] for place in self.places]


def columns_of(first: list[str], features: Sequence[str]) -> Columns:
    """What the first line says; raises `InvalidRequest` where it lacks a feature."""
    if all(_is_number(cell) for cell in first):
        return Columns(named=False, places=())
    lacking = [name for name in features if name not in first]
    if lacking:
        raise InvalidRequest(f"the file lacks the columns {', '.join(lacking)}")
    return Columns(named=True, places=tuple(first.index(name) for name in features))


def csv_rows(path: Path) -> Iterator[list[str]]:
    """The lines of a CSV that aren't empty; raises `InvalidRequest`."""
    try:
        with path.open(newline="", encoding="utf-8-sig") as file:
            yield from (line for line in csv.reader(file) if line)
    except (OSError, UnicodeDecodeError, csv.Error) as cause:
        raise InvalidRequest(f"{path} can't be read: {cause}") from cause


def typed_rows(rows: Sequence[str]) -> Iterator[list[str]]:
    """Rows as they were typed."""
    return csv.reader(rows, skipinitialspace=True)


def from_rows(specs: list[Json], rows: list[list[str]]) -> Json:
    """A request of rows: one input of N by features, or an input for each column."""
    width = len(rows[0])
    if any(len(row) != width for row in rows):
        raise InvalidRequest("the rows differ in length")
    if len(specs) == 1 and len(specs[0]["shape"]) == 2:
        [spec] = specs
        if spec["shape"][1] not in (-1, width):
            raise InvalidRequest(
                f"{spec['name']} has {spec['shape'][1]} columns, and a row has {width}"
            )
        cells = [_cell(cell, spec["datatype"]) for row in rows for cell in row]
        return {"inputs": [_tensor(spec, [len(rows), width], cells)]}
    if len(specs) == width:
        return {
            "inputs": [
                _tensor(
                    spec,
                    [len(rows), *[1] * (len(spec["shape"]) - 1)],
                    [_cell(row[at], spec["datatype"]) for row in rows],
                )
                for at, spec in enumerate(specs)
            ]
        }
    raise InvalidRequest(f"the model doesn't take rows; it takes {_told(specs)}")


def from_json(specs: list[Json], text: str) -> Json:
    """A request from JSON: all of it, inputs by name, or the values of the only input."""
    given = _json(text)
    if isinstance(given, dict) and isinstance(given.get("inputs"), list):
        return given
    if isinstance(given, list):
        if len(specs) != 1:
            raise InvalidRequest(f"a list is for one input; the model takes {_told(specs)}")
        given = {specs[0]["name"]: given}
    if not isinstance(given, dict):
        raise InvalidRequest("expected a list, or an object of inputs by name")
    known = {spec["name"]: spec for spec in specs}
    strange = [name for name in given if name not in known]
    if strange:
        raise InvalidRequest(f"there is no input {strange[0]}; the model takes {_told(specs)}")
    return {"inputs": [_nested(known[name], value) for name, value in given.items()]}


def image(specs: list[Json], path: Path) -> tuple[Json, bytes]:
    """A request's header and its one tensor in bytes: the file itself, or its pixels."""
    try:
        content = path.read_bytes()
    except OSError as cause:
        raise InvalidRequest(f"{path} can't be read: {cause.strerror}") from cause
    spec, shape, tail = _whole_file(specs, content) or _pixels(specs, path)
    tensor = {
        "name": spec["name"],
        "datatype": spec["datatype"],
        "shape": shape,
        "parameters": {"binary_data_size": len(tail)},
    }
    return {"inputs": [tensor]}, tail


def binary(header: Json, tail: bytes) -> tuple[bytes, dict[str, str]]:
    """The body and the HTTP headers of a request whose tensors follow its JSON as bytes."""
    head = json.dumps(header).encode()
    headers = {
        "Content-Type": "application/octet-stream",
        "Inference-Header-Content-Length": str(len(head)),
    }
    return head + tail, headers


def _whole_file(specs: list[Json], content: bytes) -> tuple[Json, list[int], bytes] | None:
    """The file as it is, for a model that reads files: its bytes as numbers, or as one BYTES."""
    for spec in specs:
        if spec["datatype"] == "UINT8" and spec["shape"] == [-1]:
            return spec, [len(content)], content
    for spec in specs:
        if spec["datatype"] == "BYTES":
            text = base64.b64encode(content) if "base64" in spec["name"] else content
            return spec, [1] * len(spec["shape"]), struct.pack("<I", len(text)) + text
    return None


def _pixels(specs: list[Json], path: Path) -> tuple[Json, list[int], bytes]:
    """Red, green and blue of a picture from 0 to 1 (or 255), in the size that the input has."""
    fits = [s for s in specs if s["datatype"] in _PICTURES and len(s["shape"]) == 4]
    if not fits or 3 not in (fits[0]["shape"][1], fits[0]["shape"][3]):
        raise InvalidRequest(f"the model doesn't take pictures; it takes {_told(specs)}")
    try:
        import numpy as np
        from PIL import Image, UnidentifiedImageError
    except ImportError as cause:
        raise InvalidRequest('pictures need the extra "ocr": pip install "tiffin[ocr]"') from cause
    spec = fits[0]
    first = spec["shape"][1] == 3
    height, width = spec["shape"][2:] if first else spec["shape"][1:3]
    try:
        with Image.open(path) as picture:
            small = picture.convert("RGB").resize(
                (picture.width if width < 0 else width, picture.height if height < 0 else height)
            )
    except (OSError, UnidentifiedImageError) as cause:
        raise InvalidRequest(f"{path} is no picture that can be read: {cause}") from cause
    values = np.asarray(small)
    values = values.transpose(2, 0, 1) if first else values
    kinds = {"UINT8": "<u1", "FP32": "<f4", "FP16": "<f2"}
    scaled = values if spec["datatype"] == "UINT8" else values / 255.0
    return spec, [1, *values.shape], scaled.astype(kinds[spec["datatype"]]).tobytes()


def _json(text: str) -> Any:
    if text == "-":
        text = sys.stdin.read()
    elif not text.lstrip().startswith(("{", "[")):
        try:
            text = Path(text).read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as cause:
            raise InvalidRequest(f"{text} is neither JSON nor a file of it: {cause}") from cause
    try:
        return json.loads(text)
    except ValueError as cause:
        raise InvalidRequest(f"the input is no JSON: {cause}") from cause


def _nested(spec: Json, value: Any) -> Json:
    """A tensor from lists in lists, whose lengths are its shape."""
    shape: list[int] = []
    at = value
    while isinstance(at, list):
        shape.append(len(at))
        at = at[0] if at else None
    flat = [value]
    for _ in shape:
        if not all(isinstance(inner, list) for inner in flat):
            raise InvalidRequest(f"the lists of {spec['name']} differ in depth")
        flat = [cell for inner in flat for cell in inner]
    expected = 1
    for size in shape:
        expected *= size
    if len(flat) != expected or any(isinstance(cell, list) for cell in flat):
        raise InvalidRequest(f"the lists of {spec['name']} differ in length")
    if len(shape) == len(spec["shape"]) - 1:
        shape = [1, *shape]  # one row without the brackets around it
    return _tensor(spec, shape, flat)


def _tensor(spec: Json, shape: list[int], cells: list[Any]) -> Json:
    return {"name": spec["name"], "datatype": spec["datatype"], "shape": shape, "data": cells}


def _cell(cell: str, datatype: str) -> Any:
    if datatype == "BYTES":
        return cell
    text = cell.strip()
    if not text and datatype.startswith(("FP", "BF")):
        return None  # a missing value
    try:
        if datatype == "BOOL":
            return {"true": True, "false": False, "1": True, "0": False}[text.lower()]
        return float(text) if datatype.startswith(("FP", "BF")) else int(text)
    except (ValueError, KeyError):
        raise InvalidRequest(f'"{cell[:40]}" is no {datatype}') from None


def _is_number(cell: str) -> bool:
    try:
        float(cell or "nan")
    except ValueError:
        return False
    return True


def _told(specs: list[Json]) -> str:
    return ", ".join(f"{spec['name']} {spec['datatype']}{spec['shape']}" for spec in specs)
