"""A tiny BERT with random weights: written as a GGUF file, and computed with numpy."""

import struct
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

WIDTH, HEADS, LAYERS, INNER, PLACES = 32, 4, 2, 64, 64
EPSILON = 1e-12
WORDS = ["the", "cat", "dog", "sat", "on", "mat", "paris", "is", "france", "in"]
PIECES = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *("\u2581" + word for word in WORDS)]
UNK, CLS, SEP = 1, 2, 3
ALIGNMENT = 32

Weights = dict[str, NDArray[np.float32]]


def weights(*, ranks: bool, seed: int = 7) -> Weights:
    """Random ones by the names that llama.cpp knows; matrices are `[out, in]`."""
    random = np.random.default_rng(seed)

    def some(*shape: int) -> NDArray[np.float32]:
        return (random.standard_normal(shape) * 0.3).astype(np.float32)

    made = {
        "token_embd.weight": some(len(PIECES), WIDTH),
        "position_embd.weight": some(PLACES, WIDTH),
        "token_types.weight": some(2, WIDTH),
        "token_embd_norm.weight": 1 + some(WIDTH),
        "token_embd_norm.bias": some(WIDTH),
    }
    for layer in range(LAYERS):
        at = f"blk.{layer}."
        for name, out, into in (
            ("attn_q", WIDTH, WIDTH),
            ("attn_k", WIDTH, WIDTH),
            ("attn_v", WIDTH, WIDTH),
            ("attn_output", WIDTH, WIDTH),
            ("ffn_up", INNER, WIDTH),
            ("ffn_down", WIDTH, INNER),
        ):
            made[f"{at}{name}.weight"] = some(out, into)
            made[f"{at}{name}.bias"] = some(out)
        for name in ("attn_output_norm", "layer_output_norm"):
            made[f"{at}{name}.weight"] = 1 + some(WIDTH)
            made[f"{at}{name}.bias"] = some(WIDTH)
    if ranks:
        made |= {
            "cls.weight": some(WIDTH, WIDTH),
            "cls.bias": some(WIDTH),
            "cls.output.weight": some(1, WIDTH),
            "cls.output.bias": some(1),
        }
    return made


def write(path: Path, tensors: Weights, pooling: int | None) -> None:
    """The file; `pooling` is llama.cpp's number for it: 1 mean, 2 cls, 3 last, 4 rank."""
    fields: dict[str, Any] = {
        "general.architecture": "bert",
        "bert.context_length": PLACES,
        "bert.embedding_length": WIDTH,
        "bert.block_count": LAYERS,
        "bert.feed_forward_length": INNER,
        "bert.attention.head_count": HEADS,
        "bert.attention.layer_norm_epsilon": EPSILON,
        "bert.attention.causal": False,
        "tokenizer.ggml.model": "bert",
        "tokenizer.ggml.token_type_count": 2,
        "tokenizer.ggml.tokens": PIECES,
        "tokenizer.ggml.token_type": [3] * 5 + [1] * len(WORDS),
        "tokenizer.ggml.unknown_token_id": UNK,
        "tokenizer.ggml.cls_token_id": CLS,
        "tokenizer.ggml.bos_token_id": CLS,
        "tokenizer.ggml.seperator_token_id": SEP,
        "tokenizer.ggml.padding_token_id": 0,
    }
    if pooling is not None:
        fields["bert.pooling_type"] = pooling
    head = b"GGUF" + struct.pack("<IQQ", 3, len(tensors), len(fields))
    head += b"".join(_text(name) + _value(value) for name, value in fields.items())
    at, body = 0, b""
    for name, tensor in tensors.items():
        shape = tensor.shape[::-1]
        head += _text(name) + struct.pack(f"<I{len(shape)}QIQ", len(shape), *shape, 0, at)
        data = tensor.astype("<f4").tobytes()
        body += data + bytes(-len(data) % ALIGNMENT)
        at = len(body)
    path.write_bytes(head + bytes(-len(head) % ALIGNMENT) + body)


def _text(text: str) -> bytes:
    data = text.encode()
    return struct.pack("<Q", len(data)) + data


def _value(value: Any) -> bytes:
    if isinstance(value, bool):
        return struct.pack("<I?", 7, value)
    if isinstance(value, int):
        return struct.pack("<II", 4, value)
    if isinstance(value, float):
        return struct.pack("<If", 6, value)
    if isinstance(value, str):
        return struct.pack("<I", 8) + _text(value)
    if isinstance(value[0], str):
        return struct.pack("<IIQ", 9, 8, len(value)) + b"".join(map(_text, value))
    return struct.pack(f"<IIQ{len(value)}i", 9, 5, len(value), *value)


def hidden(tensors: Weights, ids: list[int]) -> NDArray[np.float64]:
    """What the last layer gives for each token; every token is of type 0, as in llama.cpp."""
    x = tensors["token_embd.weight"][ids].astype(np.float64)
    x = x + tensors["token_types.weight"][0] + tensors["position_embd.weight"][: len(ids)]
    x = _norm(x, tensors, "token_embd_norm")
    for layer in range(LAYERS):
        at = f"blk.{layer}."
        q, k, v = (
            _linear(x, tensors, f"{at}attn_{part}").reshape(len(ids), HEADS, -1).swapaxes(0, 1)
            for part in "qkv"
        )
        scores = q @ k.swapaxes(1, 2) / np.sqrt(WIDTH / HEADS)
        shares = np.exp(scores - scores.max(axis=-1, keepdims=True))
        shares /= shares.sum(axis=-1, keepdims=True)
        seen = (shares @ v).swapaxes(0, 1).reshape(len(ids), WIDTH)
        x = _norm(x + _linear(seen, tensors, f"{at}attn_output"), tensors, f"{at}attn_output_norm")
        inner = _gelu(_linear(x, tensors, f"{at}ffn_up"))
        x = _norm(x + _linear(inner, tensors, f"{at}ffn_down"), tensors, f"{at}layer_output_norm")
    return x


def logit(tensors: Weights, ids: list[int]) -> float:
    """The rank head's number for one pair."""
    first = np.tanh(_linear(hidden(tensors, ids)[:1], tensors, "cls"))
    return float(_linear(first, tensors, "cls.output")[0, 0])


def _linear(x: NDArray[np.float64], tensors: Weights, name: str) -> NDArray[np.float64]:
    return np.asarray(x @ tensors[f"{name}.weight"].T + tensors[f"{name}.bias"])


def _norm(x: NDArray[np.float64], tensors: Weights, name: str) -> NDArray[np.float64]:
    mean, variance = x.mean(axis=-1, keepdims=True), x.var(axis=-1, keepdims=True)
    scaled = (x - mean) / np.sqrt(variance + EPSILON)
    return np.asarray(scaled * tensors[f"{name}.weight"] + tensors[f"{name}.bias"])


def _gelu(x: NDArray[np.float64]) -> NDArray[np.float64]:
    return np.asarray(0.5 * x * (1 + np.tanh(np.sqrt(2 / np.pi) * (x + 0.044715 * x**3))))
