"""Bytes to one typed request: strict, closed, and fast enough for every request.

Duplicate keys are refused, because two readers of one body must never see two requests. The
check is exact and costs two counts: a JSON text has one colon for every member of an object, plus
those inside its strings. The canonical re-encoding of the typed request has the same strings, so
both texts have equally many colons unless a member was dropped, as a duplicate is. (`\\u003a` is
a colon that only the re-encoding shows; a body with such an escape is read again instead.)
"""

import json
import re
from math import isfinite
from typing import Any, Generic, TypeVar

import msgspec

from tiffin.dialects.faults import malformed, shown, violation
from tiffin.errors import MalformedBody

# From this size on a body's objects and arrays are counted before any of them is built.
COUNTED_FROM_BYTES = 65_536
MAX_CONTAINERS = 50_000

_ENCODER = msgspec.json.Encoder()
# A string matches closed or not, so that hostile quotes cost one pass.
_STRING_OR_OPENING = re.compile(rb'"[^"\\]*+(?:\\.[^"\\]*+)*+(?:"|\\?\Z)|[\[{]', re.DOTALL)


R = TypeVar("R", bound=msgspec.Struct)


class Reader(Generic[R]):
    """Reads bodies of one class of requests."""

    def __init__(self, cls: type[R]) -> None:
        self._cls = cls
        self._decoder = msgspec.json.Decoder(cls)

    def read(self, body: bytes) -> tuple[R, bytes]:
        """The request that `body` spells, and its canonical spelling.

        Raises `MalformedBody`, `SchemaViolation` or `UnknownParameter` with the parameter's path.
        """
        if len(body) > COUNTED_FROM_BYTES:
            _refuse_too_many_containers(body)
        try:
            request = self._decode(body)
            canonical = _ENCODER.encode(request)
            if body.count(b":") != canonical.count(b":") or b"\\u003" in body:
                _tree(body)
        except msgspec.ValidationError as error:
            raise violation(error, self._cls) from None
        except msgspec.DecodeError as error:
            raise malformed(error, body) from None
        except RecursionError:
            raise MalformedBody("the body is nested too deeply") from None
        return request, canonical

    def _decode(self, body: bytes) -> R:
        try:
            return self._decoder.decode(body)
        except msgspec.ValidationError as error:
            if "got `float`" not in str(error):
                raise
            wrong = error
        # To JSON Schema, and to clients that only have one kind of number, 1.0 is an integer.
        try:
            whole = _ENCODER.encode(_tree(body))
        except ValueError:  # the rest isn't JSON either; what was found first is said
            raise wrong from None
        return self._decoder.decode(whole)


def _tree(body: bytes) -> Any:
    """The exact, slow reading: raises `MalformedBody` where an object has a key twice."""
    return json.loads(
        body, object_pairs_hook=_unique, parse_float=_number, parse_constant=_refuse_constant
    )


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        seen = set()
        for name, _ in pairs:
            if name in seen:
                raise MalformedBody(f"the key '{shown(name)}' is given twice in one object")
            seen.add(name)
    return found


def _number(text: str) -> int | float:
    value = float(text)
    if not isfinite(value):
        raise ValueError("out of range")
    return int(value) if value.is_integer() else value


def _refuse_constant(name: str) -> None:
    raise ValueError(f"{name} is not JSON")


def _refuse_too_many_containers(body: bytes) -> None:
    """A built object costs many times its two bytes, so their number is bounded like the bytes."""
    if body.count(b"{") + body.count(b"[") <= MAX_CONTAINERS:
        return
    containers = 0
    for token in _STRING_OR_OPENING.finditer(body):
        containers += token[0] in (b"{", b"[")
        if containers > MAX_CONTAINERS:
            raise MalformedBody(f"the body has more than {MAX_CONTAINERS} objects and arrays")
