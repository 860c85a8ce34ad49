"""What one request's fields mean together; single ranges are checked while decoding.

Every refusal names the parameter. Nothing here depends on a model but `unsupported`, the names
that it can't honour.
"""

from collections.abc import Callable
from typing import Any

import msgspec

from tiffin.dialects.faults import shown
from tiffin.dialects.openai.conversation import check_messages
from tiffin.dialects.openai.parameters import (
    LOCAL_UNSUPPORTED,
    is_everyday,
    not_supported,
    refuse_unsupported,
)
from tiffin.errors import SchemaViolation
from tiffin.types.text import (
    ChatRequest,
    CompletionRequest,
    DetokenizeRequest,
    ResponseFormat,
    StreamOptions,
    TextRequest,
    TokenizeRequest,
    Tool,
)

MAX_SCHEMA_BYTES = 65_536
MAX_SCHEMAS_BYTES = 262_144
MAX_SCHEMA_DEPTH = 64
MAX_PROMPTS = 16


def validate(request: TextRequest, *, unsupported: frozenset[str] = LOCAL_UNSUPPORTED) -> None:
    """Raise `SchemaViolation` or `UnsupportedParameter` where no model could answer as asked."""
    _CHECKS[type(request)](request, unsupported)


def _chat(request: ChatRequest, unsupported: frozenset[str]) -> None:
    check_messages(request.messages, unsupported)
    if is_everyday(request):
        return
    refuse_unsupported(request, unsupported)
    _stream(request.stream, request.stream_options, unsupported)
    _logit_bias(request.logit_bias)
    limits = {request.max_tokens, request.max_completion_tokens} - {None}
    if len(limits) > 1:
        raise SchemaViolation(
            "'max_tokens' and 'max_completion_tokens' differ; give one of them",
            param="max_completion_tokens",
        )
    if request.top_logprobs is not None and not request.logprobs:
        raise SchemaViolation("'top_logprobs' needs 'logprobs': true", param="top_logprobs")
    if request.response_format is not None:
        _response_format(request.response_format, unsupported)
    if request.tools is not None:
        _tools(request.tools, unsupported)
    if request.tool_choice is not None:
        _tool_choice(request.tool_choice, request.tools)
    for name in ("audio", "prediction", "web_search_options", "functions", "function_call"):
        if (value := getattr(request, name)) is not None:
            schema_bytes(value, name)


def _completion(request: CompletionRequest, unsupported: frozenset[str]) -> None:
    _prompts(request.prompt)
    if is_everyday(request):
        return
    refuse_unsupported(request, unsupported)
    choices = request.n or 1
    if request.best_of is not None and request.best_of != choices:
        if request.best_of < choices:
            raise SchemaViolation("'best_of' must be at least 'n'", param="best_of")
        if "best_of" in unsupported:
            raise not_supported("best_of")
        if request.stream:
            raise SchemaViolation("'best_of' over 'n' can't be streamed", param="best_of")
    if request.echo and request.logprobs is not None and "echo.logprobs" in unsupported:
        raise not_supported("logprobs")
    _stream(request.stream, request.stream_options, unsupported)
    _logit_bias(request.logit_bias)


def _tokenize(request: TokenizeRequest, unsupported: frozenset[str]) -> None:
    if (request.prompt is None) == (request.messages is None):
        param = "prompt" if request.messages is None else "messages"
        raise SchemaViolation("give either 'prompt' or 'messages'", param=param)
    if request.messages is not None:
        check_messages(request.messages, unsupported)
    if request.tools is not None:
        if request.messages is None:
            raise SchemaViolation("'tools' needs 'messages'", param="tools")
        if "tools" in unsupported:
            raise not_supported("tools")
        _tools(request.tools, unsupported)


def _detokenize(request: DetokenizeRequest, unsupported: frozenset[str]) -> None:
    """Its types say all."""


_CHECKS: dict[type[Any], Callable[[Any, frozenset[str]], None]] = {
    ChatRequest: _chat,
    CompletionRequest: _completion,
    TokenizeRequest: _tokenize,
    DetokenizeRequest: _detokenize,
}


def _stream(
    stream: bool | None, options: StreamOptions | None, unsupported: frozenset[str]
) -> None:
    if options is None:
        return
    if not stream:
        raise SchemaViolation("'stream_options' needs 'stream': true", param="stream_options")
    name = "stream_options.include_obfuscation"
    if options.include_obfuscation and name in unsupported:
        raise not_supported(name)


def _logit_bias(bias: dict[str, float] | None) -> None:
    for key in bias or ():
        if not key.isdigit():  # a pattern's `$` lets one line break through
            raise SchemaViolation("every key of 'logit_bias' is a token's id", param="logit_bias")


