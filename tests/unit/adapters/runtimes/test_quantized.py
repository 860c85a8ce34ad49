"""Graphs whose rows depend on each other are told by their operators."""

from pathlib import Path

import pytest

from tests.real_models import model_files
from tiffin.adapters.runtimes.quantized import scales_by_batch


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        (b"\x08\x07MatMul\x12\x01Gelu", False),
        (b"\x08\x07..\x22\x15DynamicQuantizeLinear..", True),
        (b"...com.microsoft.DynamicQuantizeMatMul", True),
        (b"QuantizeLinear", False),
    ],
    ids=str,
)
def test_operators_that_scale_by_what_they_are_given(
    tmp_path: Path, content: bytes, expected: bool
) -> None:
    graph = tmp_path / "model.onnx"
    graph.write_bytes(content)
    assert scales_by_batch(graph) is expected


@pytest.mark.models
@pytest.mark.parametrize("name", ["embed", "rerank"])
def test_the_starters_models_do(name: str) -> None:
    assert scales_by_batch(model_files(name)["model.onnx"])
