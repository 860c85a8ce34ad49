"""Text encoders in safetensors (a Hugging Face folder): exported to ONNX without torch."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from tiffin.adapters.importers.encoder_forward import forward
from tiffin.adapters.importers.encoder_graph import graph_of
from tiffin.adapters.importers.encoder_shape import EncoderShape, read_json, shape_of
from tiffin.adapters.importers.onnx_graph import GRAPH, LARGEST_BYTES
from tiffin.adapters.importers.order import Imported, Order
from tiffin.adapters.importers.session import Session
from tiffin.adapters.importers.verdict import agree
from tiffin.adapters.importers.weights import Weights
from tiffin.errors import ArtifactError

TOKENIZER = "tokenizer.json"
WEIGHTS = "model.safetensors"
_LENGTHS = [12, 5, 1]


def bring(order: Order) -> Imported:
    """The encoder as a graph that runs as numpy computes it; raises `ArtifactError`."""
    folder = order.path if order.path.is_dir() else order.path.parent
    if not (folder / "config.json").is_file():
        raise ArtifactError(
            f"{order.path} holds weights and no model: config.json and {TOKENIZER} must lie beside"
            " it, as save_pretrained writes them"
        )
    shape = shape_of(folder)
    weights = Weights(folder / WEIGHTS if order.path.is_dir() else order.path)
    if weights.count * 4 > LARGEST_BYTES:
        raise ArtifactError(f"{folder} has more than 2 GB of weights, which one graph can't hold")
    prefix = _prefix(shape, weights)
    path = order.scratch / GRAPH
    path.write_bytes(graph_of(shape, weights, prefix).SerializeToString())
    session = Session(path)
    notes = [
        f"{shape.layers} layers of {shape.hidden} numbers were exported to ONNX",
        _checked(session, shape, weights, prefix),
    ]
    settings, more = text_settings(folder, shape.longest, score=shape.score)
    return Imported(
        runtime="onnx",
        what=f"a text encoder ({shape.family})",
        files={GRAPH: path, TOKENIZER: tokenizer_of(folder)},
        settings=settings,
        notes=(*notes, *more),
        signature=session.signature,
    )


def tokenizer_of(folder: Path) -> Path:
    """The folder's tokenizer.json; raises `ArtifactError` where there is none."""
    path = folder / TOKENIZER
    if not path.is_file():
        raise ArtifactError(
            f"{folder} lacks {TOKENIZER}: load its tokenizer with use_fast=True and save it"
        )
    return path


def text_settings(folder: Path, longest: int, *, score: bool) -> tuple[dict[str, Any], list[str]]:
    """Task, pooling and the longest text, as sentence-transformers' files have them."""
    limits = [longest]
    inner = folder / "sentence_bert_config.json"
    if inner.is_file():
        limits.append(int(read_json(inner).get("max_seq_length") or longest))
    settings: dict[str, Any] = {"task": "rerank" if score else "embed", "max_tokens": min(limits)}
    if score:
        return settings, []
    pooling = folder / "1_Pooling" / "config.json"
    if list(folder.glob("*_Dense")):
        raise ArtifactError(f"{folder} has a dense layer after pooling, which isn't supported")
    if not pooling.is_file():
        settings |= {"pooling": "mean", "normalize": True}
        return settings, ["it doesn't say how vectors are made of tokens: their mean is taken"]
    chosen = [
        name for name, on in read_json(pooling).items() if name.startswith("pooling_mode_") and on
    ]
    known: Mapping[str, str] = {"pooling_mode_cls_token": "cls", "pooling_mode_mean_tokens": "mean"}
    if len(chosen) != 1 or chosen[0] not in known:
        raise ArtifactError(
            f"{folder} makes vectors by {', '.join(chosen)}; cls and mean are known"
        )
    settings |= {
        "pooling": known[chosen[0]],
        "normalize": bool(list(folder.glob("*_Normalize"))) or _normalizes(folder),
    }
    return settings, []


def _normalizes(folder: Path) -> bool:
    """Whether modules.json ends in a normalization, whose own folder is empty and often lost."""
    path = folder / "modules.json"
    return path.is_file() and b"models.Normalize" in path.read_bytes()


def _prefix(shape: EncoderShape, weights: Weights) -> str:
    """What stands before the encoder's names: nothing, or the family's name."""
    word = shape.names["word"]
    found = [name.removesuffix(word) for name in weights.names if name.endswith(word)]
    if len(found) != 1:
        raise ArtifactError(f"the weights aren't those of a {shape.family}: {word} is missing")
    return found[0]


def _checked(session: Session, shape: EncoderShape, weights: Weights, prefix: str) -> str:
    """A sentence about texts of several lengths together, beside each of them alone in numpy."""
    random = np.random.default_rng(0)
    vocabulary = len(weights[prefix + shape.names["word"]])
    lengths = [min(length, shape.longest) for length in _LENGTHS]
    ids = random.integers(0, vocabulary, (len(lengths), max(lengths)))
    ids = np.where(ids == shape.padding, (shape.padding + 1) % vocabulary, ids)
    seen = np.arange(ids.shape[1])[None, :] < np.array(lengths)[:, None]
    ids = np.where(seen, ids, shape.padding).astype(np.int64)
    inputs = {"input_ids": ids, "attention_mask": seen.astype(np.int64)}
    if shape.types:
        inputs["token_type_ids"] = np.zeros_like(ids)
    [got] = session.run(inputs).values()
    alone = forward(shape, weights, prefix, ids, lengths)
    if not shape.score:
        got = np.concatenate([row[:length] for row, length in zip(got, lengths, strict=True)])
    what = "scores" if shape.score else "hidden states"
    return agree(got, np.concatenate(alone), what, "texts of random tokens, with padding")
