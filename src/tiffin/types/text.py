"""Text requests in the vocabulary that the field shares: OpenAI's names, typed, closed and bounded.

Every known parameter is a field, so that what a model can't honour is refused by name and what
nobody knows is refused as unknown. `None` means "not given". Ranges are part of the types: they
are checked while decoding and told in the OpenAPI document. What spans fields is checked in
dialects/openai/validate.py.
"""

from typing import Annotated, Any

import msgspec
from msgspec import Meta

MAX_CHOICES = 8
MAX_MESSAGES = 2048
MAX_TOOLS = 128

ModelName = Annotated[str, Meta(min_length=1, max_length=256)]
ToolName = Annotated[str, Meta(min_length=1, max_length=64, pattern=r"^[A-Za-z0-9_-]+$(?!\n)")]
CallId = Annotated[str, Meta(min_length=1, max_length=256)]
Temperature = Annotated[float, Meta(ge=0, le=2)]
TopP = Annotated[float, Meta(gt=0, le=1)]
Penalty = Annotated[float, Meta(ge=-2, le=2)]
TokenCount = Annotated[int, Meta(ge=1, le=2**31 - 1)]
TokenId = Annotated[int, Meta(ge=0, le=2**31 - 1)]
ChoiceCount = Annotated[int, Meta(ge=1, le=MAX_CHOICES)]
Seed = Annotated[int, Meta(ge=-(2**63), le=2**63 - 1)]
TopLogprobs = Annotated[int, Meta(ge=0, le=20)]
CompletionLogprobs = Annotated[int, Meta(ge=0, le=5)]
StopText = Annotated[str, Meta(min_length=1, max_length=256)]
StopTexts = Annotated[list[StopText], Meta(max_length=4)]
BiasedToken = Annotated[str, Meta(pattern=r"^[0-9]{1,9}$(?!\n)")]
Bias = Annotated[float, Meta(ge=-100, le=100)]
LogitBias = Annotated[dict[BiasedToken, Bias], Meta(max_length=300)]
MetadataKey = Annotated[str, Meta(max_length=64)]
MetadataText = Annotated[str, Meta(max_length=512)]
Metadata = Annotated[dict[MetadataKey, MetadataText], Meta(max_length=16)]
TokenIds = Annotated[list[TokenId], Meta(max_length=1_048_576)]


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

    name: Annotated[str, Meta(min_length=1, max_length=64)]
    arguments: str


class ToolCall(msgspec.Struct, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """A tool call in an assistant's message; `index` is tolerated from collected streams."""

    id: CallId
    type: str
    function: FunctionCall
    index: int | None = None


class Message(msgspec.Struct, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """One turn of a conversation."""

    role: str
    content: str | Annotated[list[Part], Meta(min_length=1, max_length=1024)] | None = None
    name: Annotated[str, Meta(max_length=64)] | None = None
    refusal: str | None = None
    tool_calls: Annotated[list[ToolCall], Meta(max_length=MAX_TOOLS)] | None = None
    tool_call_id: CallId | None = None
    function_call: Any | None = None
    audio: Any | None = None
    annotations: list[Any] | None = None


class Function(msgspec.Struct, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """A function that the model may call; `parameters` is a JSON schema."""

    name: ToolName
    description: Annotated[str, Meta(max_length=16_384)] | None = None
    parameters: dict[str, Any] | None = None
    strict: bool | None = None


class Tool(msgspec.Struct, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """A tool of the request; only functions exist."""

    type: str
    function: Function


class JsonSchema(msgspec.Struct, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """A named schema that the answer must follow; the wire calls the schema itself `schema`."""

    name: ToolName
    description: Annotated[str, Meta(max_length=16_384)] | None = None
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


Messages = Annotated[list[Message], Meta(min_length=1, max_length=MAX_MESSAGES)]
Tools = Annotated[list[Tool], Meta(min_length=1, max_length=MAX_TOOLS)]


class ChatRequest(msgspec.Struct, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """`POST /v1/chat/completions`."""

    model: ModelName
    messages: Messages
    stream: bool | None = None
    stream_options: StreamOptions | None = None
    temperature: Temperature | None = None
    top_p: TopP | None = None
    max_tokens: TokenCount | None = None
    max_completion_tokens: TokenCount | None = None
    n: ChoiceCount | None = None
    stop: StopText | StopTexts | None = None
    seed: Seed | None = None
    presence_penalty: Penalty | None = None
    frequency_penalty: Penalty | None = None
    logit_bias: LogitBias | None = None
    logprobs: bool | None = None
    top_logprobs: TopLogprobs | None = None
    response_format: ResponseFormat | None = None
    tools: Tools | None = None
    tool_choice: str | dict[str, Any] | None = None
    parallel_tool_calls: bool | None = None
    # Accepted and without effect: the written list is in dialects/openai/parameters.py.
    user: str | None = None
    metadata: Metadata | None = None
    store: bool | None = None
    safety_identifier: str | None = None
    prompt_cache_key: str | None = None
    # Known and refused by name where a model can't honour them.
    service_tier: str | None = None
    reasoning_effort: str | None = None
    verbosity: str | None = None
    modalities: Annotated[list[str], Meta(max_length=8)] | None = None
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

    model: ModelName
    prompt: str | Annotated[list[str | TokenId | TokenIds], Meta(max_length=1_048_576)]
    stream: bool | None = None
    stream_options: StreamOptions | None = None
    temperature: Temperature | None = None
    top_p: TopP | None = None
    max_tokens: TokenCount | None = None
    n: ChoiceCount | None = None
    best_of: ChoiceCount | None = None
    stop: StopText | StopTexts | None = None
    seed: Seed | None = None
    presence_penalty: Penalty | None = None
    frequency_penalty: Penalty | None = None
    logit_bias: LogitBias | None = None
    logprobs: CompletionLogprobs | None = None
    echo: bool | None = None
    suffix: str | None = None
    user: str | None = None


class TokenizeRequest(msgspec.Struct, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """`POST /tokenize`: the ids of a prompt, or of messages after the model's chat template."""

    model: ModelName
    prompt: str | None = None
    messages: Messages | None = None
    tools: Tools | None = None
    add_special_tokens: bool | None = None
    return_token_strs: bool | None = None


class DetokenizeRequest(
    msgspec.Struct, kw_only=True, forbid_unknown_fields=True, omit_defaults=True
):
    """`POST /detokenize`: the text of token ids."""

    model: ModelName
    tokens: TokenIds


TextRequest = ChatRequest | CompletionRequest | TokenizeRequest | DetokenizeRequest
