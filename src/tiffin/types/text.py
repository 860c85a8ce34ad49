"""Text requests in the vocabulary that the field shares: OpenAI's names, typed and closed.

Every known parameter is a field, so that what a model can't honour is refused by name and what
nobody knows is refused as unknown. `None` means "not given".
"""

from typing import Any

import msgspec


class Part(msgspec.Struct, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """One part of a message's content; only `type = "text"` can be served by a text model."""

    type: str
    text: str | None = None
    image_url: Any | None = None
    input_audio: Any | None = None
    file: Any | None = None
    refusal: str | None = None


class FunctionCall(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """A call that a model asked for: `arguments` is JSON text."""

    name: str
    arguments: str


class ToolCall(msgspec.Struct, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """A tool call in an assistant's message."""

    id: str
    type: str = "function"
    function: FunctionCall
    index: int | None = None


class Message(msgspec.Struct, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """One turn of a conversation."""

    role: str
    content: str | list[Part] | None = None
    name: str | None = None
    refusal: str | None = None
    tool_calls: list[ToolCall] | None = None
    tool_call_id: str | None = None
    function_call: Any | None = None
    audio: Any | None = None
    annotations: Any | None = None


class Function(msgspec.Struct, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """A function that the model may call; `parameters` is a JSON schema."""

    name: str
    description: str | None = None
    parameters: dict[str, Any] | None = None
    strict: bool | None = None


class Tool(msgspec.Struct, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """A tool of the request; only functions exist."""

    type: str
    function: Function


class JsonSchema(msgspec.Struct, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """A named schema that the answer must follow; the wire calls the schema itself `schema`."""

    name: str
    description: str | None = None
    definition: dict[str, Any] | None = msgspec.field(default=None, name="schema")
    strict: bool | None = None


class ResponseFormat(msgspec.Struct, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """`text`, `json_object` or `json_schema`."""

    type: str
    json_schema: JsonSchema | None = None


class StreamOptions(msgspec.Struct, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """What a stream carries beside its content."""

    include_usage: bool | None = None
    include_obfuscation: bool | None = None


class ChatRequest(msgspec.Struct, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """`POST /v1/chat/completions`."""

    model: str
    messages: list[Message]
    stream: bool | None = None
    stream_options: StreamOptions | None = None
    temperature: float | None = None
    top_p: float | None = None
    max_tokens: int | None = None
    max_completion_tokens: int | None = None
    n: int | None = None
    stop: str | list[str] | None = None
    seed: int | None = None
    presence_penalty: float | None = None
    frequency_penalty: float | None = None
    logit_bias: dict[str, float] | None = None
    logprobs: bool | None = None
    top_logprobs: int | None = None
    response_format: ResponseFormat | None = None
    tools: list[Tool] | None = None
    tool_choice: str | dict[str, Any] | None = None
    parallel_tool_calls: bool | None = None
    # Accepted and without effect: the written list is in dialects/openai/parameters.py.
    user: str | None = None
    metadata: dict[str, str] | None = None
    store: bool | None = None
    safety_identifier: str | None = None
    prompt_cache_key: str | None = None
    # Known and refused by name where a model can't honour them.
    service_tier: str | None = None
    reasoning_effort: str | None = None
    verbosity: str | None = None
    modalities: list[str] | None = None
    audio: Any | None = None
    prediction: Any | None = None
    web_search_options: Any | None = None
    functions: Any | None = None
    function_call: Any | None = None
    prompt_cache_retention: str | None = None


class CompletionRequest(
    msgspec.Struct, kw_only=True, forbid_unknown_fields=True, omit_defaults=True
):
    """`POST /v1/completions`: raw text or token ids, no chat template."""

    model: str
    prompt: str | list[str | int | list[int]]
    stream: bool | None = None
    stream_options: StreamOptions | None = None
    temperature: float | None = None
    top_p: float | None = None
    max_tokens: int | None = None
    n: int | None = None
    best_of: int | None = None
    stop: str | list[str] | None = None
    seed: int | None = None
    presence_penalty: float | None = None
    frequency_penalty: float | None = None
    logit_bias: dict[str, float] | None = None
    logprobs: int | None = None
    echo: bool | None = None
    suffix: str | None = None
    user: str | None = None


class TokenizeRequest(msgspec.Struct, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """`POST /tokenize`: the ids of a prompt, or of messages after the model's chat template."""

    model: str
    prompt: str | None = None
    messages: list[Message] | None = None
    tools: list[Tool] | None = None
    add_special_tokens: bool | None = None
    return_token_strs: bool | None = None


class DetokenizeRequest(
    msgspec.Struct, kw_only=True, forbid_unknown_fields=True, omit_defaults=True
):
    """`POST /detokenize`: the text of token ids."""

    model: str
    tokens: list[int]


TextRequest = ChatRequest | CompletionRequest | TokenizeRequest | DetokenizeRequest
