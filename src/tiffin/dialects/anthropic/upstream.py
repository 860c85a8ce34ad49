"""A chat as Anthropic's Messages API is asked it: the request, and which version it needs.

What its models can't honour was refused before, by the profile's list.
"""

from typing import Any

import msgspec

from tiffin.dialects.openai.requests import decode
from tiffin.dialects.openai.validate import chosen_tool
from tiffin.types.text import ChatRequest, Message, Part, Tool, ToolCall

DEFAULT_MAX_TOKENS = 4096
"""The limit of an answer, which this API must be told, where a client doesn't say."""

LATEST = b"2026-10-21"
SAMPLING = b"2023-06-01"
"""The last version that takes `temperature` and `top_p`."""

_CHOICES = {"auto": "auto", "required": "any", "none": "none"}


def message_request(body: bytes) -> tuple[bytes, bytes]:
    """The body of the request that asks what a chat's asks, and the API's version for it."""
    chat = decode("chat", body)
    if not isinstance(chat, ChatRequest):
        raise TypeError("only chats are asked as messages")
    sampled = chat.temperature is not None or chat.top_p is not None
    return msgspec.json.encode(_request(chat)), SAMPLING if sampled else LATEST


def _request(chat: ChatRequest) -> dict[str, Any]:
    stop = [chat.stop] if isinstance(chat.stop, str) else chat.stop
    user = chat.safety_identifier or chat.user
    tools = [_tool(tool) for tool in chat.tools or ()]
    fields = {
        "model": chat.model,
        "max_tokens": chat.max_completion_tokens or chat.max_tokens or DEFAULT_MAX_TOKENS,
        "system": _system(chat.messages),
        "messages": _turns(chat.messages),
        "stream": chat.stream or None,
        "temperature": chat.temperature,
        "top_p": chat.top_p,
        "stop_sequences": stop,
        "metadata": {"user_id": user} if user else None,
        "tools": tools or None,
        "tool_choice": _choice(chat) if tools else None,
        "output_config": _output(chat),
    }
    return {name: value for name, value in fields.items() if value is not None}


def _system(messages: list[Message]) -> list[dict[str, Any]] | None:
    """What the system says, wherever it says it: here it all comes first."""
    said = [one for one in messages if one.role in ("system", "developer")]
    return [block for one in said for block in _blocks(one)] or None


def _turns(messages: list[Message]) -> list[dict[str, Any]]:
    """Everybody else's turns; results of tools are the user's, those in a row are one turn."""
    turns: list[dict[str, Any]] = []
    for message in messages:
        if message.role == "tool":
            result = {"type": "tool_result", "tool_use_id": message.tool_call_id}
            blocks: list[dict[str, Any]] = [{**result, "content": _blocks(message)}]
        elif message.role in ("user", "assistant"):
            blocks = _blocks(message) + [_tool_use(call) for call in message.tool_calls or ()]
        else:
            continue
        role = "assistant" if message.role == "assistant" else "user"
        if turns and turns[-1]["role"] == role:
            turns[-1]["content"] += blocks
        else:
            turns.append({"role": role, "content": blocks})
    return turns


def _blocks(message: Message) -> list[dict[str, Any]]:
    """What a message says, without texts that say nothing."""
    content = message.content
    if isinstance(content, list):
        return [_block(part) for part in content if part.text != ""]
    text = content or message.refusal
    return [{"type": "text", "text": text}] if text else []


def _block(part: Part) -> dict[str, Any]:
    if part.type != "image_url":
        return {"type": "text", "text": part.text or part.refusal or ""}
    given = part.image_url
    url = given.get("url", "") if isinstance(given, dict) else str(given)
    kind, comma, inline = url.removeprefix("data:").partition(";base64,")
    if url.startswith("data:") and comma:
        return {
            "type": "image",
            "source": {"type": "base64", "media_type": kind, "data": inline},
        }
    return {"type": "image", "source": {"type": "url", "url": url}}


def _tool_use(call: ToolCall) -> dict[str, Any]:
    try:
        given = msgspec.json.decode(call.function.arguments or "{}", type=dict[str, Any])
    except msgspec.DecodeError:  # what a model once wrote: it is shown as it was
        given = {"arguments": call.function.arguments}
    return {"type": "tool_use", "id": call.id, "name": call.function.name, "input": given}


def _tool(tool: Tool) -> dict[str, Any]:
    function = tool.function
    schema = {"type": "object", "properties": {}, **(function.parameters or {})}
    told: dict[str, Any] = {"name": function.name, "input_schema": schema}
    if function.description:
        told["description"] = function.description
    if function.strict:
        told["strict"] = True
    return told


def _choice(chat: ChatRequest) -> dict[str, Any] | None:
    choice = chat.tool_choice
    one_at_a_time = chat.parallel_tool_calls is False
    if choice is None and not one_at_a_time:
        return None
    name = chosen_tool(choice)
    told: dict[str, Any] = {"type": "tool", "name": name}
    if name is None:
        told = {"type": _CHOICES[choice] if isinstance(choice, str) else "auto"}
    if one_at_a_time and told["type"] != "none":
        told["disable_parallel_tool_use"] = True
    return told


def _output(chat: ChatRequest) -> dict[str, Any] | None:
    wanted = chat.response_format
    if wanted is None or wanted.json_schema is None:
        return None
    return {"format": {"type": "json_schema", "schema": wanted.json_schema.definition}}
