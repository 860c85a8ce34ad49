"""A Responses request as the chat that models know, and its faults by the names it was asked in."""

import re
from collections.abc import Sequence
from types import MappingProxyType
from typing import Any, Final

import msgspec

from tiffin.dialects.faults import shown
from tiffin.dialects.openai.parameters import not_supported
from tiffin.dialects.openai.renaming import Places, rename, renamed
from tiffin.dialects.openai.responses_items import (
    ITEM_TYPES,
    check_items,
    messages_of,
    refuse_type,
)
from tiffin.dialects.reader import Reader
from tiffin.errors import InvalidRequest, SchemaViolation, TiffinError, UnknownParameter
from tiffin.types.responses import FunctionTool, InputItem, ResponseRequest, TextFormat
from tiffin.types.text import (
    MAX_MESSAGES,
    ChatRequest,
    Function,
    JsonSchema,
    Message,
    ResponseFormat,
    Tool,
)

FORMATS = ("text", "json_object", "json_schema")

# Known parameters that nothing here can honour, with the values that ask for nothing.
_NEUTRAL: dict[str, tuple[Any, ...]] = {
    "background": (False,),
    "include": ([],),
    "top_logprobs": (0,),
    "truncation": ("disabled",),
    "conversation": (),
    "prompt": (),
    "max_tool_calls": (),
    "context_management": (),
    "moderation": (),
    "prompt_cache_options": (),
    "prompt_cache_retention": (),
    "background_options": (),
    "access_programs": (),
    "image": (),
}
_UNSURE_OF_TOOLS = {
    "allowed_callers": "allowed_callers",
    "defer_loading": "defer_loading",
    "output_schema": "output_schema",
    "asynchronous": "async",
}
# What a chat calls it, and what the client called it.
_NAMES = (
    (re.compile(r"tools\[(\d+)\]\.function\b"), r"tools[\1]"),
    (re.compile(r"response_format\.json_schema\b"), "text.format"),
    (re.compile(r"response_format\b"), "text.format"),
    (re.compile(r"tool_choice\.function\b"), "tool_choice"),
    (re.compile(r"max_completion_tokens\b|max_tokens\b"), "max_output_tokens"),
    (re.compile(r"reasoning_effort\b"), "reasoning.effort"),
    (re.compile(r"verbosity\b"), "text.verbosity"),
    (re.compile(r"messages(\[.*)?$"), "input"),
)
_ITEM_OR_TOOL = re.compile(r"(input|tools)\[(\d+)\]\.")
_READER = Reader(ResponseRequest)
_NOWHERE: Final[Places] = MappingProxyType({})


def read(body: bytes) -> ResponseRequest:
    """The request that `body` spells; raises an `InvalidRequest` that names the parameter."""
    try:
        return _READER.read(body)[0]
    except (UnknownParameter, SchemaViolation) as error:
        _name_type(error, body)
        raise


def _name_type(error: InvalidRequest, body: bytes) -> None:
    """Where a field is unknown, or missing, since its item's type isn't served, say that."""
    found = _ITEM_OR_TOOL.match(error.param or "")
    if found is None:
        return
    name, at = found[1], int(found[2])
    item = msgspec.json.decode(body)[name][at]
    kind = item.get("type", "message" if "role" in item else None)
    known = ("function",) if name == "tools" else ITEM_TYPES
    if kind not in known:
        raise refuse_type(kind, f"{name}[{at}]", known) from None


def input_items(request: ResponseRequest, earlier: Sequence[InputItem]) -> list[InputItem]:
    """The items of the request itself, checked; `earlier` are those that it continues."""
    given = request.input
    if given is None or given == []:
        raise SchemaViolation("'input' is required: a text or a list of items", param="input")
    if isinstance(given, str):
        given = [InputItem(type="message", role="user", content=given)]
    if len(earlier) + len(given) > MAX_MESSAGES:
        raise SchemaViolation(
            f"the conversation has {len(earlier) + len(given)} items; at most {MAX_MESSAGES}"
            " are allowed",
            param="input",
        )
    check_items(given, earlier)
    return given


def check_request(request: ResponseRequest) -> None:
    """Refuse by name what nothing here can honour; what a chat has too is left to its checks."""
    for name, neutral in _NEUTRAL.items():
        value = getattr(request, name)
        if value is not None and value not in neutral:
            raise not_supported(name)
    _check_stream(request)
    for name in ("summary", "generate_summary"):
        if getattr(request.reasoning, name, None) is not None:
            raise not_supported(f"reasoning.{name}")
    for index, tool in enumerate(request.tools or ()):
        _check_tool(tool, f"tools[{index}]")
    if request.text is not None and request.text.format is not None:
        _check_format(request.text.format)


