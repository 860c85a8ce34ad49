"""A Messages request as the chat that models know, and its faults by the names it was asked in."""

import re
from collections.abc import Mapping
from typing import Any

from tiffin.dialects.anthropic.conversation import Conversation
from tiffin.dialects.faults import shown
from tiffin.dialects.openai.parameters import not_supported
from tiffin.dialects.openai.renaming import Places, renamed
from tiffin.dialects.reader import Reader
from tiffin.errors import SchemaViolation, TiffinError
from tiffin.types.messages import (
    CountRequest,
    MessagesRequest,
    MessageTool,
    MessageToolChoice,
)
from tiffin.types.text import ChatRequest, Function, JsonSchema, ResponseFormat, Tool

MESSAGES: Reader[MessagesRequest] = Reader(MessagesRequest)
COUNTS: Reader[CountRequest] = Reader(CountRequest)

# Accepted and without effect on a model that isn't Anthropic's own.
WITHOUT_EFFECT = {
    "metadata": "whom a request is for is known from its key",
    "cache_control": "a prefix is reused inside a tenant where it can be, asked or not",
    "citations": "what earlier answers cited says nothing to the model",
    "eager_input_streaming": "a call's input is streamed as it comes",
}
# What only Anthropic's own models honour, with the values that ask for nothing.
NEUTRAL: Mapping[str, tuple[Any, ...]] = {
    "thinking": ({"type": "disabled"},),
    "top_k": (),
    "service_tier": ("auto", "standard_only"),
    "container": (),
    "context_management": (),
    "mcp_servers": ([],),
    "diagnostics": (),
    "inference_geo": (),
    "speed": ("standard",),
    "user_profile_id": (),
    "workspace_id": (),
}
_TOOL_NEUTRAL: Mapping[str, tuple[Any, ...]] = {
    "input_examples": ([],),
    "allowed_callers": (["direct"],),
    "defer_loading": (False,),
}
_CHOICES = {"auto": "auto", "any": "required", "none": "none"}
_NAMES = (
    (re.compile(r"tools\[(\d+)\]\.function\.parameters\b"), r"tools[\1].input_schema"),
    (re.compile(r"tools\[(\d+)\]\.function\b"), r"tools[\1]"),
    (re.compile(r"response_format\b.*"), "output_config.format"),
    (re.compile(r"tool_choice\.function\b"), "tool_choice"),
    (re.compile(r"reasoning_effort\b"), "output_config.effort"),
    (re.compile(r"stop\b"), "stop_sequences"),
)
# OpenAI's bound, which most servers of its protocol share.
MAX_CHAT_STOPS = 4


def chat_of(request: MessagesRequest) -> tuple[ChatRequest, Places]:
    """The chat request that asks the same, and where each of its messages comes from.

    Raises `SchemaViolation` or `UnsupportedParameter` by the client's names.
    """
    _refuse_own(request)
    conversation = Conversation()
    if request.system:
        conversation.system(request.system, "system")
    for at, turn in enumerate(request.messages):
        conversation.turn(turn, f"messages[{at}]")
    if request.messages[-1].role == "assistant":
        raise not_supported(f"messages[{len(request.messages) - 1}].role")  # an answer's beginning
    stops = request.stop_sequences or None
    if stops is not None and len(stops) > MAX_CHAT_STOPS:
        raise SchemaViolation(
            f"'stop_sequences' has {len(stops)} texts; this model takes {MAX_CHAT_STOPS}",
            param="stop_sequences",
        )
    config, choice = request.output_config, request.tool_choice
    chat = ChatRequest(
        model=request.model,
        messages=conversation.messages,
        stream=request.stream,
        max_tokens=request.max_tokens,
        temperature=request.temperature,
        top_p=request.top_p,
        stop=stops,
        tools=[_tool(tool, at) for at, tool in enumerate(request.tools or ())] or None,
        tool_choice=_choice(choice) if request.tools else None,
        parallel_tool_calls=False if choice and choice.disable_parallel_tool_use else None,
        response_format=_format(config.format) if config and config.format else None,
        reasoning_effort=config.effort if config else None,
        user=request.metadata.user_id if request.metadata else None,
    )
    return chat, conversation.places


def as_named(error: TiffinError, places: Places) -> TiffinError:
    """The error in terms of the request that the client sent, not of the chat it became."""
    return renamed(error, _NAMES, places)


def _refuse_own(request: MessagesRequest) -> None:
    for name, neutral in NEUTRAL.items():
        value = getattr(request, name)
        if value is not None and value not in neutral:
            raise not_supported(name)


def _tool(tool: MessageTool, at: int) -> Tool:
    where = f"tools[{at}]"
    if tool.type not in (None, "custom"):
        raise not_supported(f"{where}.type")
    for name, neutral in _TOOL_NEUTRAL.items():
        value = getattr(tool, name)
        if value is not None and value not in neutral:
            raise not_supported(f"{where}.{name}")
    if tool.input_schema is None:
        raise SchemaViolation(f"'{where}.input_schema' is required", param=f"{where}.input_schema")
    function = Function(
        name=tool.name,
        description=tool.description,
        parameters=tool.input_schema,
        strict=tool.strict or None,
    )
    return Tool(type="function", function=function)


def _choice(choice: MessageToolChoice | None) -> str | dict[str, Any] | None:
    if choice is None:
        return None
    if choice.type == "tool" and choice.name is not None:
        return {"type": "function", "function": {"name": choice.name}}
    if choice.type not in _CHOICES or choice.name is not None:
        raise SchemaViolation(
            "'tool_choice' must be of type 'auto', 'any' or 'none', or 'tool' with a 'name',"
            f" not '{shown(choice.type)}'",
            param="tool_choice",
        )
    return _CHOICES[choice.type]


def _format(wanted: dict[str, Any]) -> ResponseFormat:
    match wanted:
        case {"type": "json_schema", "schema": dict(schema)}:
            named = JsonSchema(name="answer", definition=schema)
            return ResponseFormat(type="json_schema", json_schema=named)
    raise SchemaViolation(
        """'output_config.format' must look like {"type": "json_schema", "schema": {…}}""",
        param="output_config.format",
    )
