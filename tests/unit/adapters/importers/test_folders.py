"""Folders, GGUF files and classes: recognised by content, led to what can serve them."""

import json
import os
import pickle
import struct
import sys
from pathlib import Path

import joblib  # type: ignore[import-untyped]
import lightgbm
import pytest
import xgboost
from sklearn.linear_model import LogisticRegression  # type: ignore[import-untyped]

from tests.unit.adapters.importers.encoders import encoder
from tests.unit.adapters.importers.tables import NAMES, answers, imported, rows, truth
from tiffin.adapters.importers.recognise import kind_at
from tiffin.errors import ArtifactError, ConfigInvalid


def gguf(path: Path, *, family: str = "llama", tail: bytes = b"\0" * 64) -> Path:
    """A head with what matters, and one tensor's bytes."""

    def text(value: str) -> bytes:
        return struct.pack("<Q", len(value)) + value.encode()

    entries = [
        text("general.architecture") + struct.pack("<I", 8) + text(family),
        text(f"{family}.context_length") + struct.pack("<II", 4, 2048),
        text("tokenizer.chat_template") + struct.pack("<I", 8) + text("{{ tools }}"),
        text("tokenizer.ggml.tokens") + struct.pack("<IIQ", 9, 8, 1) + text("a"),
        text("tokenizer.ggml.scores") + struct.pack("<IIQf", 9, 6, 1, 0.5),
    ]
    tensor = text("weights") + struct.pack("<IQIQ", 1, 4, 0, 0)
    head = struct.pack("<4sIQQ", b"GGUF", 3, 1, len(entries)) + b"".join(entries) + tensor
    path.write_bytes(head + b"\0" * (-len(head) % 32) + tail)
    return path


def test_a_gguf_file_is_taken_as_its_head_says(tmp_path: Path) -> None:
    path = gguf(tmp_path / "any.bin")
    found = imported(path)
    assert found.runtime == "llamacpp"
    assert found.settings == {"context": 2048, "tools": True}
    assert found.files == {"model.gguf": path}


def test_gguf_files_that_can_not_work_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ArtifactError, match="cut off"):
        imported(gguf(tmp_path / "short.gguf", tail=b""))
    with pytest.raises(ArtifactError, match="holds a bert"):
        imported(gguf(tmp_path / "bert.gguf", family="bert"))
    whole = gguf(tmp_path / "whole.gguf").read_bytes()
    for length in range(4, 200, 7):
        (tmp_path / "part.gguf").write_bytes(whole[:length])
        with pytest.raises(ArtifactError):
            imported(tmp_path / "part.gguf")


def test_a_hub_folder_leads_to_what_lies_in_it(tmp_path: Path) -> None:
    folder = tmp_path / "gguf"
    folder.mkdir()
    gguf(folder / "model.gguf")
    assert imported(folder).runtime == "llamacpp"
    gguf(folder / "other.gguf")
    with pytest.raises(ArtifactError, match=r"name one of them: model\.gguf, other\.gguf"):
        imported(folder)


def test_an_exported_encoder_beside_its_tokenizer_is_one(tmp_path: Path) -> None:
    folder = encoder(tmp_path / "model", "bert")
    graph = imported(folder).files["model.onnx"]
    graph.rename(folder / "model.onnx")
    found = imported(folder)
    assert found.what == "a text encoder in ONNX"
    assert found.settings["task"] == "embed"
    assert found.settings["max_tokens"] == 20
    assert set(found.files) == {"model.onnx", "tokenizer.json"}


@pytest.mark.parametrize(
    ("files", "message"),
    [
        ({"config.json": '{"model_type": "qwen2"}', "model.safetensors": ""}, "make a GGUF"),
        ({"config.json": '{"model_type": "bert"}', "pytorch_model.bin": ""}, "are a pickle"),
        ({"config.json": "{}", "model-1-of-2.safetensors": ""}, "max_shard_size"),
        ({"config.json": "no"}, r"config\.json can't be read"),
        ({"notes.md": ""}, "a folder without MLmodel"),
    ],
    ids=["decoder", "pickled", "shards", "config", "nothing"],
)
def test_folders_that_can_not_be_served_say_what_to_do(
    files: dict[str, str], message: str, tmp_path: Path
) -> None:
    folder = tmp_path / "model"
    folder.mkdir()
    for name, content in files.items():
        (folder / name).write_text(content)
    with pytest.raises(ArtifactError, match=message):
        imported(folder)


def mlflow(folder: Path, flavours: str) -> Path:
    """A folder as mlflow.save_model writes it, with signature and example."""
    folder.mkdir()
    columns = json.dumps([{"name": name, "type": "double"} for name in NAMES])
    (folder / "MLmodel").write_text(
        f"flavors:\n{flavours}"
        f"signature:\n  inputs: '{columns}'\n"
        "saved_input_example_info:\n  artifact_path: input_example.json\n  type: dataframe\n"
    )
    example = {"columns": list(NAMES), "data": rows(20).tolist()}
    (folder / "input_example.json").write_text(json.dumps(example))
    return folder


