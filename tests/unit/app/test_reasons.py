"""Why a replica can't start, without folders and without what a file has inside."""

import pytest

from tiffin.app.reasons import MAX_REASON, reason_of
from tiffin.errors import ArtifactUnavailable, LoadFailed


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (LoadFailed("the graph has no input 'x'"), "the graph has no input 'x'"),
        (
            LoadFailed("onnxruntime can't load: Load model from /data/model.onnx failed: text/x"),
            "onnxruntime can't load: Load model from model.onnx failed: text/x",
        ),
        (
            ArtifactUnavailable("'/home/my dir/blobs/ab12' can't be read; see https://a.b/c/d"),
            "'ab12' can't be read; see https://a.b/c/d",
        ),
        (
            LoadFailed("no source: file:/data/one/a.gguf, 'file:///d/a b/c'"),
            "no source: file:a.gguf, 'file://c'",
        ),
        (LoadFailed("in /data/one/, and (/data/two)"), "in , and (two)"),
        (
            FileNotFoundError(2, "No such file or directory", "/data/secret/model.bin"),
            "the system refused a file or a device: No such file or directory;"
            " the log has the details",
        ),
        (
            ModuleNotFoundError("No module named 'x' at /data", name="x"),
            "it needs the module 'x', which isn't installed",
        ),
        (MemoryError(), "the machine has too little memory for it; the log has the details"),
        (
            ValueError("bad token 'what a customer wrote' in /data/a"),
            "it failed unexpectedly (ValueError); the log has the details",
        ),
    ],
)
def test_it_is_told_without_what_is_the_operators(error: Exception, reason: str) -> None:
    assert reason_of(error) == reason


def test_it_is_short() -> None:
    assert len(reason_of(LoadFailed("x" * 10_000))) == MAX_REASON
