"""scikit-learn models out of pickle and joblib files: loading one runs whatever code it holds."""

import warnings
from types import MappingProxyType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tiffin.adapters.importers import lightgbm_model, wider, xgboost_model
from tiffin.adapters.importers.order import Imported, Order
from tiffin.adapters.importers.sample import Range, Table, mixed_for, sample_for, widened
from tiffin.adapters.importers.sklearn_columns import by_place, parts, text_columns
from tiffin.adapters.importers.tabular import Original, converted
from tiffin.errors import ArtifactError, ConfigInvalid

OPSETS = MappingProxyType({"": 18, "ai.onnx.ml": 3})


def bring(order: Order) -> Imported:
    """The estimator, converted; raises `ConfigInvalid` where nobody said that it is trusted."""
    if not order.trusted:
        raise ConfigInvalid(
            f"{order.path} is a pickle, and loading a pickle runs whatever code somebody put into"
            " it; if you made it or trust who did, say --trusted",
            where="--trusted",
        )
    import joblib  # type: ignore[import-untyped]

    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        try:
            model = joblib.load(order.path)
        except ImportError:
            raise
        except Exception as cause:
            reason = " ".join(str(cause).split())[:300] or type(cause).__name__
            raise ArtifactError(f"{order.path} can't be loaded as a pickle: {reason}") from cause
    notes = sorted({_version_note(one) for one in said} - {""})
    return convert(order, model, notes)


def convert(order: Order, model: Any, notes: list[str]) -> Imported:
    """A loaded estimator as a graph; XGBoost's and LightGBM's wrappers by their own ways."""
    kind = f"{type(model).__module__.partition('.')[0]}.{type(model).__name__}"
    names = tuple(str(name) for name in getattr(model, "feature_names_in_", ()))
    classes = tuple(str(one) for one in getattr(model, "classes_", ()))
    if hasattr(model, "get_booster"):
        return xgboost_model.convert(order, model.get_booster(), classes=classes)
    if hasattr(model, "booster_"):
        return lightgbm_model.convert(order, model.booster_, classes=classes)
    if not hasattr(model, "predict") and not hasattr(model, "transform"):
        raise ArtifactError(f"{order.path} holds a {kind}, which has neither predict nor transform")
    width = getattr(model, "n_features_in_", 0)
    if any(hasattr(part, "vocabulary_") for part in parts(model)):
        raise ArtifactError(
            f"{order.path} takes texts, and tables of numbers are what can be converted: serve it"
            " as a Python class of yours (--kind python)"
        )
    if not width:
        raise ArtifactError(f"{order.path} holds a {kind} that was never fitted")
    model, placed = by_place(model)
    if placed:
        notes = [*notes, "it selects columns by name; here by their places, which is the same"]
    texts = text_columns(model)
    sample: Table
    if texts:
        sample = mixed_for(order, names, int(width), texts)
    else:
        sample = sample_for(order, names, _ranges(model, int(width)))
    original = Original(f"scikit-learn's {_words(model)}", *_answer(model), classes)
    return converted(order, _graph(model, sample, kind), original, sample, notes)


def _graph(model: Any, sample: Table, kind: str) -> Any:
    from skl2onnx import to_onnx  # type: ignore[import-untyped]
    from skl2onnx.common.data_types import (  # type: ignore[import-untyped]
        FloatTensorType,
        StringTensorType,
    )

    types = [
        (name, (FloatTensorType if array.dtype == np.float32 else StringTensorType)(shape))
        for name, array in sample.inputs().items()
        for shape in [[None, array.shape[1]]]
    ]
    wider.teach()
    # A classifier without probabilities knows no "zipmap", and takes this instead of the default.
    switch = "zipmap" if hasattr(model, "predict_proba") else "nocl"
    options = {id(model): {switch: False}} if hasattr(model, "classes_") else {}
    try:
        return to_onnx(
            model,
            initial_types=types,
            options=options,
            target_opset=dict(OPSETS),
        )
    except Exception as cause:
        reason = " ".join(str(cause).split())[:300]
        raise ArtifactError(f"{kind} can't be converted to ONNX: {reason}") from cause


def _answer(model: Any) -> tuple[str, Any]:
    """The output to compare and the original's way to it."""

    def quietly(name: str) -> Any:
        def answer(rows: NDArray[Any]) -> Any:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # of names that columns had while it was fitted
                return np.asarray(getattr(model, name)(_wide(rows)))

        return answer

    if hasattr(model, "predict_proba"):
        return "probabilities", quietly("predict_proba")
    if hasattr(model, "classes_") or hasattr(model, "cluster_centers_"):
        return "label", quietly("predict")
    return "", quietly("predict" if hasattr(model, "predict") else "transform")


def _wide(rows: NDArray[Any]) -> NDArray[Any]:
    return rows.astype(np.float64) if rows.dtype == np.float32 else rows


def _ranges(model: Any, width: int) -> list[Range]:
    """Where inputs lie, as far as the model knows: scaled columns, or the splits of its trees."""
    lows, highs = np.full(width, np.inf), np.full(width, -np.inf)
    for part in parts(model):
        scaled = getattr(part, "scale_", None)
        mean = getattr(part, "mean_", None)
        if scaled is not None and mean is not None and len(mean) == width:
            lows, highs = mean - 2 * scaled, mean + 2 * scaled
            break
        tree = getattr(part, "tree_", None)
        if tree is not None:
            split = tree.feature >= 0
            np.minimum.at(lows, tree.feature[split], tree.threshold[split])
            np.maximum.at(highs, tree.feature[split], tree.threshold[split])
    known = lows <= highs
    return widened(np.where(known, lows, -3.0), np.where(known, highs, 3.0))


def _words(model: Any) -> str:
    steps = [type(step).__name__ for _, step in getattr(model, "steps", ())]
    return " → ".join(steps) or type(model).__name__


def _version_note(said: warnings.WarningMessage) -> str:
    made = getattr(said.message, "original_sklearn_version", "")
    here = getattr(said.message, "current_sklearn_version", "")
    return f"it was made with scikit-learn {made} and read with {here}" if made else ""
