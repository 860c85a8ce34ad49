"""JSON schemas that an answer must follow: what can't be enforced is refused, the rest is watched.

The engine compiles schemas with llguidance, and where it can't it goes on without, in silence. So
a schema is first held against a closed list of keywords and bounds, then compiled here by the
same library with less fuel than the engine has, and the answer is read along by a `Witness`.
"""

import json
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, Final, NoReturn
from urllib.parse import unquote

import msgspec

from tiffin.adapters.runtimes.endless import endless
from tiffin.errors import SchemaViolation

MAX_NODES: Final = 2000
MAX_DEPTH: Final = 32
MAX_VALUES: Final = 2000
# All that may come next must fit in a row of the engine's parser, which fails on some 450.
MAX_OPTIONAL: Final = 300
MAX_ITEMS: Final = 10_000
MAX_LENGTH: Final = 100_000
MAX_PATTERN_BYTES: Final = 2000
MAX_DIVISOR: Final = 1000
MAX_NUMBER: Final = 1e15

_COMPILE_FUEL: Final = 500_000
_GRAMMAR_SYMBOLS: Final = 100_000
_TYPES = ("object", "array", "string", "number", "integer", "boolean", "null")
# Keywords that ask nothing of an answer.
_NOTES = frozenset(
    [
        *("title", "description", "default", "examples", "deprecated", "readOnly", "writeOnly"),
        *("$comment", "$schema", "discriminator"),
    ]
)

Schema = dict[str, Any]


def object_schema() -> Schema:
    """The schema of any JSON object."""
    return {"type": "object"}


def call_schema(tools: list[tuple[str, Schema | None]]) -> Schema:
    """The schema of one call: a tool's `name` and its `arguments`, by that tool's own schema."""
    calls = []
    definitions = {}
    for index, (name, parameters) in enumerate(tools):
        place = f"tool{index}"
        definitions[place] = moved(parameters or object_schema(), f"#/$defs/{place}")
        properties = {"name": {"const": name}, "arguments": {"$ref": f"#/$defs/{place}"}}
        calls.append(
            {
                "type": "object",
                "properties": properties,
                "required": ["name", "arguments"],
                "additionalProperties": False,
            }
        )
    return {"$defs": definitions, "anyOf": calls}


def moved(schema: Any, place: str) -> Any:
    """A schema whose references to its own root lead to `place` instead."""
    if isinstance(schema, list):
        return [moved(one, place) for one in schema]
    if not isinstance(schema, dict):
        return schema
    return {
        key: place + value.removeprefix("#")
        if key == "$ref" and isinstance(value, str) and value.startswith("#")
        else moved(value, place)
        for key, value in schema.items()
    }


class Grammars:
    """Turns schemas into the engine's grammars, and gives each answer its witness."""

    def __init__(self) -> None:
        # Imported here: three megabytes that only schemas need.
        import llguidance

        self._library: Any = llguidance
        self._bytes: Any = llguidance.LLTokenizer("byte")

    def compile(self, schema: Schema, param: str) -> str:
        """The grammar of a schema; raises `SchemaViolation` where it can't be enforced."""
        _check(schema, param)
        _check_openings(schema, param)
        if place := endless(schema, lambda name: _at(schema, name)):
            _refuse(param, f"'{place}' leads back to itself, so that no answer ever ends there")
        grammar = f"%llguidance {{}}\nstart: %json {msgspec.json.encode(schema).decode()}"
        limits = self._library.LLParserLimits(
            initial_lexer_fuel=_COMPILE_FUEL, max_grammar_size=_GRAMMAR_SYMBOLS
        )
        matcher = self._library.LLMatcher(self._bytes, grammar, log_level=0, limits=limits)
        if not matcher.is_error():
            matcher.compute_bitmask()  # an endless reference is found only now
        if matcher.is_error():
            _refuse(param, _first_words(matcher.get_error()))
        return grammar

    def witness(self, grammar: str) -> "Witness":
        """A witness of one answer under a grammar that `compile` gave."""
        return Witness(self._library.LLMatcher(self._bytes, grammar, log_level=0))


class Witness:
    """Reads an answer along and says whether it keeps to its grammar."""

    def __init__(self, matcher: Any) -> None:
        self._matcher = matcher

    def read(self, text: str) -> bool:
        """Whether the answer may go on with this text."""
        return bool(self._matcher.consume_tokens(list(text.encode())))

    def complete(self) -> bool:
        """Whether the answer may end here."""
        return bool(self._matcher.is_accepting())


