"""Items of a Responses conversation: which there are, what each carries, what a chat calls them."""

from collections.abc import Sequence

from tiffin.dialects.faults import shown
from tiffin.dialects.openai.parameters import not_supported
from tiffin.errors import SchemaViolation, UnsupportedParameter
from tiffin.types.ids import new_id
from tiffin.types.responses import InputItem, InputPart
from tiffin.types.text import FunctionCall, Message, Part, ToolCall

ROLES = ("user", "assistant", "system", "developer")
STATUSES = ("in_progress", "completed", "incomplete")

_FIELDS = {
    "message": ("role", "content"),
    "function_call": ("call_id", "name", "arguments"),
    "function_call_output": ("call_id", "output"),
}
ITEM_TYPES = tuple(_FIELDS)
_ALL_FIELDS = ("role", "content", "call_id", "name", "arguments", "output")
_UNSURE = {"phase": "phase", "namespace": "namespace", "caller": "caller", "asynchronous": "async"}
_PREFIXES = {"message": "msg", "function_call": "fc", "function_call_output": "fco"}
_SAID = ("output_text", "refusal")
_REFUSED_PARTS = ("input_image", "input_file", "input_audio")


def kind_of(item: InputItem) -> str:
    """The item's type; a message may leave it out."""
    return item.type or ("message" if item.role is not None else "")


def check_items(items: Sequence[InputItem], earlier: Sequence[InputItem] = ()) -> None:
    """Raise `SchemaViolation` or `UnsupportedParameter` that names the item at fault.

    `earlier` are the items of the responses that these continue.
    """
    calls = {item.call_id for item in earlier if kind_of(item) == "function_call"}
    for index, item in enumerate(items):
        param = f"input[{index}]"
        kind = kind_of(item)
        _check(item, kind, param)
        if kind == "function_call":
            calls.add(item.call_id)
        elif kind == "function_call_output" and item.call_id not in calls:
            raise SchemaViolation(
                f"'{param}.call_id' is '{shown(item.call_id or '')}', but no function_call before"
                " it has that id",
                param=f"{param}.call_id",
            )


def refuse_type(kind: object, param: str, known: Sequence[str]) -> UnsupportedParameter:
    """The refusal of a type of item or tool that there is not."""
    named = f"'{shown(kind)}'" if isinstance(kind, str) and kind else "not given"
    return UnsupportedParameter(
        f"'{param}.type' is {named}; supported here: {', '.join(known)}", param=f"{param}.type"
    )


def _check(item: InputItem, kind: str, param: str) -> None:
    if kind not in _FIELDS:
        raise refuse_type(kind, param, ITEM_TYPES)
    for name, wire in _UNSURE.items():
        if getattr(item, name) is not None:
            raise not_supported(f"{param}.{wire}")
    _check_fields(item, kind, param)
    if item.status is not None and item.status not in STATUSES:
        raise _one_of(f"{param}.status", STATUSES, item.status)
    if kind == "message" and item.role not in ROLES:
        raise _one_of(f"{param}.role", ROLES, item.role or "")
    said = _SAID if item.role == "assistant" else ("input_text",)
    for name in ("content", "output"):
        value = getattr(item, name)
        for index, part in enumerate(value if isinstance(value, list) else ()):
            _check_part(part, f"{param}.{name}[{index}]", said)


def _check_fields(item: InputItem, kind: str, param: str) -> None:
    for name in _ALL_FIELDS:
        given = getattr(item, name) is not None
        if given and name not in _FIELDS[kind]:
            raise SchemaViolation(
                f"'{param}.{name}' doesn't belong to an item of type '{kind}'",
                param=f"{param}.{name}",
            )
        if not given and name in _FIELDS[kind]:
            raise SchemaViolation(f"'{param}.{name}' is required", param=f"{param}.{name}")


def _check_part(part: InputPart, param: str, allowed: Sequence[str]) -> None:
    if part.type in _REFUSED_PARTS:
        raise not_supported(f"{param}.type")
    if part.type not in allowed:
        raise _one_of(f"{param}.type", allowed, part.type)
    carries = "refusal" if part.type == "refusal" else "text"
    if getattr(part, carries) is None:
        raise SchemaViolation(f"'{param}.{carries}' is required", param=f"{param}.{carries}")
    for name in InputPart.__struct_fields__:
        if name in ("type", carries) or getattr(part, name) is None:
            continue
        if name in ("annotations", "logprobs") and part.type == "output_text":
            continue  # a client gives back what it got; it says nothing to a model
        raise SchemaViolation(
            f"'{param}.{name}' doesn't belong to a part of type '{part.type}'",
            param=f"{param}.{name}",
        )


def _one_of(param: str, allowed: Sequence[str], found: str) -> SchemaViolation:
    return SchemaViolation(
        f"'{param}' must be one of {', '.join(allowed)}, not '{shown(found)}'", param=param
    )


def messages_of(items: Sequence[InputItem]) -> tuple[list[Message], list[int]]:
    """The messages that a chat has for these items, and for each the number of its first item.

    A model's message and the calls right after it are one message of a chat.
    """
    messages: list[Message] = []
    origins: list[int] = []
    for index, item in enumerate(items):
        kind = kind_of(item)
        if kind == "function_call":
            call = _call(item)
            if messages and messages[-1].role == "assistant":
                messages[-1].tool_calls = [*(messages[-1].tool_calls or ()), call]
                continue
            message = Message(role="assistant", tool_calls=[call])
        elif kind == "function_call_output":
            message = Message(
                role="tool", tool_call_id=item.call_id, content=_content(item.output or "")
            )
        else:
            message = Message(role=item.role or "user", content=_content(item.content or ""))
        messages.append(message)
        origins.append(index)
    return messages, origins


def _call(item: InputItem) -> ToolCall:
    function = FunctionCall(name=item.name or "", arguments=item.arguments or "")
    return ToolCall(id=item.call_id or "", type="function", function=function)


def _content(content: str | list[InputPart]) -> str | list[Part]:
    if isinstance(content, str):
        return content
    texts = [part.text if part.refusal is None else part.refusal for part in content]
    if len(texts) == 1:
        return texts[0] or ""
    return [Part(type="text", text=text) for text in texts]


def completed(item: InputItem) -> InputItem:
    """The item as it is kept and listed: with its type, an id and a status, its text as parts."""
    kind = kind_of(item)
    content = item.content
    if isinstance(content, str):
        spoken = "output_text" if item.role == "assistant" else "input_text"
        content = [InputPart(type=spoken, text=content)]
        if spoken == "output_text":
            content[0].annotations = []
    return InputItem(
        type=kind,
        role=item.role,
        content=content,
        id=item.id or new_id(_PREFIXES[kind]),
        status=item.status or "completed",
        call_id=item.call_id,
        name=item.name,
        arguments=item.arguments,
        output=item.output,
    )
