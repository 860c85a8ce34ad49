"""Whether a list of messages is a conversation: what each role must and must not carry."""

from operator import attrgetter

from tiffin.dialects.faults import shown
from tiffin.dialects.openai.parameters import not_supported
from tiffin.errors import SchemaViolation, UnsupportedParameter
from tiffin.types.text import Message, Part

ROLES = ("system", "developer", "user", "assistant", "tool")

_EXTRAS = ("refusal", "tool_calls", "tool_call_id", "function_call", "audio", "annotations")
_ASSISTANT_ONLY = ("refusal", "tool_calls", "function_call", "audio", "annotations")
_UNSURE = ("refusal", "function_call", "audio", "annotations")
_extras = attrgetter(*_EXTRAS)
_NO_EXTRAS = (None,) * len(_EXTRAS)
_PLAIN_ROLES = frozenset({"system", "developer", "user", "assistant"})
_PARTS = ("text", "image_url", "input_audio", "file", "refusal")


def check_messages(messages: list[Message], unsupported: frozenset[str]) -> None:
    """Raise `SchemaViolation` or `UnsupportedParameter` that names the message at fault."""
    for index, message in enumerate(messages):
        if (
            message.role not in _PLAIN_ROLES
            or message.content.__class__ is not str
            or _extras(message) != _NO_EXTRAS
        ):
            _check(message, f"messages[{index}]", unsupported)


def _check(message: Message, param: str, unsupported: frozenset[str]) -> None:
    role = message.role
    if role == "function":
        raise UnsupportedParameter(
            f"'{param}.role' is 'function', which gave way to 'tool'", param=f"{param}.role"
        )
    if role not in ROLES:
        raise SchemaViolation(
            f"'{param}.role' must be one of {', '.join(ROLES)}, not '{shown(role)}'",
            param=f"{param}.role",
        )
    _check_extras(message, param, unsupported)
    if isinstance(message.content, list):
        for index, part in enumerate(message.content):
            _check_part(part, f"{param}.content[{index}]", role, unsupported)
    elif message.content is None and not (role == "assistant" and _says_otherwise(message)):
        raise SchemaViolation(f"'{param}.content' is required", param=f"{param}.content")


def _says_otherwise(message: Message) -> bool:
    """Whether an assistant's message has something to say beside its content."""
    return bool(message.tool_calls or message.refusal or message.function_call or message.audio)


def _check_extras(message: Message, param: str, unsupported: frozenset[str]) -> None:
    if message.role == "tool":
        if message.tool_call_id is None:
            raise SchemaViolation(
                f"'{param}.tool_call_id' is required", param=f"{param}.tool_call_id"
            )
    elif message.tool_call_id is not None:
        raise _wrong_role(f"{param}.tool_call_id", message.role)
    for name in _ASSISTANT_ONLY:
        if getattr(message, name) is not None and message.role != "assistant":
            raise _wrong_role(f"{param}.{name}", message.role)
    for name in _UNSURE:
        # An empty list of annotations is what clients send back of a plain answer.
        if getattr(message, name) not in (None, []) and f"messages.{name}" in unsupported:
            raise not_supported(f"{param}.{name}")
    for index, call in enumerate(message.tool_calls or ()):
        if call.type != "function":
            path = f"{param}.tool_calls[{index}].type"
            raise SchemaViolation(
                f"'{path}' must be 'function', not '{shown(call.type)}'", param=path
            )


def _check_part(part: Part, param: str, role: str, unsupported: frozenset[str]) -> None:
    if part.type not in _PARTS:
        raise SchemaViolation(
            f"'{param}.type' must be one of {', '.join(_PARTS)}, not '{shown(part.type)}'",
            param=f"{param}.type",
        )
    if f"content.{part.type}" in unsupported:
        raise not_supported(f"{param}.type")
    if part.type == "refusal" and role != "assistant":
        raise _wrong_role(f"{param}.type", role)
    for name in _PARTS:
        given = getattr(part, name) is not None
        if given and name != part.type:
            raise SchemaViolation(
                f"'{param}.{name}' doesn't belong to a part of type '{part.type}'",
                param=f"{param}.{name}",
            )
        if not given and name == part.type:
            raise SchemaViolation(f"'{param}.{name}' is required", param=f"{param}.{name}")


def _wrong_role(param: str, role: str) -> SchemaViolation:
    return SchemaViolation(f"'{param}' doesn't belong to a message of role '{role}'", param=param)