def _prompts(prompt: str | list[Any]) -> None:
    if not prompt:
        raise SchemaViolation("'prompt' must not be empty", param="prompt")
    if isinstance(prompt, str):
        return
    kind = type(prompt[0])
    if any(type(item) is not kind for item in prompt):
        raise SchemaViolation(
            "'prompt' must be all strings, all token ids, or all lists of token ids",
            param="prompt",
        )
    if kind is int:
        return
    if len(prompt) > MAX_PROMPTS:
        raise SchemaViolation(f"'prompt' must have at most {MAX_PROMPTS} prompts", param="prompt")
    for index, item in enumerate(prompt):
        if not item:
            raise SchemaViolation(f"'prompt[{index}]' must not be empty", param=f"prompt[{index}]")


def _response_format(wanted: ResponseFormat, unsupported: frozenset[str]) -> None:
    if f"response_format.{wanted.type}" in unsupported:
        raise not_supported("response_format.type")
    if wanted.type == "json_schema":
        named = wanted.json_schema
        param = "response_format.json_schema"
        if named is None:
            raise SchemaViolation(f"'{param}' is required", param=param)
        _one_line(named.name, f"{param}.name")
        if named.definition is None:
            raise SchemaViolation(f"'{param}.schema' is required", param=f"{param}.schema")
        schema_bytes(named.definition, f"{param}.schema")
        return
    if wanted.type not in ("text", "json_object"):
        raise SchemaViolation(
            "'response_format.type' must be 'text', 'json_object' or 'json_schema', "
            f"not '{shown(wanted.type)}'",
            param="response_format.type",
        )
    if wanted.json_schema is not None:
        raise SchemaViolation(
            "'response_format.json_schema' needs 'response_format.type': 'json_schema'",
            param="response_format.json_schema",
        )


def _tools(tools: list[Tool], unsupported: frozenset[str]) -> None:
    names: set[str] = set()
    size = 0
    for index, tool in enumerate(tools):
        param = f"tools[{index}]"
        if tool.type != "function":
            raise SchemaViolation(
                f"'{param}.type' must be 'function', not '{shown(tool.type)}'",
                param=f"{param}.type",
            )
        function = tool.function
        _one_line(function.name, f"{param}.function.name")
        if function.name in names:
            raise SchemaViolation(
                f"two tools are named '{function.name}'", param=f"{param}.function.name"
            )
        names.add(function.name)
        if function.strict and "tools.strict" in unsupported:
            raise not_supported(f"{param}.function.strict")
        if function.parameters is not None:
            size += _tool_schema(function.parameters, f"{param}.function.parameters")
    if size > MAX_SCHEMAS_BYTES:
        raise SchemaViolation(
            f"the tools' schemas have {size} bytes; at most {MAX_SCHEMAS_BYTES} are allowed",
            param="tools",
        )


def _tool_schema(schema: dict[str, Any], param: str) -> int:
    if schema.get("type", "object") != "object":
        raise SchemaViolation(f"'{param}' must be the schema of an object", param=f"{param}.type")
    return schema_bytes(schema, param)


def _tool_choice(choice: str | dict[str, Any], tools: list[Tool] | None) -> None:
    if tools is None:
        raise SchemaViolation("'tool_choice' needs 'tools'", param="tool_choice")
    if isinstance(choice, str):
        if choice not in ("none", "auto", "required"):
            raise SchemaViolation(
                "'tool_choice' must be 'none', 'auto', 'required' or a named function, "
                f"not '{shown(choice)}'",
                param="tool_choice",
            )
        return
    name = chosen_tool(choice)
    if name is None:
        raise SchemaViolation(
            """'tool_choice' must look like {"type": "function", "function": {"name": "…"}}""",
            param="tool_choice",
        )
    if all(tool.function.name != name for tool in tools):
        raise SchemaViolation(
            f"'tool_choice' names '{shown(name)}', which is not one of 'tools'",
            param="tool_choice.function.name",
        )


def chosen_tool(choice: str | dict[str, Any] | None) -> str | None:
    """The name that `tool_choice` asks for, where it names a function."""
    match choice:
        case {"type": "function", "function": {"name": str(name), **more}, **rest}:
            return None if more or rest else name
    return None


def schema_bytes(value: Any, param: str) -> int:
    """The size of a free-form value as JSON; raises where it is too large or too deep."""
    size = len(msgspec.json.encode(value))
    if size > MAX_SCHEMA_BYTES:
        raise SchemaViolation(
            f"'{param}' has {size} bytes; at most {MAX_SCHEMA_BYTES} are allowed", param=param
        )
    level = [value]
    for _ in range(MAX_SCHEMA_DEPTH):
        level = [inner for outer in level for inner in _inside(outer)]
        if not level:
            return size
    raise SchemaViolation(f"'{param}' is nested over {MAX_SCHEMA_DEPTH} deep", param=param)


def _inside(value: Any) -> list[Any]:
    if isinstance(value, dict):
        return list(value.values())
    return value if isinstance(value, list) else []


def _one_line(name: str, param: str) -> None:
    if name.endswith("\n"):  # a pattern's `$` lets one through
        raise SchemaViolation(f"'{param}' must not have a line break", param=param)
