"""Requests of Anthropic's Messages API, typed, closed and bounded like types/text.py.

One block type has the fields of all kinds; which belong to which is for the dialect to say.
"""

from typing import Annotated, Any

import msgspec
from msgspec import Meta

from tiffin.types.text import MAX_MESSAGES, MAX_TOOLS, ModelName, TokenCount, ToolName, TopP

MAX_BLOCKS = 1024
MAX_STOPS = 64

StopSequences = Annotated[
    list[Annotated[str, Meta(min_length=1, max_length=256)]], Meta(max_length=MAX_STOPS)
]
UnitTemperature = Annotated[float, Meta(ge=0, le=1)]
TopK = Annotated[int, Meta(ge=0, le=2**31 - 1)]


class Block(msgspec.Struct, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """A piece of what somebody says: `type` is `text`, `image`, `tool_use`, `tool_result` …"""

    type: str
    text: str | None = None
    source: dict[str, Any] | None = None
    id: str | None = None
    name: str | None = None
    input: Any | None = None
    tool_use_id: str | None = None
    content: "str | list[Block] | dict[str, Any] | None" = None
    is_error: bool | None = None
    thinking: str | None = None
    signature: str | None = None
    # Labels and hints, and what only Anthropic's own tools and models know.
    cache_control: Any | None = None
    citations: Any | None = None
    title: str | None = None
    context: str | None = None
    data: str | None = None
    caller: Any | None = None
    toolset_name: str | None = None
    transformations: Any | None = None


Content = str | Annotated[list[Block], Meta(max_length=MAX_BLOCKS)]


class Turn(msgspec.Struct, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """One turn of a conversation."""

    role: str
    content: Content


class MessageTool(msgspec.Struct, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """A tool that the model may use; `type` is `custom`, or names one that Anthropic runs."""

    name: ToolName
    type: str | None = None
    description: Annotated[str, Meta(max_length=16_384)] | None = None
    input_schema: dict[str, Any] | None = None
    strict: bool | None = None
    cache_control: Any | None = None
    eager_input_streaming: bool | None = None
    input_examples: list[Any] | None = None
    allowed_callers: list[str] | None = None
    defer_loading: bool | None = None
    # Settings of those that Anthropic runs.
    max_uses: int | None = None
    allowed_domains: list[str] | None = None
    blocked_domains: list[str] | None = None
    user_location: Any | None = None
    max_characters: int | None = None
    display_width_px: int | None = None
    display_height_px: int | None = None
    display_number: int | None = None


class MessageToolChoice(
    msgspec.Struct, kw_only=True, forbid_unknown_fields=True, omit_defaults=True
):
    """Whether tools are used: `auto`, `any`, `none`, or the `tool` of this name."""

    type: str
    name: str | None = None
    disable_parallel_tool_use: bool | None = None


class MessageOwner(msgspec.Struct, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """`metadata`: whom a request is for."""

    user_id: Annotated[str, Meta(max_length=512)] | None = None


class MessageOutput(msgspec.Struct, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """The form of an answer, and how much effort goes into it."""

    effort: str | None = None
    format: dict[str, Any] | None = None


class _Asking(msgspec.Struct, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    model: ModelName
    messages: Annotated[list[Turn], Meta(min_length=1, max_length=MAX_MESSAGES)]
    system: Content | None = None
    tools: Annotated[list[MessageTool], Meta(max_length=MAX_TOOLS)] | None = None
    tool_choice: MessageToolChoice | None = None
    thinking: dict[str, Any] | None = None
    output_config: MessageOutput | None = None
    cache_control: Any | None = None
    context_management: Any | None = None
    mcp_servers: list[Any] | None = None


class CountRequest(_Asking, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """`POST /v1/messages/count_tokens`."""


class MessagesRequest(_Asking, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """`POST /v1/messages`."""

    max_tokens: TokenCount
    stream: bool | None = None
    stop_sequences: StopSequences | None = None
    temperature: UnitTemperature | None = None
    top_p: TopP | None = None
    top_k: TopK | None = None
    metadata: MessageOwner | None = None
    service_tier: str | None = None
    # What only Anthropic has.
    container: Any | None = None
    diagnostics: Any | None = None
    inference_geo: str | None = None
    speed: str | None = None
    user_profile_id: str | None = None
    workspace_id: str | None = None
