"""What skl2onnx can't convert by itself, taught to it: boosted trees of three libraries."""

from collections.abc import Callable
from typing import Any

_CLASSIFIER = {
    "zipmap": [True, False, "columns"],
    "nocl": [True, False],
    "raw_scores": [True, False],
    "output_class_labels": [False, True],
}
_OF_HISTOGRAMS = {
    "SklearnHistGradientBoostingClassifier": _CLASSIFIER,
    "SklearnHistGradientBoostingRegressor": {"raw_scores": [True, False]},
}


def teach() -> None:
    """Register the converters in this process; again is harmless."""
    _histograms()
    _xgboost()
    _lightgbm()


class _WithoutBooleans:
    """skl2onnx's container, with numbers where its tree converters put numpy's booleans.

    onnx refuses those as integers; see `nodes_missing_value_tracks_true`.
    """

    def __init__(self, container: Any) -> None:
        self._container = container

    def __getattr__(self, name: str) -> Any:
        return getattr(self._container, name)

    def add_node(self, kind: str, inputs: Any, outputs: Any, **attributes: Any) -> Any:
        """The container's own, with plain integers."""
        key = "nodes_missing_value_tracks_true"
        if key in attributes:
            attributes[key] = [int(one) for one in attributes[key]]
        return self._container.add_node(kind, inputs, outputs, **attributes)


def _histograms() -> None:
    from skl2onnx.common._registration import (  # type: ignore[import-untyped]
        get_converter,
        register_converter,
    )

    for name, options in _OF_HISTOGRAMS.items():
        own = get_converter(name)
        if not getattr(own, "without_booleans", False):
            register_converter(name, _wrapped(own), overwrite=True, options=options)


def _wrapped(own: Callable[..., Any]) -> Callable[..., Any]:
    def convert(scope: Any, operator: Any, container: Any) -> None:
        own(scope, operator, _WithoutBooleans(container))

    convert.without_booleans = True  # type: ignore[attr-defined]
    return convert


def _xgboost() -> None:
    try:
        from onnxmltools.convert.xgboost.operator_converters.XGBoost import (  # type: ignore[import-untyped]
            convert_xgboost,
        )
        from xgboost import XGBClassifier, XGBRegressor
    except ImportError:
        return
    _register(XGBClassifier, "XGBoostXGBClassifier", convert_xgboost)
    _register(XGBRegressor, "XGBoostXGBRegressor", convert_xgboost)


def _lightgbm() -> None:
    try:
        from lightgbm import LGBMClassifier, LGBMRegressor
        from onnxmltools.convert.lightgbm.operator_converters.LightGbm import (  # type: ignore[import-untyped]
            convert_lightgbm,
        )
    except ImportError:
        return
    _register(LGBMClassifier, "LightGbmLGBMClassifier", convert_lightgbm)
    _register(LGBMRegressor, "LightGbmLGBMRegressor", convert_lightgbm)


def _register(kind: type, alias: str, convert: Callable[..., Any]) -> None:
    from skl2onnx import update_registered_converter  # type: ignore[import-untyped]
    from skl2onnx.common.shape_calculator import (  # type: ignore[import-untyped]
        calculate_linear_classifier_output_shapes,
        calculate_linear_regressor_output_shapes,
    )

    classifier = hasattr(kind, "predict_proba")
    shapes = (
        calculate_linear_classifier_output_shapes
        if classifier
        else calculate_linear_regressor_output_shapes
    )
    options = {"nocl": [True, False], "zipmap": [True, False, "columns"]} if classifier else {}
    update_registered_converter(kind, alias, shapes, convert, options=options)
