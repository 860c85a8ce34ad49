"""ONNX files: what is sound passes as it is, what can be mended is, the rest is refused."""

import os
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from tests.unit.adapters.importers.tables import imported, rows, truth
from tiffin.adapters.importers.session import Session
from tiffin.errors import ArtifactError, ConfigInvalid


def doubled(shape: list[Any] | None = None) -> onnx.ModelProto:
    """y = x · w, for rows of three numbers."""
    size = shape or ["N", 3]
    graph = helper.make_graph(
        [helper.make_node("Mul", ["x", "w"], ["y"])],
        "doubled",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, size)],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, size)],
        [numpy_helper.from_array(np.full(3, 2.0, np.float32), "w")],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)])
    model.ir_version = 9
    return model


def test_a_sound_graph_is_served_as_it_is(tmp_path: Path) -> None:
    path = tmp_path / "model.onnx"
    onnx.save(doubled(), path)
    found = imported(path)
    assert found.files == {"model.onnx": path}
    assert found.decision is None
    assert found.example["x"].shape == (1, 3)
    assert "x FP32[?,3]" in found.what


def test_weights_beside_the_graph_come_into_it(tmp_path: Path) -> None:
    path = tmp_path / "model.onnx"
    onnx.save_model(
        doubled(), path, save_as_external_data=True, location="weights", size_threshold=0
    )
    assert (tmp_path / "weights").exists()
    found = imported(path)
    (tmp_path / "weights").unlink()
    got = Session(found.files["model.onnx"]).run({"x": np.ones((1, 3), np.float32)})
    assert got["y"].tolist() == [[2.0, 2.0, 2.0]]


def test_maps_of_probabilities_become_tensors(tmp_path: Path) -> None:
    from skl2onnx import to_onnx  # type: ignore[import-untyped]
    from sklearn.linear_model import LogisticRegression  # type: ignore[import-untyped]

    model = LogisticRegression().fit(rows(), truth())
    path = tmp_path / "model.onnx"
    onnx.save(to_onnx(model, rows()[:1].astype(np.float32), target_opset=18), path)
    found = imported(path, threshold=0.4)
    assert any("became the tensor" in note for note in found.notes)
    got = Session(found.files["model.onnx"]).run({"X": rows().astype(np.float32)})
    assert np.abs(got["output_probability"] - model.predict_proba(rows())).max() < 1e-5
    assert found.decision is not None
    assert found.decision.output == "output_probability"


def test_a_decision_needs_a_score(tmp_path: Path) -> None:
    path = tmp_path / "model.onnx"
    onnx.save(doubled(), path)
    with pytest.raises(ConfigInvalid, match="y has 3 columns"):
        imported(path, threshold=0.5)


def test_a_sample_needs_rows(tmp_path: Path) -> None:
    path = tmp_path / "model.onnx"
    onnx.save(doubled([1, 1, 3]), path)
    with pytest.raises(ConfigInvalid, match=r"--sample: .* takes x FP32\[1,1,3\]"):
        imported(path, sample=tmp_path / "rows.csv")


@pytest.mark.parametrize("content", [b"not a graph", b"\x08\x08\x3a\x05abcde", b""])
def test_damaged_graphs_are_refused(content: bytes, tmp_path: Path) -> None:
    path = tmp_path / "model.onnx"
    path.write_bytes(content)
    with pytest.raises(ArtifactError, match=r"model\.onnx"):
        imported(path)


def test_a_graph_that_was_cut_off_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "model.onnx"
    path.write_bytes(doubled().SerializeToString()[:-20])
    with pytest.raises(ArtifactError, match="no valid ONNX model"):
        imported(path)


def test_a_file_larger_than_any_graph_is_refused_unread(tmp_path: Path) -> None:
    path = tmp_path / "model.onnx"
    path.touch()
    os.truncate(path, 5_000_000_000_000)
    with pytest.raises(ArtifactError, match="more than 2 GB"):
        imported(path, "onnx")
