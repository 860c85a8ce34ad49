"""What a text encoder's config.json says of its shape, in one vocabulary for all its families."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any

from tiffin.errors import ArtifactError

FAMILIES = ("bert", "roberta", "xlm-roberta", "camembert", "distilbert")
ACTIVATIONS = ("gelu", "gelu_new", "gelu_pytorch_tanh", "relu")

_BERT = {
    "word": "embeddings.word_embeddings.weight",
    "position": "embeddings.position_embeddings.weight",
    "type": "embeddings.token_type_embeddings.weight",
    "norm": "embeddings.LayerNorm",
    "layer": "encoder.layer.{}.",
    "query": "attention.self.query",
    "key": "attention.self.key",
    "value": "attention.self.value",
    "mixed": "attention.output.dense",
    "mixed_norm": "attention.output.LayerNorm",
    "up": "intermediate.dense",
    "down": "output.dense",
    "down_norm": "output.LayerNorm",
}
_DISTILBERT = {
    "word": "embeddings.word_embeddings.weight",
    "position": "embeddings.position_embeddings.weight",
    "norm": "embeddings.LayerNorm",
    "layer": "transformer.layer.{}.",
    "query": "attention.q_lin",
    "key": "attention.k_lin",
    "value": "attention.v_lin",
    "mixed": "attention.out_lin",
    "mixed_norm": "sa_layer_norm",
    "up": "ffn.lin1",
    "down": "ffn.lin2",
    "down_norm": "output_layer_norm",
}


@dataclass(frozen=True, slots=True)
class EncoderShape:
    """Sizes and names. `first_position` is where RoBERTa's positions begin; 0 elsewhere.

    `score` says that it ends in one score for a pair of texts (a reranker).
    """

    family: str
    layers: int
    hidden: int
    heads: int
    positions: int
    activation: str
    epsilon: float
    first_position: int
    padding: int
    types: bool
    score: bool
    names: Mapping[str, str]

    @property
    def longest(self) -> int:
        """The longest text in tokens."""
        return self.positions - self.first_position


def shape_of(folder: Path) -> EncoderShape:
    """What the folder's config.json says; raises `ArtifactError` for what can't be exported."""
    config = read_json(folder / "config.json")
    family = str(config.get("model_type", ""))
    if family not in FAMILIES:
        raise ArtifactError(
            f"{folder} holds a {family or 'model without model_type'}; text encoders that can be"
            f" exported are {', '.join(FAMILIES)}"
        )
    distil = family == "distilbert"
    kind = next(iter(config.get("architectures") or [""]))
    score = "ForSequenceClassification" in kind
    try:
        shape = EncoderShape(
            family=family,
            layers=int(config["n_layers" if distil else "num_hidden_layers"]),
            hidden=int(config["dim" if distil else "hidden_size"]),
            heads=int(config["n_heads" if distil else "num_attention_heads"]),
            positions=int(config["max_position_embeddings"]),
            activation=str(config.get("activation" if distil else "hidden_act", "gelu")),
            epsilon=float(config.get("layer_norm_eps", 1e-12)),
            first_position=int(config.get("pad_token_id", 1)) + 1
            if family != "bert" and not distil
            else 0,
            padding=int(config.get("pad_token_id") or 0),
            types=not distil,
            score=score,
            names=MappingProxyType(_DISTILBERT if distil else _BERT),
        )
    except (KeyError, TypeError, ValueError) as cause:
        raise ArtifactError(f"{folder}/config.json can't be used: {cause!r}") from cause
    _refuse(folder, config, shape)
    return shape


def _refuse(folder: Path, config: dict[str, Any], shape: EncoderShape) -> None:
    wrong = ""
    if shape.activation not in ACTIVATIONS:
        wrong = f"its activation {shape.activation}"
    elif config.get("position_embedding_type", "absolute") != "absolute":
        wrong = f"its positions ({config['position_embedding_type']})"
    elif config.get("is_decoder"):
        wrong = "a decoder"
    elif shape.hidden <= 0 or shape.heads <= 0 or shape.hidden % shape.heads:
        wrong = f"{shape.heads} heads for {shape.hidden} numbers"
    elif shape.score and len(config.get("id2label") or [0]) > 1:
        wrong = "several labels: a reranker has one score"
    if wrong:
        raise ArtifactError(f"{folder} can't be exported: {wrong} isn't supported")


def read_json(path: Path) -> dict[str, Any]:
    """An object in a file; raises `ArtifactError`."""
    try:
        found = json.loads(path.read_bytes())
    except (OSError, ValueError) as cause:
        raise ArtifactError(f"{path} can't be read: {cause}") from cause
    if not isinstance(found, dict):
        raise ArtifactError(f"{path} holds no JSON object")
    return found
