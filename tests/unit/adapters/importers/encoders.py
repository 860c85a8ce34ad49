"""Tiny text encoders with random weights, saved as Hugging Face's libraries save them."""

import json
import struct
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

HIDDEN, HEADS, INNER, WORDS, PLACES = 8, 2, 16, 30, 20

CONFIGS: dict[str, dict[str, Any]] = {
    "bert": {"num_hidden_layers": 2, "hidden_size": HIDDEN, "num_attention_heads": HEADS},
    "roberta": {
        "num_hidden_layers": 1,
        "hidden_size": HIDDEN,
        "num_attention_heads": HEADS,
        "pad_token_id": 1,
        "hidden_act": "gelu_new",
    },
    "distilbert": {"n_layers": 1, "dim": HIDDEN, "n_heads": HEADS, "activation": "relu"},
}


def write(folder: Path, tensors: dict[str, NDArray[np.float32]]) -> None:
    """A safetensors file."""
    header, at, parts = {}, 0, []
    for name, value in tensors.items():
        raw = value.astype("<f4").tobytes()
        header[name] = {
            "dtype": "F32",
            "shape": list(value.shape),
            "data_offsets": [at, at + len(raw)],
        }
        parts.append(raw)
        at += len(raw)
    told = json.dumps(header).encode()
    content = struct.pack("<Q", len(told)) + told + b"".join(parts)
    (folder / "model.safetensors").write_bytes(content)


def encoder(folder: Path, family: str, *, score: bool = False) -> Path:
    """A folder with config, weights and a tokenizer's place."""
    folder.mkdir()
    config = {"model_type": family, "max_position_embeddings": PLACES, "vocab_size": WORDS}
    if score:
        config["architectures"] = ["ForSequenceClassification"]
    (folder / "config.json").write_text(json.dumps(config | CONFIGS[family]))
    (folder / "tokenizer.json").write_text("{}")
    write(folder, weights(family, score=score))
    return folder


def weights(family: str, *, score: bool) -> dict[str, NDArray[np.float32]]:
    """Random numbers under the family's names."""
    random = np.random.default_rng(3)
    tensors: dict[str, NDArray[np.float32]] = {}
    prefix = f"{family}." if score else ""

    def linear(name: str, out: int, into: int) -> None:
        tensors[f"{name}.weight"] = random.normal(size=(out, into)).astype(np.float32)
        tensors[f"{name}.bias"] = random.normal(size=out).astype(np.float32)

    def norm(name: str) -> None:
        tensors[f"{name}.weight"] = random.normal(size=HIDDEN).astype(np.float32)
        tensors[f"{name}.bias"] = random.normal(size=HIDDEN).astype(np.float32)

    def table(name: str, count: int) -> None:
        tensors[f"{name}.weight"] = random.normal(size=(count, HIDDEN)).astype(np.float32)

    table(f"{prefix}embeddings.word_embeddings", WORDS)
    table(f"{prefix}embeddings.position_embeddings", PLACES)
    norm(f"{prefix}embeddings.LayerNorm")
    distil = family == "distilbert"
    if not distil:
        table(f"{prefix}embeddings.token_type_embeddings", 2)
    for number in range(2):
        layer = f"{prefix}{'transformer' if distil else 'encoder'}.layer.{number}."
        names = (
            ["attention.q_lin", "attention.k_lin", "attention.v_lin", "attention.out_lin"]
            if distil
            else [
                "attention.self.query",
                "attention.self.key",
                "attention.self.value",
                "attention.output.dense",
            ]
        )
        for name in names:
            linear(layer + name, HIDDEN, HIDDEN)
        linear(layer + ("ffn.lin1" if distil else "intermediate.dense"), INNER, HIDDEN)
        linear(layer + ("ffn.lin2" if distil else "output.dense"), HIDDEN, INNER)
        norm(layer + ("sa_layer_norm" if distil else "attention.output.LayerNorm"))
        norm(layer + ("output_layer_norm" if distil else "output.LayerNorm"))
    if score:
        heads = {
            "bert": [(f"{prefix}pooler.dense", HIDDEN), ("classifier", 1)],
            "roberta": [("classifier.dense", HIDDEN), ("classifier.out_proj", 1)],
            "distilbert": [("pre_classifier", HIDDEN), ("classifier", 1)],
        }
        for name, out in heads[family]:
            linear(name, out, HIDDEN)
    return tensors