def _check_stream(request: ResponseRequest) -> None:
    options = request.stream_options
    if options is None:
        return
    if not request.stream:
        raise SchemaViolation("'stream_options' needs 'stream': true", param="stream_options")
    if options.include_obfuscation:
        raise not_supported("stream_options.include_obfuscation")


def _check_tool(tool: FunctionTool, param: str) -> None:
    if tool.type != "function":
        raise refuse_type(tool.type, param, ("function",))
    for name, wire in _UNSURE_OF_TOOLS.items():
        if getattr(tool, name) not in (None, False):
            raise not_supported(f"{param}.{wire}")


def _check_format(wanted: TextFormat) -> None:
    if wanted.type not in FORMATS:
        raise SchemaViolation(
            f"'text.format.type' must be one of {', '.join(FORMATS)}, not '{shown(wanted.type)}'",
            param="text.format.type",
        )
    for name, wire in (("name", "name"), ("definition", "schema")):
        if wanted.type == "json_schema" and getattr(wanted, name) is None:
            raise SchemaViolation(f"'text.format.{wire}' is required", param=f"text.format.{wire}")
    for name, wire in (
        ("name", "name"),
        ("definition", "schema"),
        ("description", "description"),
        ("strict", "strict"),
    ):
        if wanted.type != "json_schema" and getattr(wanted, name) is not None:
            raise SchemaViolation(
                f"'text.format.{wire}' needs 'text.format.type': 'json_schema'",
                param=f"text.format.{wire}",
            )


def chat_of(
    request: ResponseRequest, earlier: Sequence[InputItem], given: Sequence[InputItem]
) -> tuple[ChatRequest, Places]:
    """The chat request that asks the same, and where each of its messages comes from."""
    spoken, origins = messages_of([*earlier, *given])
    messages: list[Message] = []
    if request.instructions:
        messages.append(Message(role="system", content=request.instructions))
    before = len(messages)
    places = {"messages[0]": "instructions"} if before else {}
    for number, item in enumerate(origins, start=before):
        mine = item - len(earlier)
        place = f"input[{mine}]" if mine >= 0 else "previous_response_id"
        places[f"messages[{number}]"] = place
    chat = ChatRequest(
        model=request.model,
        messages=messages + spoken,
        stream=request.stream,
        temperature=request.temperature,
        top_p=request.top_p,
        max_completion_tokens=request.max_output_tokens,
        tools=[_tool(tool) for tool in request.tools] if request.tools else None,
        tool_choice=_choice(request),
        parallel_tool_calls=request.parallel_tool_calls if request.tools else None,
        response_format=_format(request),
        reasoning_effort=request.reasoning.effort if request.reasoning else None,
        verbosity=request.text.verbosity if request.text else None,
        service_tier=request.service_tier,
        user=request.user,
        safety_identifier=request.safety_identifier,
        prompt_cache_key=request.prompt_cache_key,
    )
    return chat, places


def _tool(tool: FunctionTool) -> Tool:
    function = Function(
        name=tool.name,
        description=tool.description,
        parameters=tool.parameters,
        strict=tool.strict or None,
    )
    return Tool(type="function", function=function)


def _choice(request: ResponseRequest) -> str | dict[str, Any] | None:
    choice = request.tool_choice
    if not request.tools and choice in ("auto", "none"):
        return None  # the same without tools
    match choice:
        case None | str():
            return choice
        case {"type": "function", "name": str(name)} if len(choice) == 2:
            return {"type": "function", "function": {"name": name}}
    raise SchemaViolation(
        "'tool_choice' must be 'none', 'auto', 'required' or"
        """ {"type": "function", "name": "…"}""",
        param="tool_choice",
    )


def _format(request: ResponseRequest) -> ResponseFormat | None:
    wanted = request.text.format if request.text else None
    if wanted is None or wanted.type == "text":
        return None
    if wanted.type == "json_object":
        return ResponseFormat(type="json_object")
    named = JsonSchema(
        name=wanted.name or "",
        description=wanted.description,
        definition=wanted.definition,
        strict=wanted.strict,
    )
    return ResponseFormat(type="json_schema", json_schema=named)


def as_named(error: TiffinError, places: Places = _NOWHERE) -> TiffinError:
    """The error in terms of the request that the client sent, not of the chat it became."""
    return renamed(error, _NAMES, places)


def renamed_field(field: str, places: Places) -> str:
    """What the client called a parameter of the chat that its request became."""
    return rename(field, _NAMES, places)
