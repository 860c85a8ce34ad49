"""`tiffin infer`: from what lies at hand to a request that the model takes, and its answer."""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any, Protocol

from tiffin.cli import inputs as make
from tiffin.cli.answers import table
from tiffin.cli.locate import configured
from tiffin.config.models import OnnxModel
from tiffin.errors import ConfigInvalid, InvalidRequest, TiffinError

ROWS_AT_ONCE = 1000
EXPLAINED = ("decision", "score", "reasons")
TIMEOUT_S = 300.0

Json = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Given:
    """What a person gave the model: one of these, and whether they want reasons."""

    text: str = ""
    csv: Path | None = None
    rows: tuple[str, ...] = ()
    image: Path | None = None
    texts: tuple[str, ...] = ()
    query: str = ""
    explain: bool = False


class Asker(Protocol):
    """A server: JSON or bytes in, JSON out; `connect.Address` is one."""

    def call(self, method: str, path: str, body: Any = None, *, timeout_s: float = ...) -> Any:
        """The answer to JSON."""
        ...

    def send(
        self, path: str, content: bytes, headers: dict[str, str], *, timeout_s: float = ...
    ) -> Any:
        """The answer to bytes."""
        ...


def infer_model(address: Asker, model: str, given: Given, *, as_json: bool) -> Iterator[str]:
    """Ask, and tell the answer line by line; raises `InvalidRequest` for what can't be asked."""
    kinds = (given.text, given.csv, given.rows, given.image, given.texts)
    if sum(bool(kind) for kind in kinds) != 1:
        raise InvalidRequest("give it one of JSON, --csv, --row, --image and --text")
    for reply in _replies(address, model, given):
        if as_json:
            yield json.dumps(reply, indent=2, ensure_ascii=False)
        else:
            yield from table(reply)


def _replies(address: Asker, model: str, given: Given) -> Iterator[Json]:
    if given.texts:
        yield _texts(address, model, given)
        return
    metadata = address.call("GET", f"/v2/models/{model}")
    path = f"/v2/models/{model}/infer"
    if given.image:
        header, tail = make.image(metadata["inputs"], given.image)
        yield address.send(path, *make.binary(header, tail), timeout_s=TIMEOUT_S)
        return
    known = {output["name"] for output in metadata["outputs"]}
    if given.explain and not known.intersection(EXPLAINED):
        raise InvalidRequest(f"{model} has no decision to explain")
    for body in _bodies(metadata["inputs"], model, given):
        if given.explain:
            body["outputs"] = [{"name": name} for name in EXPLAINED if name in known]
        yield address.call("POST", path, body, timeout_s=TIMEOUT_S)


def _bodies(specs: list[Json], model: str, given: Given) -> Iterator[Json]:
    if given.text:
        yield make.from_json(specs, given.text)
        return
    rows = make.csv_rows(given.csv) if given.csv else make.typed_rows(given.rows)
    features = _features(model)
    first = next(rows, None)
    if first is None:
        raise InvalidRequest("there are no rows")
    columns = make.columns_of(first, features) if given.csv else None
    rows = rows if columns is not None and columns.named else chain([first], rows)
    batch: list[list[str]] = []
    for row in rows:
        batch.append(columns.chosen(row) if columns else row)
        if len(batch) == ROWS_AT_ONCE:
            yield make.from_rows(specs, batch)
            batch = []
    if batch:
        yield make.from_rows(specs, batch)


def _texts(address: Asker, model: str, given: Given) -> Json:
    texts = list(given.texts)
    body: Json = {"model": model}
    if given.query:
        path, body = "/v1/rerank", body | {"query": given.query, "documents": texts}
    else:
        path, body = "/v1/embeddings", body | {"input": texts}
    reply: Json = address.call("POST", path, body, timeout_s=TIMEOUT_S)
    for result in reply.get("results", ()):
        result.setdefault("text", texts[result["index"]])
    return reply


def _features(model: str) -> list[str]:
    """The columns' names by the configuration here; none where it doesn't have this model."""
    try:
        section = configured(None).config.models.get(model)
    except (ConfigInvalid, TiffinError):
        return []
    known = isinstance(section, OnnxModel) and section.decision
    return section.decision.features if known else []  # type: ignore[union-attr]
