"""Models of three libraries become graphs that answer as they did, or nothing at all."""

import pickle
from pathlib import Path
from typing import Any

import joblib  # type: ignore[import-untyped]
import lightgbm
import numpy as np
import pytest
import xgboost
from sklearn.cluster import KMeans  # type: ignore[import-untyped]
from sklearn.compose import ColumnTransformer  # type: ignore[import-untyped]
from sklearn.ensemble import (  # type: ignore[import-untyped]
    HistGradientBoostingClassifier,
    RandomForestRegressor,
)
from sklearn.feature_extraction.text import CountVectorizer  # type: ignore[import-untyped]
from sklearn.linear_model import LogisticRegression  # type: ignore[import-untyped]
from sklearn.pipeline import make_pipeline  # type: ignore[import-untyped]
from sklearn.preprocessing import OneHotEncoder, StandardScaler  # type: ignore[import-untyped]
from sklearn.svm import LinearSVC  # type: ignore[import-untyped]

from tests.unit.adapters.importers.tables import NAMES, answers, csv_file, imported, rows, truth
from tiffin.adapters.importers.session import Session
from tiffin.adapters.importers.verdict import agree
from tiffin.errors import ArtifactError, ConfigInvalid


def saved(model: Any, folder: Path) -> Path:
    path = folder / "model.joblib"
    joblib.dump(model, path)
    return path


def of_texts() -> Any:
    return make_pipeline(CountVectorizer(), LogisticRegression()).fit(["one two", "three"], [0, 1])


def by_name() -> Any:
    """As pandas' frames make it, which aren't here: fitted by place, then named."""
    columns = ColumnTransformer([("one", StandardScaler(), [2])])
    model = make_pipeline(columns, LogisticRegression()).fit(rows(), truth())
    columns.transformers_ = [("one", columns.transformers_[0][1], ["debt"])]
    columns.feature_names_in_ = np.array(NAMES, object)
    return model


@pytest.mark.parametrize(
    "model",
    [
        make_pipeline(StandardScaler(), LogisticRegression()),
        HistGradientBoostingClassifier(max_iter=10),
        make_pipeline(StandardScaler(), xgboost.XGBClassifier(n_estimators=5)),
        xgboost.XGBClassifier(n_estimators=5),
    ],
    ids=["logistic", "histograms", "pipeline-xgboost", "xgboost"],
)
def test_a_classifier_out_of_a_pickle_gives_its_own_probabilities(
    model: Any, tmp_path: Path
) -> None:
    model.fit(rows(), truth())
    found = imported(saved(model, tmp_path), trusted=True)
    got = answers(found, rows())["probabilities"]
    assert np.abs(got - model.predict_proba(rows().astype(np.float32))).max() < 1e-5
    assert found.decision is not None
    assert (found.decision.output, found.decision.column) == ("probabilities", 1)
    assert found.decision.labels == ("0", "1")
    assert any("differ from the original's by at most" in note for note in found.notes)


@pytest.mark.parametrize(
    ("model", "output"),
    [
        (RandomForestRegressor(5), "variable"),
        (KMeans(3), "label"),
        (make_pipeline(StandardScaler(), LinearSVC()), "label"),
    ],
    ids=["regressor", "clusters", "labels-only"],
)
def test_what_has_no_probabilities_has_no_decision(model: Any, output: str, tmp_path: Path) -> None:
    model.fit(rows(), truth())
    found = imported(saved(model, tmp_path), trusted=True)
    got = answers(found, rows())[output].ravel()
    assert np.allclose(got, model.predict(rows()), rtol=1e-4)
    assert found.decision is None


def test_a_sample_gives_names_and_ordinary_values(tmp_path: Path) -> None:
    model = make_pipeline(StandardScaler(), LogisticRegression()).fit(rows(), truth())
    found = imported(
        saved(model, tmp_path),
        trusted=True,
        sample=csv_file(tmp_path),
        features=NAMES,
        threshold=0.3,
        labels=("ok", "bad"),
    )
    decision = found.decision
    assert decision is not None
    assert (decision.threshold, decision.labels) == (0.3, ("ok", "bad"))
    assert decision.features == list(NAMES)
    assert np.allclose(decision.reference, np.median(rows(50), axis=0), rtol=1e-4)


def test_a_pickle_is_never_loaded_unasked(tmp_path: Path) -> None:
    class Trap:
        def __reduce__(self) -> tuple[Any, ...]:
            return (Path.touch, (tmp_path / "ran",))

    path = tmp_path / "model.pkl"
    path.write_bytes(pickle.dumps(Trap()))
    with pytest.raises(ConfigInvalid, match=r"--trusted: .*runs whatever code"):
        imported(path)
    assert not (tmp_path / "ran").exists()


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ({"a": 1}, "neither predict nor transform"),
        (LogisticRegression(), "never fitted"),
        (of_texts(), "takes texts"),
    ],
    ids=["no-model", "not-fitted", "texts"],
)
def test_a_pickle_of_something_else_is_refused(content: Any, message: str, tmp_path: Path) -> None:
    with pytest.raises(ArtifactError, match=message):
        imported(saved(content, tmp_path), trusted=True)


def test_columns_that_were_selected_by_name_are_selected_by_place(tmp_path: Path) -> None:
    model = by_name()
    found = imported(saved(model, tmp_path), trusted=True)
    assert any("by their places" in note for note in found.notes)
    assert found.decision is not None
    assert found.decision.features == list(NAMES)
    scaled = (rows()[:, [2]] - rows()[:, 2].mean()) / rows()[:, 2].std()
    want = model.steps[1][1].predict_proba(scaled)
    assert np.abs(answers(found, rows())["probabilities"] - want).max() < 1e-5


