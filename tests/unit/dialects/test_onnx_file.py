"""Outputs added to a graph's bytes, and its notes: onnxruntime and onnx read the same."""

from pathlib import Path

import numpy as np
import onnx
import onnxruntime  # type: ignore[import-untyped]
import pytest

from tests.onnx_graphs import scoring
from tiffin.dialects.onnx_file import notes, with_best


def scored(opset: int) -> bytes:
    model = onnx.load_from_string(scoring())
    model.opset_import[0].version = opset
    model.ir_version = 8
    return bytes(model.SerializeToString())


@pytest.mark.parametrize("opset", [11, 13, 17, 18, 21])
def test_the_best_class_and_its_score_are_given_too(opset: int) -> None:
    model = with_best(scored(opset), "probabilities")
    session = onnxruntime.InferenceSession(model)
    x = np.random.default_rng(1).normal(size=(5, 4)).astype(np.float32)
    names = ["probabilities", "classes", "confidence"]
    probabilities, classes, confidence = session.run(names, {"x": x})
    assert classes.tolist() == probabilities.argmax(axis=1).tolist()
    assert confidence.tolist() == probabilities.max(axis=1).tolist()


def test_notes_are_read() -> None:
    model = onnx.load_from_string(scoring())
    model.metadata_props.add(key="character", value="a\nb\nü")
    model.metadata_props.add(key="author", value="")
    assert notes(model.SerializeToString()) == {"character": "a\nb\nü", "author": ""}
    assert notes(scoring()) == {}


def test_a_file_is_not_changed(tmp_path: Path) -> None:
    model = scoring()
    assert with_best(model, "probabilities").startswith(model)
