"""What servers that speak OpenAI's protocol, or nearly, are like: one row each, chosen by name.

Names of parameters are those of types/text.py; a dot leads into one. Without a profile an endpoint
is taken for one that does all that OpenAI's does, at the address that its section has.
"""

import re
from dataclasses import dataclass
from typing import Final
from urllib.parse import quote

_CHAT: Final = ("chat", "response")
_TEXTS: Final = ("chat", "completion", "response")
_EVERYTHING: Final = (
    *("chat", "completion", "tokenize", "detokenize", "response"),
    *("embedding", "rerank", "transcription", "count_tokens"),
)

# What isn't known outside OpenAI, and is mostly passed over in silence: so it is refused by name.
_OPENAIS_OWN = frozenset(
    {
        "audio",
        "content.file",
        "function_call",
        "functions",
        "modalities",
        "prediction",
        "prompt_cache_retention",
        "service_tier",
        "stream_options.include_obfuscation",
        "verbosity",
        "web_search_options",
    }
)
_ENGINES = _OPENAIS_OWN | {"best_of", "suffix", "tools.strict"}
_LOGPROBS = frozenset({"logprobs", "top_logprobs"})

_ROOTED: Final = (("/tokenize", "/tokenize"), ("/detokenize", "/detokenize"))

# Without effect on an answer, so they can be left out where they would be refused.
LABELS: Final = frozenset(
    {"user", "metadata", "safety_identifier", "prompt_cache_key", "messages.name"}
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Profile:
    """One kind of server.

    `url` is where it is for everybody, empty where each has its own; `hosted` says that it's out on
    the internet and reaches nothing of ours. `key_header` carries the key, after `key_prefix`.
    `path` makes an endpoint's path below the address of `{path}` (as `/chat/completions`),
    `{model}` and `{version}`; those in `rooted` lie elsewhere, beside the address's `end`.
    `version` is the API's where a section names none.
    `limit_name` is the one name by which it knows the limit of an answer (empty: both).
    `names_model` is whether a chat says whom it is for; others have one model at an address.
    `asks_usage` is whether a stream's usage must be asked for; others refuse the question and tell.
    `unsupported` is refused by name, `unsent` left out; `hottest` is the highest `temperature`.
    `protocol` is what it speaks. `signs` is how calls are authorised where a header with the key
    isn't all (`aws`, for its `service`; `google`). `located` finds in an address the region that it
    is in.
    """

    protocol: str = "openai"
    signs: str = ""
    service: str = ""
    located: str = ""

    url: str = ""
    hosted: bool = False
    serves: tuple[str, ...] = _EVERYTHING
    key_header: str = "authorization"
    key_prefix: str = "Bearer "
    path: str = "{path}"
    end: str = "/v1"
    rooted: tuple[tuple[str, str], ...] = _ROOTED
    version: str = ""
    limit_name: str = ""
    names_model: bool = True
    asks_usage: bool = True
    unsupported: frozenset[str] = frozenset()
    unsent: frozenset[str] = frozenset()
    hottest: float = 2.0

    def regions(self, address: str) -> list[str]:
        """The regions that an address names: none, one, or several that contradict each other."""
        if not self.located:
            return []
        found = (part for match in re.finditer(self.located, address) for part in match.groups())
        return sorted({part for part in found if part})

    def place(self, path: bytes, *, below: str, model: str, version: str) -> bytes:
        """Where a server at an address whose path is `below` answers what is asked at `path`."""
        name = path.decode()
        for rooted, place in self.rooted:
            if name == rooted:
                return (below.removesuffix(self.end) + place).encode()
        version = version or self.version
        return (
            below + self.path.format(path=name, model=quote(model, safe=""), version=version)
        ).encode()


PLAIN: Final = Profile()

PROFILES: Final[dict[str, Profile]] = {
    "openai": Profile(
        url="https://api.openai.com/v1",
        hosted=True,
        serves=(*_TEXTS, "embedding", "transcription"),
        limit_name="max_completion_tokens",
    ),
    "azure": Profile(
        hosted=True,
        serves=(*_TEXTS, "embedding", "transcription"),
        key_header="api-key",
        key_prefix="",
        path="/openai/deployments/{model}{path}?api-version={version}",
        version="2024-10-21",
        unsupported=frozenset({"web_search_options", "prompt_cache_retention"}),
    ),
    "anthropic": Profile(
        protocol="anthropic",
        url="https://api.anthropic.com/v1",
        hosted=True,
        serves=(*_CHAT, "count_tokens"),
        key_header="x-api-key",
        key_prefix="",
        unsupported=_OPENAIS_OWN
        | _LOGPROBS
        | {
            "n",
            "seed",
            "logit_bias",
            "presence_penalty",
            "frequency_penalty",
            "reasoning_effort",
            "content.input_audio",
            "response_format.json_object",
        },
        unsent=LABELS - {"user", "safety_identifier"},
        hottest=1.0,
    ),
    "vllm": Profile(unsupported=_ENGINES),
    "sglang": Profile(
        serves=(*_TEXTS, "embedding", "rerank"), limit_name="max_tokens", unsupported=_ENGINES
    ),
    "tgi": Profile(
        serves=_TEXTS,
        limit_name="max_tokens",
        unsupported=_ENGINES | {"n", "logit_bias", "reasoning_effort", "content.input_audio"},
    ),
    "ollama": Profile(
        serves=(*_TEXTS, "embedding"),
        limit_name="max_tokens",
        unsupported=_ENGINES
        | _LOGPROBS
        | {"n", "logit_bias", "tool_choice", "content.input_audio"},
    ),
    "groq": Profile(
        url="https://api.groq.com/openai/v1",
        hosted=True,
        serves=(*_CHAT, "transcription"),
        unsupported=_OPENAIS_OWN | _LOGPROBS | {"n", "logit_bias", "content.input_audio"},
        unsent=LABELS,
    ),
    "cerebras": Profile(
        url="https://api.cerebras.ai/v1",
        hosted=True,
        serves=_TEXTS,
        unsupported=_OPENAIS_OWN
        | {"frequency_penalty", "presence_penalty", "logit_bias", "n", "content.input_audio"},
        unsent=LABELS,
    ),
    "mistral": Profile(
        url="https://api.mistral.ai/v1",
        hosted=True,
        serves=(*_CHAT, "embedding"),
        limit_name="max_tokens",
        asks_usage=False,
        unsupported=_OPENAIS_OWN | _LOGPROBS | {"seed", "logit_bias", "reasoning_effort"},
        unsent=LABELS,
    ),
    "cohere": Profile(
        url="https://api.cohere.ai/compatibility/v1",
        hosted=True,
        serves=(*_CHAT, "embedding", "rerank"),
        end="/compatibility/v1",
        rooted=(("/rerank", "/v2/rerank"),),
        limit_name="max_tokens",
        unsupported=_OPENAIS_OWN
        | _LOGPROBS
        | {"n", "logit_bias", "parallel_tool_calls", "tools.strict", "content.input_audio"}
        | {"rerank.return_documents", "rerank.rank_fields", "rerank.max_chunks_per_doc"},
        unsent=LABELS,
    ),
    "jina": Profile(
        url="https://api.jina.ai/v1",
        hosted=True,
        serves=("embedding", "rerank"),
        unsupported=frozenset(
            {"rerank.rank_fields", "rerank.max_chunks_per_doc", "rerank.max_tokens_per_doc"}
        ),
        unsent=LABELS,
    ),
    "sarvam": Profile(
        url="https://api.sarvam.ai/v1",
        hosted=True,
        serves=_CHAT,
        key_header="api-subscription-key",
        key_prefix="",
        limit_name="max_tokens",
        asks_usage=False,
        unsupported=_OPENAIS_OWN
        | _LOGPROBS
        | {"logit_bias", "content.image_url", "content.input_audio"},
        unsent=LABELS,
    ),
    "krutrim": Profile(
        url="https://cloud.olakrutrim.com/v1",
        hosted=True,
        serves=_CHAT,
        limit_name="max_tokens",
        unsupported=_ENGINES,
        unsent=LABELS,
    ),
    # The containers of models of texts (LMI, vLLM, SGLang, TGI) speak OpenAI's protocol there.
    "sagemaker": Profile(
        protocol="sagemaker",
        signs="aws",
        service="sagemaker",
        located=r"//(?:[^/]+\.)?runtime(?:-fips)?\.sagemaker(?:-fips)?\.([a-z0-9-]+)\.",
        hosted=True,
        serves=_CHAT,
        path="/endpoints/{model}{path}",
        names_model=False,
        limit_name="max_tokens",
        unsupported=_ENGINES,
        unsent=LABELS,
    ),
    # Gemini, and what else answers chats there; what it doesn't know it passes over in silence.
    "vertex": Profile(
        signs="google",
        located=r"//([a-z0-9-]+)-aiplatform\.|/locations/([a-z0-9-]+)/",
        hosted=True,
        serves=_CHAT,
        limit_name="max_tokens",
        unsupported=_OPENAIS_OWN
        | _LOGPROBS
        | {"logit_bias", "parallel_tool_calls", "tools.strict"},
        unsent=LABELS,
    ),
    # TIR: every project has an address of its own, and vLLM behind it.
    "e2e": Profile(
        hosted=True,
        serves=(*_TEXTS, "embedding"),
        limit_name="max_tokens",
        unsupported=_ENGINES,
        unsent=LABELS,
    ),
}


def profile_of(name: str) -> Profile:
    """The profile of this name; the plain one for none, or for one that isn't known any more."""
    return PROFILES.get(name, PLAIN)