def _first_words(error: str) -> str:
    """What a compiler's long message says, in one line."""
    if error.startswith("NoExtension"):
        return "no answer can satisfy it"
    reason = error.rpartition("JSON schema: ")[2]
    for tail in ("\n   1 | ", "\n<state>"):
        reason = reason.partition(tail)[0]
    return " ".join(reason.split())[:300] or "it can't be compiled"


def _refuse(param: str, reason: str) -> NoReturn:
    raise SchemaViolation(f"'{param}' can't be enforced: {reason}", param=param)


def _check(schema: Schema, param: str) -> None:
    """Raise `SchemaViolation` for a keyword that isn't enforced and for what has no bound."""
    spent: Counter[str] = Counter()
    patterned = merged = False
    waiting: list[tuple[Any, int]] = [(schema, 0)]
    while waiting:
        node, depth = waiting.pop()
        if isinstance(node, bool):
            continue
        if not isinstance(node, dict):
            _refuse(param, f"a schema must be an object or a boolean, not {_shown(node)}")
        if depth > MAX_DEPTH:
            _refuse(param, f"it is nested over {MAX_DEPTH} deep")
        spent["schemas"] += 1
        patterned |= bool(node.get("patternProperties"))
        merged |= _merges(node)
        if patterned and merged:
            _refuse(param, "'patternProperties' beside other demands on an object isn't supported")
        if _optional(node) > MAX_OPTIONAL:
            _refuse(param, f"an object has over {MAX_OPTIONAL} properties that aren't required")
        for keyword in (name for name in node if name not in _NOTES):
            value = node[keyword]
            rule = _rule(keyword, value, param)
            spent[rule.spends] += rule.price(value)
            waiting += ((inner, depth + 1) for inner in rule.inside(value))
        for what, most in _BUDGET.items():
            if spent[what] > most:
                _refuse(param, f"it has over {most} {what}")


def _check_openings(schema: Schema, param: str) -> None:
    """Raise where more ways to go on meet at one place than the engine's parser has room for."""
    known: dict[int, int] = {}

    def openings(node: Any) -> int:
        if not isinstance(node, dict):
            return 1
        if id(node) not in known:
            known[id(node)] = 1  # a reference that leads back here adds nothing
            lists = [node.get(name) for name in ("anyOf", "oneOf", "allOf")]
            inner = [one for found in lists if isinstance(found, list) for one in found]
            if isinstance(node.get("$ref"), str):
                inner.append(_at(schema, node["$ref"]))
            known[id(node)] = 1 + _optional(node) + sum(openings(one) for one in inner)
        return known[id(node)]

    waiting: list[Any] = [schema]
    while waiting:
        node = waiting.pop()
        if isinstance(node, dict):
            try:
                over = openings(node) > MAX_OPTIONAL
            except RecursionError:
                _refuse(param, "its references lead too far")
            if over:
                _refuse(param, f"over {MAX_OPTIONAL} alternatives and optional properties meet")
            waiting += node.values()
        elif isinstance(node, list):
            waiting += node


def _at(schema: Any, place: str) -> Any:
    """What a reference leads to, or None: the compiler says so where it leads nowhere."""
    for name in place.removeprefix("#").strip("/").split("/") if place != "#" else []:
        name = unquote(name).replace("~1", "/").replace("~0", "~")
        if isinstance(schema, list) and name.isdigit() and int(name) < len(schema):
            schema = schema[int(name)]
        elif isinstance(schema, dict) and name in schema:
            schema = schema[name]
        else:
            return None
    return schema


def _merges(node: Schema) -> bool:
    """Whether several demands meet on one object: then the library forgets those of patterns."""
    own = node.keys() - _NOTES - {"$defs", "definitions"}
    meets = own & {"anyOf", "oneOf", "$ref"}
    named_and_matched = node.get("properties") and node.get("patternProperties")
    return "allOf" in own or bool(meets and len(own) > 1) or bool(named_and_matched)


def _optional(node: Schema) -> int:
    """How many properties an object may have or not, wherever they have the right form."""
    properties, required = node.get("properties"), node.get("required", [])
    if not (isinstance(properties, dict) and _is_names(required)):
        return 0
    return len(properties.keys() - set(required))


