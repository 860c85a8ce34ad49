"""Folders as Hugging Face's hub has them, led to the importer of what lies in them."""

import dataclasses
from pathlib import Path

from tiffin.adapters.importers import encoder, gguf_file, onnx_graph
from tiffin.adapters.importers.encoder_shape import FAMILIES, read_json
from tiffin.adapters.importers.order import Imported, Order
from tiffin.adapters.importers.session import Session
from tiffin.errors import ArtifactError

GRAPHS = ("model.onnx", "onnx/model.onnx")
_TEXT_INPUTS = {"input_ids", "attention_mask"}


def bring(order: Order) -> Imported:
    """GGUF, an ONNX graph or a text encoder, in this order; raises `ArtifactError`."""
    folder = order.path
    if ggufs := sorted(folder.glob("*.gguf")):
        return gguf_file.bring(dataclasses.replace(order, path=_only(ggufs, folder)))
    if graph := _graph(folder):
        return _text_graph(order, graph)
    config = read_json(folder / "config.json")
    family = config.get("model_type", "unknown kind of model")
    if (folder / encoder.WEIGHTS).is_file():
        if family in FAMILIES:
            return encoder.bring(order)
        raise ArtifactError(
            f"{folder} holds a {family}. Text encoders ({', '.join(FAMILIES)}) can be exported;"
            " for a language model, make a GGUF file with llama.cpp's convert_hf_to_gguf.py"
        )
    if any(folder.glob("*.safetensors")):
        raise ArtifactError(
            f"{folder} has its weights in several files; save it with a larger max_shard_size, or"
            " make a GGUF file of a language model with llama.cpp's convert_hf_to_gguf.py"
        )
    raise ArtifactError(
        f"{folder} ({family}) has neither {encoder.WEIGHTS} nor *.onnx nor *.gguf; weights in"
        " pytorch_model.bin are a pickle: load and save it with safe_serialization=True"
    )


def _only(found: list[Path], folder: Path) -> Path:
    if len(found) > 1:
        names = ", ".join(path.name for path in found)
        raise ArtifactError(f"{folder} has several models, name one of them: {names}")
    return found[0]


def _graph(folder: Path) -> Path | None:
    for name in GRAPHS:
        if (folder / name).is_file():
            return folder / name
    found = sorted([*folder.glob("*.onnx"), *folder.glob("onnx/*.onnx")])
    return _only(found, folder) if found else None


def _text_graph(order: Order, path: Path) -> Imported:
    """A graph beside a tokenizer that takes tokens is an encoder; every other is tensors."""
    made = onnx_graph.bring(dataclasses.replace(order, path=path))
    folder = order.path
    signature = Session(made.files[onnx_graph.GRAPH]).signature
    takes = {spec.name for spec in signature.inputs}
    if not takes >= _TEXT_INPUTS or not (folder / encoder.TOKENIZER).is_file():
        return made
    config = read_json(folder / "config.json") if (folder / "config.json").is_file() else {}
    kind = next(iter(config.get("architectures") or [""]))
    score = "ForSequenceClassification" in kind
    longest = int(config.get("max_position_embeddings") or 512)
    settings, more = encoder.text_settings(folder, longest, score=score)
    if not score and len(signature.outputs[0].shape) == 2:
        settings["pooling"] = "none"  # the graph makes one vector by itself
    return dataclasses.replace(
        made,
        what=f"a text {'reranker' if score else 'encoder'} in ONNX",
        files={**made.files, encoder.TOKENIZER: encoder.tokenizer_of(folder)},
        settings=settings,
        notes=(*made.notes, *more),
        example={},
    )
