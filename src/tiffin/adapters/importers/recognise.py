"""Which kind of model lies at a path, by its content; a suffix only where content says nothing."""

import struct
from pathlib import Path

from tiffin.errors import ArtifactError

HEAD_BYTES = 4096
CHECKPOINTS = (".bin", ".pt", ".pth", ".ckpt")
PICKLES = (".pkl", ".pickle", ".joblib")
_COMPRESSED = (
    b"\x1f\x8b",
    b"BZh",
    b"\xfd7zXZ",
    b"\x5d\x00\x00",
    b"\x78\x01",
    b"\x78\x9c",
    b"\x78\xda",
)

# What others begin with, what they are, and the way from there to ONNX.
_FOREIGN = (
    (b"CBM1", ("a CatBoost model", 'save it with format="onnx"')),
    (b"\x89HDF", ("a Keras model in HDF5", "convert it with tf2onnx")),
    (b"TFL3", ("a TensorFlow Lite model", "convert it with tf2onnx")),
)


def kind_at(path: Path) -> str:
    """The name of the importer for what lies there; raises `ArtifactError` with the mend."""
    if path.is_dir():
        return _kind_of_folder(path)
    try:
        with path.open("rb") as file:
            head = file.read(HEAD_BYTES)
    except OSError as cause:
        raise ArtifactError(f"{path} can't be read: {cause.strerror}") from cause
    if not head:
        raise ArtifactError(f"{path} is empty")
    kind = _kind_of_bytes(head) or _kind_of_name(path, head)
    if kind:
        return kind
    for what, mend in (mend for sign, mend in _FOREIGN if sign in head[:8]):
        raise ArtifactError(f"{path} is {what}, which has no importer: {mend}")
    if head.startswith(b"PK") or path.suffix in CHECKPOINTS:
        raise ArtifactError(
            f"{path} looks like a PyTorch checkpoint, which holds code and no graph: export it"
            " (torch.onnx.export), or save a text encoder with save_pretrained (safetensors)"
        )
    raise ArtifactError(
        f"{path} is no kind of model that is known here; --kind says which one it is, if it is one"
    )


def _kind_of_folder(path: Path) -> str:
    if (path / "MLmodel").is_file():
        return "mlflow"
    if (path / "model.py").is_file():
        return "python"
    if (path / "config.json").is_file() or any(path.glob("*.gguf")):
        return "huggingface"
    if (path / "saved_model.pb").is_file():
        raise ArtifactError(f"{path} is TensorFlow's SavedModel: convert it with tf2onnx")
    if any(path.glob("*.onnx")) or any(path.glob("onnx/*.onnx")):
        return "huggingface"
    raise ArtifactError(
        f"{path} is a folder without MLmodel (MLflow), config.json (Hugging Face), model.py,"
        " *.onnx or *.gguf"
    )


def _kind_of_bytes(head: bytes) -> str:
    if head.startswith(b"GGUF"):
        return "gguf"
    if head.startswith(b"tree\n") and b"version=" in head[:64]:
        return "lightgbm"
    if head[:1] == b"{" and (b"learner" in head[:512] or b"gradient_booster" in head):
        return "xgboost"
    if _is_safetensors(head):
        return "safetensors"
    if head[:1] == b"\x80" and head[1:2] in b"\x02\x03\x04\x05":
        return "sklearn"
    return "onnx" if _is_onnx(head) else ""


def _kind_of_name(path: Path, head: bytes) -> str:
    if path.suffix == ".py":
        return "python"
    if path.suffix == ".onnx":
        return "onnx"  # not one by its head: the importer says what is wrong with it
    if path.suffix in PICKLES or head.startswith(_COMPRESSED):
        return "sklearn"
    return ""


def _is_safetensors(head: bytes) -> bool:
    if len(head) < 10:
        return False
    [length] = struct.unpack("<Q", head[:8])
    return bool(2 <= length <= 100_000_000 and head[8:9] == b"{")


def _is_onnx(head: bytes) -> bool:
    """A protobuf of ONNX begins with its version (field 1) and then a field that a model has."""
    version, next_field = head[1:2], head[2:3]
    return head[:1] == b"\x08" and b"\x00" < version <= b"\x14" and next_field in b"\x12\x3a\x42"