def test_columns_of_text_become_inputs_of_their_own(tmp_path: Path) -> None:
    towns = np.array([["Pune", "Delhi", "Goa"][at % 3] for at in range(200)], object)
    table = np.column_stack([rows()[:, 0].astype(object), towns])
    columns = ColumnTransformer(
        [("numbers", StandardScaler(), [0]), ("texts", OneHotEncoder(), [1])]
    )
    model = make_pipeline(columns, LogisticRegression()).fit(table, truth())
    path = saved(model, tmp_path)
    with pytest.raises(ConfigInvalid, match="the columns 2 are texts"):
        imported(path, trusted=True)
    lines = [f"{age},{town}" for age, town in table[:50]]
    (tmp_path / "sample.csv").write_text("\n".join(["age,town", *lines]))
    found = imported(path, trusted=True, sample=tmp_path / "sample.csv")
    assert found.signature is not None
    assert [(spec.name, spec.datatype) for spec in found.signature.inputs] == [
        ("age", "FP32"),
        ("town", "BYTES"),
    ]
    inputs = {"age": table[:, :1].astype(np.float32), "town": table[:, 1:]}
    got = Session(found.files["model.onnx"]).run(inputs)["probabilities"]
    assert np.abs(got - model.predict_proba(table)).max() < 1e-5
    assert found.decision is not None
    assert found.decision.reference == []


def test_a_damaged_pickle_is_refused(tmp_path: Path) -> None:
    path = saved(LogisticRegression().fit(rows(), truth()), tmp_path)
    path.write_bytes(path.read_bytes()[:100])
    with pytest.raises(ArtifactError, match="can't be loaded as a pickle"):
        imported(path, trusted=True)


@pytest.mark.parametrize("suffix", ["json", "ubj"])
def test_xgboost_files_are_read_without_pickle(suffix: str, tmp_path: Path) -> None:
    data = xgboost.DMatrix(rows(), label=truth(), feature_names=list(NAMES))
    booster = xgboost.train({"objective": "binary:logistic"}, data, 5)
    path = tmp_path / f"model.{suffix}"
    booster.save_model(path)
    found = imported(path)
    got = answers(found, rows())["probabilities"][:, 1]
    assert np.abs(got - booster.predict(data)).max() < 1e-5
    assert found.decision is not None
    assert found.decision.features == list(NAMES)


def test_lightgbm_files_are_read_without_pickle(tmp_path: Path) -> None:
    data = lightgbm.Dataset(rows(), label=truth(), feature_name=list(NAMES))
    booster = lightgbm.train({"objective": "binary", "verbose": -1}, data, 5)
    path = tmp_path / "model.txt"
    booster.save_model(path)
    found = imported(path)
    got = answers(found, rows())
    want = np.asarray(booster.predict(rows().astype(np.float32).astype(np.float64)))
    assert np.abs(got["probabilities"][:, 1] - want).max() < 1e-5
    assert got["label"].shape == (200,)
    assert found.decision is not None
    assert found.decision.features == list(NAMES)
    assert found.signature is not None
    assert found.signature.batched


def test_three_classes_are_no_decision(tmp_path: Path) -> None:
    x, y = rows(), np.digitize(rows()[:, 0], [35.0, 45.0])
    model = xgboost.XGBClassifier(n_estimators=3).fit(x, y)
    path = saved(model, tmp_path)
    assert imported(path, trusted=True).decision is None
    with pytest.raises(ConfigInvalid, match="between two labels"):
        imported(path, trusted=True, threshold=0.5)


@pytest.mark.parametrize(
    ("name", "content", "kind"),
    [
        ("model.json", b'{"learner":{"bro', "XGBoost"),
        ("model.txt", b"tree\nversion=v4\nnum_class=1\n", "cut off"),
    ],
)
def test_damaged_files_are_refused(name: str, content: bytes, kind: str, tmp_path: Path) -> None:
    (tmp_path / name).write_bytes(content)
    with pytest.raises(ArtifactError, match=kind):
        imported(tmp_path / name)


@pytest.mark.parametrize(
    ("sample", "said", "message"),
    [
        ("age,income,debt\n1,2,x\n", {}, '--sample: line 1, debt: "x" is not a number'),
        ("age,income\n1,2\n", {}, "it has 2 columns, the model has 3 inputs"),
        ("age,income,debt\n1,2\n", {}, "differ in length"),
        ("age,income,debt\n", {}, "no rows"),
        ("1,2,3\n", {"features": ("a", "b")}, "--features: 2 names were given"),
    ],
    ids=["text", "too-few", "ragged", "empty", "names"],
)
def test_a_sample_that_does_not_fit_is_refused(
    sample: str, said: dict[str, Any], message: str, tmp_path: Path
) -> None:
    path = saved(LogisticRegression().fit(rows(), truth()), tmp_path)
    (tmp_path / "sample.csv").write_text(sample)
    with pytest.raises(ConfigInvalid, match=message):
        imported(path, trusted=True, sample=tmp_path / "sample.csv", **said)


def test_answers_that_differ_are_told_in_numbers() -> None:
    with pytest.raises(ArtifactError, match=r"by up to 0\.002, 1e-04 is allowed"):
        agree(np.array([0.5]), np.array([0.502]), "probabilities", "1 row")
    with pytest.raises(ArtifactError, match="up to inf"):
        agree(np.array([np.nan]), np.array([0.5]), "probabilities", "1 row")
    with pytest.raises(ArtifactError, match="1 other labels"):
        agree(np.array(["a", "b"]), np.array(["a", "c"]), "labels", "2 rows")
    agree(np.array([np.nan, np.inf]), np.array([np.nan, np.inf]), "values", "2 rows")
