"""What is particular about each engine that we launch, as data: its flags, its API, its numbers.

Words of `argv` may hold `{model}`, `{name}`, `{context}`, `{slots}`, `{tensor_parallel}`, and
`{socket}` or `{port}` and `{key}`: where the engine is to listen, and who may ask it.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, Literal

TokensApi = Literal["vllm", "tgi"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Names:
    """What an engine calls its numbers in `/metrics`; empty where it has none.

    `moving` are counters of which at least one grows while it works.
    """

    running: str = ""
    waiting: str = ""
    kv_usage: str = ""
    prefix_queries: str = ""
    prefix_hits: str = ""
    moving: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Profile:
    """One engine.

    `argv` starts it, `variables` are beside its environment. `salted`: a request's `cache_salt`
    keeps tenants apart in its prefix cache. `counts_chat`: it tells the tokens of messages.
    `counts_always`: it tells the usage with every step. `refused` are parameters that it can't
    honour, by the names of requests' fields.
    """

    argv: tuple[str, ...] = ()
    by_socket: bool = False
    variables: Mapping[str, str] = field(default_factory=dict)
    tokens: TokensApi = "vllm"
    counts_chat: bool = True
    counts_always: bool = False
    prompts_as_tokens: bool = True
    salted: bool = False
    refused: frozenset[str] = frozenset()
    names: Names = Names()


_VLLM_NAMES: Final = Names(
    running="vllm:num_requests_running",
    waiting="vllm:num_requests_waiting",
    kv_usage="vllm:kv_cache_usage_perc",
    prefix_queries="vllm:prefix_cache_queries_total",
    prefix_hits="vllm:prefix_cache_hits_total",
    moving=("vllm:iteration_tokens_total_sum", "vllm:generation_tokens_total"),
)

PROFILES: Final[Mapping[str, Profile]] = {
    "vllm": Profile(
        argv=(
            *("vllm", "serve", "{model}", "--served-model-name", "{name}", "--uds", "{socket}"),
            *("--max-model-len", "{context}", "--max-num-seqs", "{slots}"),
            *("--tensor-parallel-size", "{tensor_parallel}", "--disable-uvicorn-access-log"),
            "--enable-prompt-tokens-details",
        ),
        by_socket=True,
        variables={"VLLM_NO_USAGE_STATS": "1", "DO_NOT_TRACK": "1"},
        counts_always=True,
        salted=True,
        names=_VLLM_NAMES,
    ),
    "sglang": Profile(
        argv=(
            *("python3", "-m", "sglang.launch_server", "--model-path", "{model}"),
            *("--served-model-name", "{name}", "--host", "127.0.0.1", "--port", "{port}"),
            *("--api-key", "{key}", "--context-length", "{context}"),
            *("--max-running-requests", "{slots}", "--tp-size", "{tensor_parallel}"),
            "--enable-metrics",
        ),
        counts_chat=False,
        salted=True,
        names=Names(
            running="sglang:num_running_reqs",
            waiting="sglang:num_queue_reqs",
            kv_usage="sglang:token_usage",
            moving=("sglang:prompt_tokens_total", "sglang:generation_tokens_total"),
        ),
    ),
    "tgi": Profile(
        argv=(
            *("text-generation-launcher", "--model-id", "{model}", "--hostname", "127.0.0.1"),
            *("--port", "{port}", "--max-total-tokens", "{context}"),
            *("--max-concurrent-requests", "{slots}", "--num-shard", "{tensor_parallel}"),
        ),
        # It has no way to keep tenants apart in its prefix cache.
        variables={
            "API_KEY": "{key}",
            "PREFIX_CACHING": "0",
            "USE_PREFIX_CACHING": "0",
            "USAGE_STATS": "off",
        },
        tokens="tgi",
        prompts_as_tokens=False,
        refused=frozenset({"logit_bias"}),
        names=Names(
            running="tgi_batch_current_size",
            waiting="tgi_queue_size",
            moving=("tgi_batch_inference_count", "tgi_request_generated_tokens_sum"),
        ),
    ),
    "command": Profile(variables={"TIFFIN_ENGINE_KEY": "{key}"}, names=_VLLM_NAMES),
}