def _rule(keyword: str, value: Any, param: str) -> "_Rule":
    rule = _RULES.get(keyword)
    if rule is None:
        _refuse(param, f"the keyword {_shown(keyword)} is not supported")
    if not rule.fits(value):
        _refuse(param, f"'{keyword}' must be {rule.what}, not {_shown(value)}")
    return rule


@dataclass(slots=True, frozen=True)
class _Rule:
    """One keyword: what its value must be, the schemas inside, and what it takes of a budget."""

    what: str
    fits: Callable[[Any], bool]
    inside: Callable[[Any], Iterable[Any]] = lambda value: ()
    spends: str = "schemas"
    price: Callable[[Any], int] = lambda value: 0


def _shown(value: Any) -> str:
    text = json.dumps(value, default=str, ensure_ascii=False)
    return text if len(text) <= 60 else text[:60] + "…"


def _is_whole(value: Any, most: int) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= most


def _is_divisor(value: Any) -> bool:
    if not _is_limit(value) or value <= 0:
        return False
    digits = Decimal(str(value)).normalize().as_tuple().digits
    return int("".join(map(str, digits))) <= MAX_DIVISOR


def _is_limit(value: Any) -> bool:
    return (
        isinstance(value, int | float) and not isinstance(value, bool) and abs(value) <= MAX_NUMBER
    )


def _is_type(value: Any) -> bool:
    names = value if isinstance(value, list) else [value]
    return bool(names) and all(isinstance(name, str) and name in _TYPES for name in names)


def _is_names(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(name, str) for name in value)


def _is_text(value: Any) -> bool:
    return isinstance(value, str)


def _is_inner_place(value: Any) -> bool:
    return isinstance(value, str) and value.startswith("#")


def _is_full_list(value: Any) -> bool:
    return isinstance(value, list) and bool(value)


def _is_object(value: Any) -> bool:
    return isinstance(value, dict)


def _anything(value: Any) -> bool:
    return True


def _values(value: Any) -> Iterable[Any]:
    inner: Iterable[Any] = value.values()
    return inner


def _bytes(value: Any) -> int:
    return sum(len(text.encode()) for text in ([value] if isinstance(value, str) else value))


_SCHEMA = _Rule("a schema", _anything, lambda value: (value,))
_LIST = _Rule("a list of schemas", _is_full_list, iter)
_NAMED = _Rule("an object of schemas", _is_object, _values)
_COUNT = _Rule(
    f"a whole number from 0 to {MAX_ITEMS}",
    lambda value: _is_whole(value, MAX_ITEMS),
    spends="items counted",
    price=int,
)
_LENGTH = _Rule(
    f"a whole number from 0 to {MAX_LENGTH}", lambda value: _is_whole(value, MAX_LENGTH)
)
_LIMIT = _Rule(f"a number within ±{MAX_NUMBER:g}", _is_limit)

_BUDGET = {
    "schemas": MAX_NODES,
    "values": MAX_VALUES,
    "items counted": MAX_ITEMS,
    "bytes of patterns": MAX_PATTERN_BYTES,
}
_RULES = {
    "type": _Rule(f"one or more of {', '.join(_TYPES)}", _is_type),
    "enum": _Rule("a list of values", _is_full_list, spends="values", price=len),
    "const": _Rule("a value", _anything),
    "$ref": _Rule("a place inside the schema, like #/$defs/one", _is_inner_place),
    "$defs": _NAMED,
    "definitions": _NAMED,
    "anyOf": _LIST,
    "oneOf": _LIST,
    "allOf": _LIST,
    "properties": _NAMED,
    "patternProperties": _Rule(
        "an object of schemas", _is_object, _values, spends="bytes of patterns", price=_bytes
    ),
    "additionalProperties": _SCHEMA,
    "required": _Rule("a list of names", _is_names, spends="values", price=len),
    "minProperties": _COUNT,
    "maxProperties": _COUNT,
    "items": _SCHEMA,
    "prefixItems": _LIST,
    "minItems": _COUNT,
    "maxItems": _COUNT,
    "minLength": _LENGTH,
    "maxLength": _LENGTH,
    "pattern": _Rule("a regular expression", _is_text, spends="bytes of patterns", price=_bytes),
    "format": _Rule("the name of a format", _is_text),
    "minimum": _LIMIT,
    "maximum": _LIMIT,
    "exclusiveMinimum": _LIMIT,
    "exclusiveMaximum": _LIMIT,
    "multipleOf": _Rule(
        f"above 0 and at most {MAX_DIVISOR} without its decimal point", _is_divisor
    ),
}
