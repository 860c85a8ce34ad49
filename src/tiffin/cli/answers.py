"""Answers of tensor models for a terminal: a line for each row, or what fits of larger ones."""

import json
from collections.abc import Iterator
from typing import Any

Json = dict[str, Any]
WIDEST = 8
LONGEST = 60


def table(reply: Json) -> Iterator[str]:
    """The lines that tell an answer to infer, embeddings or rerank."""
    if "results" in reply:
        for result in reply["results"]:
            text = result["text"] if isinstance(result["text"], str) else ""
            yield f"{result['relevance_score']:.4f}  {result['index']}  {_short(text)}"
    elif "outputs" in reply:
        yield from _outputs(reply["outputs"])
    else:
        for item in reply.get("data", ()):
            vector = item["embedding"]
            first = ", ".join(_cell(value) for value in vector[:4])
            yield f"{item['index']}  {len(vector)} numbers: {first}, …"


def _outputs(outputs: list[Json]) -> Iterator[str]:
    """A table of what has as many rows, and a line for each output that is too wide for one."""
    tables: dict[int, list[Json]] = {}
    for output in outputs:
        if len(output["shape"]) in (1, 2) and _width(output) <= WIDEST:
            tables.setdefault(output["shape"][0], []).append(output)
        else:
            values = ", ".join(_cell(value) for value in output.get("data", ())[:WIDEST])
            more = ", …" if len(output.get("data", ())) > WIDEST else ""
            yield f"{output['name']} {output['datatype']}{output['shape']}: {values}{more}"
    for alike in tables.values():
        yield from _table(alike)


def _table(outputs: list[Json]) -> Iterator[str]:
    heads: list[str] = []
    columns: list[list[str]] = []
    for output in outputs:
        width = _width(output)
        for at in range(width):
            heads.append(output["name"] if width == 1 else f"{output['name']}[{at}]")
            columns.append([_cell(value) for value in output["data"][at::width]])
    yield from _lines(heads, columns)


def _lines(heads: list[str], columns: list[list[str]]) -> Iterator[str]:
    widths = [max(map(len, (head, *cells))) for head, cells in zip(heads, columns, strict=True)]
    for row in (heads, *zip(*columns, strict=True)):
        cells = [cell.ljust(width) for cell, width in zip(row, widths, strict=True)]
        yield "  ".join(cells).rstrip()


def _width(output: Json) -> int:
    return int(output["shape"][1]) if len(output["shape"]) == 2 else 1


def _cell(value: Any) -> str:
    if value is None:
        return "nan"
    if isinstance(value, float):
        return f"{value:.6g}"
    if isinstance(value, str) and value.startswith("[{"):
        return _reasons(value)
    return _short(str(value))


def _reasons(text: str) -> str:
    """`[{"feature": …, "effect": …}]` in words, or the text itself where it is something else."""
    try:
        found = json.loads(text)
        return ", ".join(f"{one['feature']} {one['effect']:+.4g}" for one in found)
    except (ValueError, KeyError, TypeError):
        return _short(text)


def _short(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= LONGEST else line[: LONGEST - 1] + "…"