def test_mlflow_folders_are_read_without_mlflow(tmp_path: Path) -> None:
    model = LogisticRegression().fit(rows(), truth())
    flavours = "  python_function: {loader_module: mlflow.sklearn}\n"
    flavours += "  sklearn: {pickled_model: model.pkl, serialization_format: cloudpickle}\n"
    folder = mlflow(tmp_path / "model", flavours)
    (folder / "model.pkl").write_bytes(pickle.dumps(model))
    with pytest.raises(ConfigInvalid, match="--trusted"):
        imported(folder)
    found = imported(folder, trusted=True)
    assert any("20 rows of the sample" in note for note in found.notes)
    assert found.decision is not None
    assert found.decision.features == list(NAMES)
    got = answers(found, rows())["probabilities"]
    assert abs(got - model.predict_proba(rows())).max() < 1e-4


def test_mlflow_flavours_without_pickles_need_no_trust(tmp_path: Path) -> None:
    data = xgboost.DMatrix(rows(), label=truth())
    folder = mlflow(tmp_path / "boosted", "  xgboost: {data: model.ubj}\n")
    booster = xgboost.train({"objective": "binary:logistic"}, data, 3)
    booster.save_model(folder / "model.ubj")
    assert imported(folder).what == "an XGBoost model (binary:logistic)"
    trees = lightgbm.Dataset(rows(), label=truth())
    folder = mlflow(tmp_path / "light", "  lightgbm: {data: model.lgb}\n")
    lightgbm.train({"objective": "binary", "verbose": -1}, trees, 3).save_model(
        folder / "model.lgb"
    )
    assert imported(folder).what == "a LightGBM model (binary)"


@pytest.mark.parametrize(
    ("flavours", "message"),
    [
        ("  python_function: {}\n", "wrap it in a class"),
        ("  prophet: {}\n", "has the flavours prophet"),
        ("  onnx: {data: ../../secret.onnx}\n", "isn't in the folder"),
        ("  [\n", "can't be read"),
        ("  !!python/object/apply:os.system ['true']\n", "can't be read"),
    ],
    ids=["python", "unknown", "outside", "no-yaml", "unsafe-yaml"],
)
def test_mlflow_folders_that_can_not_be_served_are_refused(
    flavours: str, message: str, tmp_path: Path
) -> None:
    with pytest.raises(ArtifactError, match=message):
        imported(mlflow(tmp_path / "model", flavours), trusted=True)


CODE = """
raise RuntimeError("this must never run here")

class Mine:
    inputs = [("x", "FP32", [-1, 3])]
    outputs = [("y", "FP32", [-1, 1])]

    def predict(self, inputs):
        return {"y": inputs["x"].sum(axis=1, keepdims=True)}
"""


def test_a_class_is_found_without_running_its_file(tmp_path: Path) -> None:
    path = tmp_path / "mine.py"
    path.write_text(CODE)
    with pytest.raises(ConfigInvalid, match="--trusted"):
        imported(path)
    found = imported(path, trusted=True)
    assert found.settings == {"class_name": "Mine", "trusted": True}
    assert found.files == {"model.py": path}
    assert found.example["x"].shape == (1, 3)


@pytest.mark.parametrize(
    ("code", "message"),
    [
        ("def f(): pass", "it has none"),
        ("class A:\n def predict(s, x): ...\nclass B:\n def predict(s, x): ...", "call one of"),
        ("class (", "no Python"),
    ],
)
def test_files_without_one_class_are_refused(code: str, message: str, tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(code)
    with pytest.raises(ArtifactError, match=message):
        imported(tmp_path / "mine.py", trusted=True)


def test_content_decides_and_not_the_name(tmp_path: Path) -> None:
    path = tmp_path / "model.dat"
    joblib.dump(LogisticRegression(), path)
    assert kind_at(path) == "sklearn"
    path.write_bytes(b"tree\nversion=v4\n")
    assert kind_at(path) == "lightgbm"
    path.write_bytes(b'{"learner": {}}')
    assert kind_at(path) == "xgboost"
    path.write_bytes(b"PK\x03\x04archive/data.pkl")
    with pytest.raises(ArtifactError, match="PyTorch checkpoint"):
        kind_at(path)
    path.write_bytes(b"CBM1....")
    with pytest.raises(ArtifactError, match=r'CatBoost model.*format="onnx"'):
        kind_at(path)
    path.write_bytes(b"")
    with pytest.raises(ArtifactError, match="is empty"):
        kind_at(path)
    path.write_bytes(b"hello")
    with pytest.raises(ArtifactError, match="no kind of model that is known"):
        kind_at(path)


@pytest.mark.parametrize(
    ("library", "mend"),
    [("xgboost", r'pip install "tiffin\[import\]"'), ("theirs", "made with .theirs")],
)
def test_a_library_that_is_missing_is_named(
    library: str, mend: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, library, None)
    path = tmp_path / "model.pkl"
    path.write_bytes(b"\x80\x04ctheirs\nModel\n." if library == "theirs" else b'{"learner": 1}')
    with pytest.raises(ArtifactError, match=mend):
        imported(path, trusted=True)


def test_an_unknown_kind_is_refused_with_those_that_there_are(tmp_path: Path) -> None:
    with pytest.raises(ConfigInvalid, match=r"--kind: .*there are onnx, sklearn"):
        imported(tmp_path, "caffe")
    with pytest.raises(ArtifactError, match="nothing at"):
        imported(tmp_path / "absent")


@pytest.mark.parametrize("kind", ["", "onnx"])
def test_what_is_no_file_is_not_waited_for(kind: str, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "model.pkl")
    with pytest.raises(ArtifactError, match="neither a file nor a folder"):
        imported(tmp_path / "model.pkl", kind)
