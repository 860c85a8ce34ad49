"""What is wrong with a request's header, told with the input, what was expected, what was given."""

import json
import re
from collections.abc import Iterable
from typing import Any

import msgspec

from tiffin.dialects.oip.messages import KINDS, Datatype, InferRequest, Parameters
from tiffin.errors import InvalidRequest, MalformedBody, SchemaViolation

# A larger header isn't read a second time only to show what was given.
MAX_EXPLAINED_BYTES = 65_536
# Beside its data a header of so many bytes isn't one that anybody means.
MAX_READ_AGAIN_BYTES = 262_144
MAX_SHOWN = 60
DATATYPES = ", ".join(Datatype.__args__)  # type: ignore[attr-defined]

_STEP = re.compile(r"\.?(\w+)|\[(\d+)\]")
_WORDS = {"`int`": "an integer", "`str`": "a string", "`array`": "a list", "`object`": "an object"}
_KINDS = {bool: "true or false", int: "an integer", str: "a string"}
_ROOT = re.compile(r"Expected `object`, got (`\w+`)")
_EXPECTED = re.compile(r"Expected (`[^`]*`)(?: of length)?(.*?)(?:, got `[^`]*`)?$")


def shown(value: object) -> str:
    """A value of the request, short enough for a message."""
    text = value if isinstance(value, str) else json.dumps(value, default=str)
    text = text if len(text) <= MAX_SHOWN else text[: MAX_SHOWN - 1] + "…"
    return f"'{text}'" if isinstance(value, str) else text


def explained(error: SchemaViolation, header: bytes) -> SchemaViolation:
    """The same fault with the value that was given, and the name of its input or output."""
    path = error.param or ""
    if not path and (root := _ROOT.match(error.message)):
        given = _WORDS.get(root[1], root[1])
        return SchemaViolation(f"the body: expected an object, given {given}")
    if not path or len(header) > MAX_EXPLAINED_BYTES:
        return error
    message = error.message.removeprefix(f"{path}: ")
    try:
        value, tensor = _look(msgspec.json.decode(header), path)
    except (msgspec.DecodeError, RecursionError, LookupError, TypeError):
        return error
    if message.startswith("Invalid enum value"):
        expected = f"one of {DATATYPES}"
    elif found := _EXPECTED.match(message):
        word = _WORDS.get(found[1], found[1].strip("`").replace("|", "or"))
        expected = word + found[2].replace(">=", "of at least").replace("<=", "of at most")
    else:
        return SchemaViolation(f"{path}{tensor}: {message}", param=path)
    return SchemaViolation(f"{path}{tensor}: expected {expected}, given {shown(value)}", param=path)


def refuse_duplicates(request: InferRequest, body: bytes, end: int) -> None:
    """Raise `MalformedBody` where an object of the header has a key twice.

    Two readers of one body must never see two requests. The check is exact and costs a count: a
    JSON text has one colon for every member of an object, plus those inside its strings. Only
    where the decoded request doesn't account for all of them is the text read again.
    """
    there = body.count(b":", 0, end)
    if there != _colons(request) or body.find(b"\\u003", 0, end) >= 0:
        text = _without_numbers(request, body[:end])
        if len(text) > MAX_READ_AGAIN_BYTES:
            raise MalformedBody("the header has a key twice, or too much beside its tensors' data")
        _read_again(text)


def _colons(request: InferRequest) -> int:
    """How many colons the text has, if what has its default's value was left out."""
    count = 1 + bool(request.id) + request.id.count(":") + bool(request.outputs)
    if request.parameters:
        count += _colons_of(request.parameters)
    for tensor in request.inputs:
        count += 3 + tensor.name.count(":")
        data = memoryview(tensor.data)
        if data.nbytes:
            count += 1
            if tensor.datatype == "BYTES":
                count += data.tobytes().count(b":")
        if tensor.parameters:
            count += _colons_of(tensor.parameters)
    for output in request.outputs:
        count += 1 + output.name.count(":")
        if output.parameters:
            count += _colons_of(output.parameters)
    return count


def _colons_of(parameters: dict[str, Any]) -> int:
    count = 1 + len(parameters)
    for name, value in parameters.items():
        count += name.count(":") + (value.count(":") if isinstance(value, str) else 0)
    return count


def _without_numbers(request: InferRequest, header: bytes) -> bytes:
    """The header with each tensor's data cut to a 0, so that its size doesn't matter any more."""
    parts, at = [], 0
    for tensor in request.inputs:
        data = bytes(tensor.data)
        found = header.find(data, at) if data else -1
        if found >= 0:
            parts += [header[at:found], b"0"]
            at = found + len(data)
    return b"".join([*parts, header[at:]])


def _read_again(text: bytes) -> None:
    try:
        json.loads(text, object_pairs_hook=_unique, parse_int=float, parse_constant=float)
    except RecursionError:
        raise MalformedBody("the body is nested too deeply") from None
    except ValueError as error:
        raise MalformedBody(f"the body isn't JSON that can be read: {error}") from None


def _unique(pairs: Iterable[tuple[str, Any]]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name, value in pairs:
        if name in found:
            raise MalformedBody(f"the key {shown(name)} is given twice in one object")
        found[name] = value
    return found


def _look(tree: Any, path: str) -> tuple[Any, str]:
    """The value at a path such as `inputs[0].shape[1]`, and ` ('name')` of the tensor around it."""
    tensor = ""
    for step in _STEP.finditer(path):
        tree = tree[step[1]] if step[1] else tree[int(step[2])]
        if isinstance(tree, dict) and isinstance(tree.get("name"), str):
            tensor = f" ({shown(tree['name'])})"
    return tree, tensor


def check_kinds(where: str, parameters: Parameters) -> None:
    """Raise `SchemaViolation` where a parameter that is known has a value of another kind."""
    for name, value in parameters.items():
        kinds = KINDS.get(name)
        if kinds is not None and type(value) not in kinds:
            expected = " or ".join(_KINDS[kind] for kind in kinds)
            raise refused(f"{where}.{name}", f"expected {expected}, given {shown(value)}")


def refused(param: str, message: str) -> InvalidRequest:
    """A value that no model could take."""
    return SchemaViolation(f"{param}: {message}", param=param)
