"""What a decoder found wrong, told in our words with the parameter's path in OpenAI's form."""

import re
from difflib import get_close_matches
from functools import cache
from typing import Any

import msgspec
from msgspec import inspect

from tiffin.errors import InvalidRequest, MalformedBody, SchemaViolation, UnknownParameter

MAX_SHOWN = 80

_WORDS = {
    "str": "a string",
    "int": "an integer",
    "float": "a number",
    "bool": "a boolean",
    "array": "an array",
    "object": "an object",
    "null": "null",
}
_BOUNDS = {">=": "at least", "<=": "at most", ">": "more than", "<": "less than"}

_PLACE = re.compile(r"(?s)(.*?)(?: - at (`key` in )?`(\$[A-Za-z0-9_.\[\]]*)`)?")
_MISSING = re.compile(r"Object missing required field `(\w+)`")
_UNKNOWN = re.compile(r"(?s)Object contains unknown field `(.*)`")
_EXPECTED = re.compile(r"(?s)Expected `([^`]*)`(?:, got `([^`]*)`)?(.*)")
_LENGTH = re.compile(r" of length ([<>]=?) (\d+)")
_BOUND = re.compile(r" ([<>]=?) (\S+)")
_PATTERN = re.compile(r" matching regex '(.*)'")
# What a pattern ends with since Python's `$` lets a newline follow.
_NO_NEWLINE = r"(?!\\n)"
_shape = cache(inspect.type_info)
# An escape of half a surrogate pair: a high half without its low one, or a low one alone.
_HALF_PAIR = re.compile(
    rb"(?<!\\)(?:\\\\)*\\u[dD](?:[89abAB][0-9a-fA-F]{2}(?!\\u[dD][c-fC-F])|[c-fC-F])"
)


def shown(value: str) -> str:
    """A value of the request, short enough for a message."""
    return value if len(value) <= MAX_SHOWN else value[: MAX_SHOWN - 1] + "…"


def malformed(error: msgspec.DecodeError, body: bytes) -> MalformedBody:
    """Why bytes are not JSON."""
    if not body.strip():
        return MalformedBody("the body is empty; send a JSON object")
    try:
        body.decode()
    except UnicodeDecodeError as wrong:
        return MalformedBody(f"the body is not UTF-8 (byte {wrong.start})")
    detail = str(error).removeprefix("JSON is malformed: ")
    if "surrogate" in detail or ("truncated" in detail and _HALF_PAIR.search(body[-32:])):
        return MalformedBody("the body has half of a surrogate pair (a \\ud800 to \\udfff escape)")
    detail = detail.replace("Input data was truncated", "it ends too early")
    return MalformedBody(f"the body is not JSON: {detail}")


def violation(error: msgspec.ValidationError, cls: type[msgspec.Struct]) -> InvalidRequest:
    """Why JSON is not a request of this class."""
    text, where, place = _PLACE.fullmatch(str(error)).groups("")  # type: ignore[union-attr]
    param = place.removeprefix("$").removeprefix(".").removesuffix("[...]")
    if missing := _MISSING.fullmatch(text):
        path = f"{param}.{missing[1]}" if param else missing[1]
        return SchemaViolation(f"'{path}' is required", param=path)
    if unknown := _UNKNOWN.fullmatch(text):
        return _unknown(unknown[1], param, cls)
    name = f"'{param}'" if param else "the body"
    if where:
        name = f"every key of {name}"
    elif place.endswith("[...]"):
        name = f"every value of {name}"
    return SchemaViolation(f"{name} {_demand(text)}", param=param or None)


def _demand(text: str) -> str:
    expected = _EXPECTED.fullmatch(text)
    if expected is None:
        return "is out of range" if "out of range" in text else f"is wrong: {shown(text)}"
    what = f"must be {_either(expected[1])}"
    return f"{what}, not {_either(expected[2])}" if expected[2] else what + _constraint(expected[3])


def _unknown(field: str, param: str, cls: type[msgspec.Struct]) -> UnknownParameter:
    name = shown(field)
    near = get_close_matches(name, _fields_at(cls, param), n=1)
    hint = f"; did you mean '{near[0]}'?" if near else ""
    path = f"{param}.{name}" if param else name
    return UnknownParameter(f"there is no parameter '{path}'{hint}", param=path)


def _fields_at(cls: type[msgspec.Struct], param: str) -> list[str]:
    """The names that the object at this path may have."""
    node: Any = _shape(cls)
    for step in re.findall(r"\w+|\[\d+\]", param):
        struct = _only(node, inspect.StructType)
        items = _only(node, inspect.ListType)
        if step.startswith("["):
            node = items.item_type if items else None
        elif struct:
            node = next((f.type for f in struct.fields if f.encode_name == step), None)
    struct = _only(node, inspect.StructType)
    return [field.encode_name for field in struct.fields] if struct else []


def _only(node: Any, kind: Any) -> Any:
    """This type, or the one of a union, that is of this kind."""
    options = node.types if isinstance(node, inspect.UnionType) else (node,)
    return next((option for option in options if isinstance(option, kind)), None)


def _either(types: str) -> str:
    words = [_WORDS.get(word, word) for word in types.split(" | ")]
    return words[0] if len(words) == 1 else f"{', '.join(words[:-1])} or {words[-1]}"


def _constraint(rest: str) -> str:
    if length := _LENGTH.fullmatch(rest):
        return f" of length {_BOUNDS[length[1]]} {length[2]}"
    if bound := _BOUND.fullmatch(rest):
        return f" of {_BOUNDS[bound[1]]} {bound[2].removesuffix('.0')}"
    if pattern := _PATTERN.fullmatch(rest):
        return f" that matches {pattern[1].removesuffix(_NO_NEWLINE)}"
    return ""
