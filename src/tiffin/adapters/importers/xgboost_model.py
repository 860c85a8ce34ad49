"""XGBoost models (.json, .ubj): loaded without any code of theirs, converted, compared."""

import json
import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tiffin.adapters.importers.order import Imported, Order
from tiffin.adapters.importers.sample import INPUT, Range, Rows, sample_for, widened
from tiffin.adapters.importers.tabular import Original, converted
from tiffin.errors import ArtifactError


def bring(order: Order) -> Imported:
    """The booster, converted; raises `ArtifactError`."""
    import xgboost

    try:
        # As bytes: by content, and not by a suffix that MLflow or somebody else made up.
        booster = xgboost.Booster(model_file=bytearray(order.path.read_bytes()))
    except xgboost.core.XGBoostError as cause:
        reason = str(cause).strip().partition("\n")[0]
        raise ArtifactError(f"{order.path} is no model that XGBoost can read: {reason}") from cause
    return convert(order, booster)


def convert(order: Order, booster: Any, classes: Sequence[str] = ()) -> Imported:
    """A loaded booster as a graph; `classes` are the names that its wrapper gave them."""
    learner = json.loads(booster.save_config())["learner"]
    objective = str(learner["objective"]["name"])
    if "c" in (booster.feature_types or ()):
        raise ArtifactError(
            "this XGBoost model splits on categories, which ONNX's trees can't: encode them as"
            " numbers before training"
        )
    width = int(booster.num_features())
    names = tuple(booster.feature_names or ())
    count = int(learner["learner_model_param"].get("num_class", "0"))
    output, classes = _output(objective, count, classes)

    def answer(rows: Rows) -> NDArray[Any]:
        found = np.asarray(booster.inplace_predict(rows))
        return np.column_stack([1 - found, found]) if objective == "binary:logistic" else found

    sample = sample_for(order, names, _ranges(booster, width, names), gaps=True)
    original = Original(f"an XGBoost model ({objective})", output, answer, classes)
    return converted(order, _graph(booster, width, objective), original, sample)


def _output(objective: str, count: int, classes: Sequence[str]) -> tuple[str, Sequence[str]]:
    if objective == "binary:logistic":
        return "probabilities", classes or ("0", "1")
    if objective == "multi:softprob":
        return "probabilities", classes or [str(one) for one in range(count)]
    return ("label", classes) if objective == "multi:softmax" else ("", ())


def _graph(booster: Any, width: int, objective: str) -> Any:
    from onnxmltools import convert_xgboost  # type: ignore[import-untyped]
    from onnxmltools.convert.common.data_types import (  # type: ignore[import-untyped]
        FloatTensorType,
    )

    plain = booster.copy()
    plain.feature_names = None  # the converter wants them to be f0, f1 …
    try:
        return convert_xgboost(plain, initial_types=[(INPUT, FloatTensorType([None, width]))])
    except Exception as cause:
        reason = " ".join(str(cause).split())[:300]
        raise ArtifactError(
            f"an XGBoost model for {objective} can't be converted to ONNX: {reason}"
        ) from cause


def _ranges(booster: Any, width: int, names: Sequence[str]) -> list[Range]:
    """From the least to the greatest value that a column is split at."""
    lows, highs = np.full(width, math.inf), np.full(width, -math.inf)
    columns = {name: at for at, name in enumerate(names or [f"f{n}" for n in range(width)])}
    waiting = [json.loads(tree) for tree in booster.get_dump(dump_format="json")]
    while waiting:
        node = waiting.pop()
        if "children" in node:
            at, value = columns[node["split"]], float(node["split_condition"])
            lows[at], highs[at] = min(lows[at], value), max(highs[at], value)
            waiting += node["children"]
    known = lows <= highs
    return widened(np.where(known, lows, -1.0), np.where(known, highs, 1.0))
