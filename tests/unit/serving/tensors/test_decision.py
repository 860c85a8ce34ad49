"""Decisions: what a score means, and which features moved it, only when asked for."""

import json
from typing import Any

import numpy as np
import pytest

from tiffin.config.models import Decision
from tiffin.errors import LoadFailed, RunFailed, SchemaViolation
from tiffin.serving.tensors.decision import MAX_REASON_ROWS, Deciding
from tiffin.types.tensors import Signature, TensorSpec

WIDE = Signature(
    inputs=(TensorSpec(name="x", datatype="FP32", shape=(-1, 3)),),
    outputs=(
        TensorSpec(name="label", datatype="INT64", shape=(-1,)),
        TensorSpec(name="p", datatype="FP32", shape=(-1, 2)),
    ),
    batched=True,
)
COLUMNS = Signature(
    inputs=(
        TensorSpec(name="age", datatype="INT64", shape=(-1, 1)),
        TensorSpec(name="debt", datatype="FP32", shape=(-1, 1)),
    ),
    outputs=(TensorSpec(name="p", datatype="FP32", shape=(-1,)),),
    batched=True,
)


def deciding(signature: Signature = WIDE, **settings: Any) -> Deciding:
    return Deciding(Decision(**settings), signature)


def scores(*values: float) -> "np.ndarray[Any, np.dtype[np.float32]]":
    return np.array(values, np.float32)


def test_a_score_is_the_column_of_the_class_in_question() -> None:
    p = np.array([[0.75, 0.25], [0.5, 0.5]], np.float32)
    assert deciding().scores({"p": p}).tolist() == [0.25, 0.5]
    assert deciding(column=0).scores({"p": p}).tolist() == [0.75, 0.5]


@pytest.mark.parametrize("shape", [(2,), (2, 1)])
def test_a_single_column_is_the_score(shape: tuple[int, ...]) -> None:
    p = scores(0.25, 0.5).reshape(shape)
    assert deciding().scores({"p": p}).tolist() == [0.25, 0.5]


@pytest.mark.parametrize("shape", [(1, 2, 2), (2, 2)])
def test_a_column_that_isnt_there_is_named(shape: tuple[int, ...]) -> None:
    with pytest.raises(RunFailed, match="column 5 of 'p'"):
        deciding(column=5).scores({"p": np.zeros(shape, np.float32)})


def test_the_threshold_itself_is_decided_as_the_second_label() -> None:
    made = deciding(threshold=0.7, labels=("good", "bad"))
    assert made.decisions(scores(0.6999, 0.7, 0.8)).tolist() == [b"good", b"bad", b"bad"]


def test_nothing_is_decided_on_a_score_that_is_no_number() -> None:
    with pytest.raises(RunFailed, match="NaN"):
        deciding().decisions(scores(0.1, float("nan")))


def test_each_feature_is_occluded_in_a_row_of_its_own() -> None:
    made = deciding(features=["a", "b", "c"], reference=[0, 0, 9])
    x = np.array([[1, 2, 3], [4, 5, 6]], np.float32)
    first, second = made.variants({"x": x})
    assert first["x"].tolist() == [[1, 2, 3], [0, 2, 3], [1, 0, 3], [1, 2, 9]]
    assert second["x"].tolist() == [[4, 5, 6], [0, 5, 6], [4, 0, 6], [4, 5, 9]]
    assert x.tolist() == [[1, 2, 3], [4, 5, 6]]


def test_features_may_be_inputs_of_their_own_named_in_any_order() -> None:
    made = deciding(COLUMNS, features=["debt", "age"], reference=[0, 30])
    [told] = made.variants({"age": np.array([[50]]), "debt": np.array([[7]], np.float32)})
    assert told["age"].tolist() == [[50], [50], [30]]
    assert told["debt"].tolist() == [[7], [0], [7]]


def test_reasons_are_the_strongest_effects_either_way() -> None:
    made = deciding(features=["a", "b", "c"], reference=[0, 0, 0], reasons=2)
    told = json.loads(made.reasons(scores(0.5, 0.375, 1.0, 0.5)))
    assert told == [{"feature": "b", "effect": -0.5}, {"feature": "a", "effect": 0.125}]


def test_too_many_rows_get_no_reasons() -> None:
    made = deciding(features=["a", "b", "c"], reference=[0, 0, 0])
    with pytest.raises(SchemaViolation, match="at most 256 rows"):
        next(made.variants({"x": np.zeros((MAX_REASON_ROWS + 1, 3), np.float32)}))


def test_the_extra_outputs_are_those_that_can_be_told() -> None:
    assert [spec.name for spec in deciding().specs] == ["decision", "score"]
    told = deciding(features=["a", "b", "c"], reference=[0, 0, 0]).specs
    assert [spec.name for spec in told] == ["decision", "score", "reasons"]


@pytest.mark.parametrize(
    ("signature", "settings", "told"),
    [
        pytest.param(WIDE, {"output": "label"}, "one of: p", id="an output of no scores"),
        pytest.param(WIDE, {"output": "q"}, "one of: p", id="no such output"),
        pytest.param(
            WIDE, {"features": ["a"], "reference": [0, 1]}, "2 values for 1", id="references"
        ),
        pytest.param(
            WIDE, {"features": ["a", "b"], "reference": [0, 1]}, r"x \[-1, 3\]", id="features"
        ),
        pytest.param(
            Signature(
                inputs=WIDE.inputs,
                outputs=(TensorSpec(name="score", datatype="FP32", shape=(-1,)),),
            ),
            {},
            "of its own called score",
            id="names that the model has",
        ),
    ],
)
def test_settings_that_dont_fit_the_model_fail_its_load(
    signature: Signature, settings: dict[str, Any], told: str
) -> None:
    with pytest.raises(LoadFailed, match=told):
        deciding(signature, **settings)
