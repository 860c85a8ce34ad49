"""MLflow's model folders, read without mlflow: the flavour that we know, and the input example.

The format: mlflow.org/docs, "MLflow Models" (the file `MLmodel`).
"""

import csv
import dataclasses
import json
from collections.abc import Callable, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

from tiffin.adapters.importers import (
    lightgbm_model,
    onnx_graph,
    sklearn_pickle,
    xgboost_model,
)
from tiffin.adapters.importers.order import Imported, Order
from tiffin.errors import ArtifactError

FLAVOURS: Mapping[str, tuple[str, str]] = MappingProxyType(
    {
        "onnx": ("data", "model.onnx"),
        "xgboost": ("data", "model.xgb"),
        "lightgbm": ("data", "model.lgb"),
        "sklearn": ("pickled_model", "model.pkl"),
    }
)
"""Per flavour: the entry that names its file, and the name where the entry is missing."""


def bring(order: Order) -> Imported:
    """The model of the first flavour that can be served; raises `ArtifactError`."""
    described = _described(order.path / "MLmodel")
    flavours = described.get("flavors")
    if not isinstance(flavours, dict):
        raise ArtifactError(f"{order.path}/MLmodel names no flavors")
    kind = next((name for name in FLAVOURS if name in flavours), "")
    if not kind:
        raise ArtifactError(_refusal(order.path, flavours))
    entry, otherwise = FLAVOURS[kind]
    path = _inside(order.path, str((flavours[kind] or {}).get(entry) or otherwise))
    inner = dataclasses.replace(
        order,
        path=path,
        features=order.features or _features(described),
        sample=order.sample or _example(order, described),
    )
    imported = _importer(kind, path)(inner)
    note = f"MLflow's flavour {kind} was read"
    return dataclasses.replace(imported, notes=(note, *imported.notes))


def _importer(kind: str, path: Path) -> Callable[[Order], Imported]:
    with path.open("rb") as file:
        pickled = file.read(1) == b"\x80"
    if pickled or kind == "sklearn":
        return sklearn_pickle.bring
    own = {
        "onnx": onnx_graph.bring,
        "xgboost": xgboost_model.bring,
        "lightgbm": lightgbm_model.bring,
    }
    return own[kind]


def _described(path: Path) -> dict[str, Any]:
    import yaml  # type: ignore[import-untyped]

    try:
        found = yaml.safe_load(path.read_bytes())
    except (OSError, yaml.YAMLError) as cause:
        reason = " ".join(str(cause).split())
        raise ArtifactError(f"{path} can't be read: {reason}") from cause
    if not isinstance(found, dict):
        raise ArtifactError(f"{path} holds no mapping")
    return found


def _refusal(folder: Path, flavours: dict[str, Any]) -> str:
    names = ", ".join(map(str, flavours)) or "none"
    if set(flavours) == {"python_function"}:
        return (
            f"{folder} is a python_function alone, which is code for mlflow's own runtime: wrap it"
            " in a class with load and predict, and import that file (--kind python)"
        )
    return f"{folder} has the flavours {names}; those that can be served are {', '.join(FLAVOURS)}"


def _inside(folder: Path, name: str) -> Path:
    path = (folder / name).resolve()
    if not path.is_relative_to(folder.resolve()) or not path.exists():
        raise ArtifactError(f"{folder}/MLmodel names {name}, which isn't in the folder")
    if path.is_dir():
        files = [one for one in path.iterdir() if one.suffix == ".onnx"]
        if len(files) != 1:
            raise ArtifactError(f"{path} should hold one *.onnx")
        return files[0]
    return path


def _features(described: dict[str, Any]) -> tuple[str, ...]:
    """The names of the signature's columns; none where the input is a tensor."""
    inputs = (described.get("signature") or {}).get("inputs")
    try:
        columns = json.loads(inputs) if isinstance(inputs, str) else []
    except ValueError:
        return ()
    names = [column.get("name") for column in columns if isinstance(column, dict)]
    return tuple(map(str, names)) if names and all(names) and len(names) > 1 else ()


def _example(order: Order, described: dict[str, Any]) -> Path | None:
    """The saved input example as a CSV in the scratch folder, where it is a table of numbers."""
    told = described.get("saved_input_example_info")
    if not isinstance(told, dict) or "artifact_path" not in told:
        return None
    path = _inside(order.path, str(told["artifact_path"]))
    try:
        found = json.loads(path.read_bytes())
    except (OSError, ValueError):
        return None
    columns: list[Any] = []
    rows = found
    if isinstance(found, dict):
        columns, rows = found.get("columns") or [], found.get("data", found.get("inputs"))
    if not isinstance(rows, list) or not all(isinstance(row, list) for row in rows) or not rows:
        return None
    made = order.scratch / "input_example.csv"
    with made.open("w", newline="", encoding="utf-8") as file:
        table = csv.writer(file)
        if columns:
            table.writerow(columns)
        table.writerows([["" if cell is None else cell for cell in row] for row in rows])
    return made
