"""Where LiteLLM's providers are found, as data: what stands before the slash of a model's name."""

from typing import Final, NamedTuple


class Provider(NamedTuple):
    """One provider: our `profile` for it (empty: the plain one), its `url` (empty: each has its
    own), and the variable in which LiteLLM looks for its key. `below` ends an own address."""

    profile: str = ""
    url: str = ""
    variable: str = ""
    below: str = ""


PROVIDERS: Final[dict[str, Provider]] = {
    "openai": Provider("openai", variable="OPENAI_API_KEY"),
    "text-completion-openai": Provider("openai", variable="OPENAI_API_KEY"),
    "azure": Provider("azure", variable="AZURE_API_KEY"),
    "groq": Provider("groq", variable="GROQ_API_KEY"),
    "cerebras": Provider("cerebras", variable="CEREBRAS_API_KEY"),
    "mistral": Provider("mistral", variable="MISTRAL_API_KEY"),
    "sarvam": Provider("sarvam", variable="SARVAM_API_KEY"),
    "cohere": Provider("cohere", variable="COHERE_API_KEY"),
    "cohere_chat": Provider("cohere", variable="COHERE_API_KEY"),
    "jina_ai": Provider("jina", variable="JINA_AI_API_KEY"),
    "sagemaker_chat": Provider("sagemaker"),
    "vertex_ai": Provider("vertex"),
    "vertex_ai_beta": Provider("vertex"),
    "anthropic": Provider("anthropic", variable="ANTHROPIC_API_KEY"),
    "hosted_vllm": Provider("vllm", variable="HOSTED_VLLM_API_KEY"),
    "vllm": Provider("vllm"),
    "ollama": Provider("ollama", "http://localhost:11434/v1", below="/v1"),
    "ollama_chat": Provider("ollama", "http://localhost:11434/v1", below="/v1"),
    "openrouter": Provider("", "https://openrouter.ai/api/v1", "OPENROUTER_API_KEY"),
    "together_ai": Provider("", "https://api.together.xyz/v1", "TOGETHERAI_API_KEY"),
    "deepseek": Provider("", "https://api.deepseek.com/v1", "DEEPSEEK_API_KEY"),
    "fireworks_ai": Provider("", "https://api.fireworks.ai/inference/v1", "FIREWORKS_AI_API_KEY"),
    "xai": Provider("", "https://api.x.ai/v1", "XAI_API_KEY"),
    "perplexity": Provider("", "https://api.perplexity.ai", "PERPLEXITYAI_API_KEY"),
    "nvidia_nim": Provider("", "https://integrate.api.nvidia.com/v1", "NVIDIA_NIM_API_KEY"),
    "deepinfra": Provider("", "https://api.deepinfra.com/v1/openai", "DEEPINFRA_API_KEY"),
    "gemini": Provider(
        "", "https://generativelanguage.googleapis.com/v1beta/openai", "GEMINI_API_KEY"
    ),
    "lm_studio": Provider(),
    "llamafile": Provider("", "http://127.0.0.1:8080/v1"),
    "openai_like": Provider(),
    "custom_openai": Provider(),
    "litellm_proxy": Provider(),
}

FOREIGN: Final = frozenset(
    {
        *(
            "bedrock",
            "bedrock_converse",
            "sagemaker",
        ),
        *("azure_ai", "azure_text", "replicate"),
        *("huggingface", "watsonx", "databricks", "snowflake", "cloudflare", "ai21", "voyage"),
        *("triton", "predibase", "petals", "clarifai", "palm", "aleph_alpha", "nlp_cloud"),
    }
)
"""Providers that LiteLLM speaks a protocol of their own with."""

WITHOUT_SLASH: Final = "openai"
"""Whom a model is of where its name has no provider."""
