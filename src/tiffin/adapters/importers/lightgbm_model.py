"""LightGBM models (.txt): loaded without any code of theirs, converted, compared."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tiffin.adapters.importers.order import Imported, Order
from tiffin.adapters.importers.sample import INPUT, Range, Rows, sample_for, widened
from tiffin.adapters.importers.tabular import Original, converted
from tiffin.errors import ArtifactError

_PROBABILITIES = ("binary", "multiclass", "multiclassova")


def bring(order: Order) -> Imported:
    """The booster, converted; raises `ArtifactError`."""
    import lightgbm

    try:
        text = order.path.read_text(encoding="utf-8")
        if "end of trees" not in text:
            raise ArtifactError(f"{order.path} ends before its trees do: it was cut off")
        booster = lightgbm.Booster(model_str=text)
    except (lightgbm.basic.LightGBMError, UnicodeDecodeError) as cause:
        reason = str(cause).strip().partition("\n")[0]
        raise ArtifactError(f"{order.path} is no model that LightGBM can read: {reason}") from cause
    return convert(order, booster)


def convert(order: Order, booster: Any, classes: Sequence[str] = ()) -> Imported:
    """A loaded booster as a graph; `classes` are the names that its wrapper gave them."""
    described = booster.dump_model(num_iteration=1)
    objective = str(described.get("objective", "regression")).partition(" ")[0]
    names = tuple(booster.feature_name())
    if names == tuple(f"Column_{at}" for at in range(len(names))):
        names = ()
    probable = objective in _PROBABILITIES
    count = max(2, int(described["num_class"]))
    classes = (classes or [str(one) for one in range(count)]) if probable else ()

    def answer(rows: Rows) -> NDArray[Any]:
        found = np.asarray(booster.predict(rows.astype(np.float64)))
        return np.column_stack([1 - found, found]) if objective == "binary" else found

    ranges = _ranges(described, int(booster.num_feature()))
    sample = sample_for(order, names, ranges, gaps=True)
    output = "probabilities" if probable else ""
    original = Original(f"a LightGBM model ({objective})", output, answer, classes)
    return converted(order, _graph(booster, len(ranges), objective), original, sample)


def _graph(booster: Any, width: int, objective: str) -> Any:
    from onnxmltools import convert_lightgbm  # type: ignore[import-untyped]
    from onnxmltools.convert.common.data_types import (  # type: ignore[import-untyped]
        FloatTensorType,
    )

    types = [(INPUT, FloatTensorType([None, width]))]
    try:
        return convert_lightgbm(booster, initial_types=types, zipmap=False)
    except Exception as cause:
        reason = " ".join(str(cause).split())[:300]
        raise ArtifactError(
            f"a LightGBM model for {objective} can't be converted to ONNX: {reason}"
        ) from cause


def _ranges(described: dict[str, Any], width: int) -> list[Range]:
    """What the model saw of each column while it was trained."""
    seen = described.get("feature_infos") or {}
    lows, highs = np.full(width, -1.0), np.full(width, 1.0)
    for at, name in enumerate(described["feature_names"]):
        if name in seen and seen[name].get("min_value") is not None:
            lows[at], highs[at] = seen[name]["min_value"], seen[name]["max_value"]
    return widened(lows, highs)
