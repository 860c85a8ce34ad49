"""Requests of OpenAI's Responses API: its names, typed, closed and bounded.

`None` means "not given". Every known field is here, so that what can't be honoured is refused by
its name; what fields mean together is checked in dialects/openai/responses_items.py and
responses_request.py.
"""

from typing import Annotated, Any

import msgspec
from msgspec import Meta

from tiffin.types.text import (
    MAX_MESSAGES,
    MAX_TOOLS,
    CallId,
    Metadata,
    ModelName,
    Temperature,
    TokenCount,
    ToolName,
    TopP,
)

ResponseId = Annotated[str, Meta(min_length=1, max_length=128)]


class InputPart(msgspec.Struct, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """A part of an item's content: `input_text` from outside, `output_text` from a model."""

    type: str
    text: str | None = None
    refusal: str | None = None
    annotations: list[Any] | None = None
    logprobs: list[Any] | None = None
    image_url: Any | None = None
    detail: Any | None = None
    file_id: Any | None = None
    file_url: Any | None = None
    file_data: Any | None = None
    filename: Any | None = None
    input_audio: Any | None = None
    prompt_cache_breakpoint: Any | None = None


Parts = Annotated[list[InputPart], Meta(min_length=1, max_length=1024)]


class InputItem(msgspec.Struct, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """One item of a conversation: a message, a call that a model asked for, or what came of it."""

    type: str | None = None
    role: str | None = None
    content: str | Parts | None = None
    id: Annotated[str, Meta(max_length=256)] | None = None
    status: str | None = None
    call_id: CallId | None = None
    name: Annotated[str, Meta(min_length=1, max_length=64)] | None = None
    arguments: str | None = None
    output: str | Parts | None = None
    phase: Any | None = None
    namespace: Any | None = None
    caller: Any | None = None
    asynchronous: Any | None = msgspec.field(default=None, name="async")


class FunctionTool(msgspec.Struct, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """A function that the model may call; `parameters` is a JSON schema."""

    type: str
    name: ToolName
    description: Annotated[str, Meta(max_length=16_384)] | None = None
    parameters: dict[str, Any] | None = None
    strict: bool | None = None
    allowed_callers: Any | None = None
    defer_loading: Any | None = None
    output_schema: Any | None = None
    asynchronous: Any | None = msgspec.field(default=None, name="async")


class TextFormat(msgspec.Struct, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """`text`, `json_object`, or `json_schema` with its name and schema."""

    type: str
    name: ToolName | None = None
    description: Annotated[str, Meta(max_length=16_384)] | None = None
    definition: dict[str, Any] | None = msgspec.field(default=None, name="schema")
    strict: bool | None = None


class TextConfig(msgspec.Struct, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """What the text of the answer is to be like."""

    format: TextFormat | None = None
    verbosity: str | None = None


class Reasoning(msgspec.Struct, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """How much a model should think first."""

    effort: str | None = None
    summary: Any | None = None
    generate_summary: Any | None = None


class ResponseStreamOptions(
    msgspec.Struct, kw_only=True, forbid_unknown_fields=True, omit_defaults=True
):
    """What a stream carries beside its content."""

    include_obfuscation: bool | None = None


class ResponseRequest(msgspec.Struct, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """`POST /v1/responses`."""

    model: ModelName
    input: str | Annotated[list[InputItem], Meta(max_length=MAX_MESSAGES)] | None = None
    instructions: str | None = None
    previous_response_id: ResponseId | None = None
    store: bool | None = None
    stream: bool | None = None
    max_output_tokens: TokenCount | None = None
    temperature: Temperature | None = None
    top_p: TopP | None = None
    text: TextConfig | None = None
    tools: Annotated[list[FunctionTool], Meta(max_length=MAX_TOOLS)] | None = None
    tool_choice: str | dict[str, Any] | None = None
    parallel_tool_calls: bool | None = None
    metadata: Metadata | None = None
    user: str | None = None
    safety_identifier: str | None = None
    prompt_cache_key: str | None = None
    # Known; refused by name where they ask for what isn't to be had.
    truncation: str | None = None
    reasoning: Reasoning | None = None
    service_tier: str | None = None
    stream_options: ResponseStreamOptions | None = None
    background: bool | None = None
    include: list[Any] | None = None
    top_logprobs: int | None = None
    conversation: Any | None = None
    prompt: Any | None = None
    max_tool_calls: Any | None = None
    context_management: Any | None = None
    moderation: Any | None = None
    prompt_cache_options: Any | None = None
    prompt_cache_retention: Any | None = None
    background_options: Any | None = None
    access_programs: Any | None = None
    image: Any | None = None
