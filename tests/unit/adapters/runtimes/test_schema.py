"""A schema is enforced or refused, never ignored; what is enforced is what JSON Schema means."""

import json
import time
from typing import Any

import jsonschema_rs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tiffin.adapters.runtimes.schema import Grammars, Schema, call_schema
from tiffin.errors import SchemaViolation

PARAM = "response_format.json_schema.schema"
DRAFT = "https://json-schema.org/draft/2020-12/schema"
GRAMMARS = Grammars()


def accepts(schema: Schema, answer: str) -> bool:
    """Whether an answer, as text, is one that the schema's grammar lets through."""
    witness = GRAMMARS.witness(GRAMMARS.compile(schema, PARAM))
    return witness.read(answer) and witness.complete()


def nested(depth: int) -> Schema:
    """An object in an object, so many times."""
    schema: Schema = {"type": "string"}
    for _ in range(depth):
        schema = {"type": "object", "properties": {"a": schema}, "required": ["a"]}
    return schema


NAMES = [f"p{n}" for n in range(500)]


def alternatives(count: int, properties: int, *, behind: bool = False) -> Schema:
    """One of so many objects, each with so many properties that may be left out."""
    choices = [
        {"type": "object", "properties": {f"{one}_{name}": {} for name in NAMES[:properties]}}
        for one in range(count)
    ]
    if not behind:
        return {"anyOf": choices}
    named = {f"d{number}": choice for number, choice in enumerate(choices)}
    return {"$defs": named, "anyOf": [{"$ref": f"#/$defs/{name}"} for name in named]}


@pytest.mark.parametrize("behind", [False, True], ids=["in place", "by reference"])
def test_many_alternatives_are_enforced_or_refused(behind: bool) -> None:
    assert accepts(alternatives(4, 60, behind=behind), '{"3_p7":1}')
    with pytest.raises(SchemaViolation, match="alternatives"):
        GRAMMARS.compile(alternatives(5, 100, behind=behind), PARAM)


def test_a_long_way_of_references_is_refused() -> None:
    chain = {f"d{n}": {"$ref": f"#/$defs/d{n + 1}"} for n in range(1500)}
    with pytest.raises(SchemaViolation):
        GRAMMARS.compile({"$defs": {**chain, "d1500": {}}, "$ref": "#/$defs/d0"}, PARAM)


@pytest.mark.parametrize(
    ("schema", "word"),
    [
        pytest.param({"type": "objectx"}, "objectx", id="unknown type"),
        pytest.param({"type": []}, "type", id="no type"),
        pytest.param({"type": "string", "nullable": True}, "nullable", id="foreign keyword"),
        pytest.param({"not": {"type": "string"}}, "not", id="not"),
        pytest.param({"if": {}, "then": {}}, "if", id="if"),
        pytest.param({"type": "array", "uniqueItems": True}, "uniqueItems", id="unique items"),
        pytest.param({"type": "array", "contains": {}}, "contains", id="contains"),
        pytest.param({"dependentRequired": {"a": ["b"]}}, "dependentRequired", id="dependent"),
        pytest.param({"$ref": "#/nope"}, "nope", id="reference to nothing"),
        pytest.param({"$ref": "https://example.org/s"}, "$ref", id="reference outside"),
        pytest.param({"$ref": "#"}, "no answer", id="endless reference"),
        pytest.param({"$defs": {"a": {"$ref": "#/$defs/a"}}, "$ref": "#/$defs/a"}, "", id="loop"),
        pytest.param({"type": "string", "pattern": "(?=x)y"}, "look-around", id="look-ahead"),
        pytest.param({"type": "string", "pattern": "("}, "regex", id="broken pattern"),
        pytest.param({"type": "string", "pattern": "(a)\\1"}, "backreferences", id="back"),
        pytest.param({"type": "string", "pattern": 7}, "pattern", id="pattern of a wrong type"),
        pytest.param({"type": "string", "format": "postcode"}, "postcode", id="unknown format"),
        pytest.param({"enum": []}, "enum", id="nothing to choose from"),
        pytest.param({"anyOf": [3]}, "3", id="no schema"),
        pytest.param({"properties": ["a"]}, "properties", id="properties in a list"),
        pytest.param({"required": [1]}, "required", id="required number"),
        pytest.param(
            {
                "properties": {"ab": {"type": "integer"}},
                "patternProperties": {"^a": {"minLength": 1}},
            },
            "beside",
            id="named and matched",
        ),
        pytest.param(
            {"allOf": [{"patternProperties": {"^a": {"type": "integer"}}}, {"type": "object"}]},
            "beside",
            id="merged and matched",
        ),
        pytest.param(
            {"patternProperties": {"^a": {"type": "integer"}}, "anyOf": [{"type": "object"}]},
            "beside",
            id="chosen and matched",
        ),
        pytest.param({"type": "integer", "minimum": 5, "maximum": 2}, "", id="unsatisfiable"),
        pytest.param({"type": "integer", "minimum": "5"}, "minimum", id="minimum as text"),
        pytest.param({"type": "integer", "minimum": True}, "minimum", id="minimum as boolean"),
        pytest.param({"oneOf": [{"type": "integer"}, {"type": "number"}]}, "oneOf", id="overlap"),
        pytest.param({"x-guidance": {"lenient": True}, "type": "object"}, "x-gu", id="options"),
        pytest.param({"$id": "https://example.org"}, "$id", id="another base"),
        pytest.param({"minLength": -1}, "minLength", id="negative length"),
    ],
)
def test_what_cannot_be_enforced_is_refused_by_name(schema: Schema, word: str) -> None:
    with pytest.raises(SchemaViolation, match="can't be enforced") as refused:
        GRAMMARS.compile(schema, PARAM)
    assert refused.value.param == PARAM
    assert word in refused.value.message
    assert "\n" not in refused.value.message


@pytest.mark.parametrize(
    "schema",
    [
        pytest.param({"type": "string", "pattern": "(" * 50_000 + ")" * 50_000}, id="parentheses"),
        pytest.param({"type": "array", "minItems": 10**9}, id="a billion items"),
        pytest.param({"type": "array", "maxItems": 10**9}, id="up to a billion items"),
        pytest.param({"type": "string", "maxLength": 10**9}, id="a billion letters"),
        pytest.param({"type": "integer", "multipleOf": 99_991}, id="a large prime"),
        pytest.param({"type": "integer", "maximum": 10**400}, id="a huge number"),
        pytest.param({"enum": [f"v{n}" for n in range(100_000)]}, id="many values"),
        pytest.param({"properties": {f"p{n}": {} for n in range(100_000)}}, id="many properties"),
        pytest.param({"properties": {f"p{n}": {} for n in range(500)}}, id="many that may come"),
        pytest.param({"anyOf": [{"type": "array", "maxItems": 900}] * 900}, id="many arrays"),
        pytest.param(nested(500), id="deep"),
        pytest.param(
            {
                "allOf": [
                    {"anyOf": [{"properties": {f"p{n}": {"type": t}}} for t in ("string", "null")]}
                    for n in range(24)
                ]
            },
            id="alternatives of alternatives",
        ),
    ],
)
def test_hostile_schemas_are_refused_fast(schema: Schema) -> None:
    began = time.process_time()
    with pytest.raises(SchemaViolation):
        GRAMMARS.compile(schema, PARAM)
    assert time.process_time() - began < 2


@pytest.mark.parametrize(
    ("schema", "fits", "doesnt"),
    [
        pytest.param({"type": "object"}, '{"a": [1, {"b": null}]}', '[{"a": 1}]', id="object"),
        pytest.param({"type": "object"}, "{}", '{"a": 1', id="cut off"),
        pytest.param(
            {"properties": {name: {} for name in NAMES}, "required": NAMES} | {"type": "object"},
            "{" + ", ".join(f'"{name}": 1' for name in NAMES) + "}",
            "{}",
            id="many that must come",
        ),
        pytest.param({"enum": ["x", 1]}, "1", '"y"', id="enum"),
        pytest.param({"const": {"a": "é😀"}}, '{"a": "é😀"}', '{"a": "e"}', id="characters"),
        pytest.param({"type": "string", "pattern": "^a+$"}, '"aa"', '"ab"', id="pattern"),
        pytest.param({"type": "string", "format": "date"}, '"2024-02-29"', '"soon"', id="date"),
        pytest.param({"type": "integer", "multipleOf": 7}, "21", "22", id="multiple"),
        pytest.param(nested(20), '{"a":' * 20 + '"x"' + "}" * 20, '{"a": {}}', id="nested"),
        pytest.param(
            {"$defs": {"n": {"type": ["null", "array"], "items": {"$ref": "#/$defs/n"}}}}
            | {"$ref": "#/$defs/n"},
            "[[null], []]",
            "[1]",
            id="recursive",
        ),
        pytest.param(
            {"title": "T", "default": 1, "$schema": DRAFT, "type": "boolean"},
            "true",
            "1",
            id="notes",
        ),
    ],
)
def test_an_answer_is_told_from_what_is_none(schema: Schema, fits: str, doesnt: str) -> None:
    assert accepts(schema, fits)
    assert not accepts(schema, doesnt)


@pytest.mark.parametrize(
    "pattern", ["(((a{9}){9}){9}){9}" * 50, "(a*)*" * 100, ".*" * 200, "(a|b)*a(a|b){300}"]
)
def test_an_expensive_pattern_costs_little(pattern: str) -> None:
    began = time.process_time()
    accepts({"type": "string", "pattern": pattern}, '"' + "a" * 1000 + '"')
    assert time.process_time() - began < 2


def test_an_answer_may_come_in_any_pieces() -> None:
    witness = GRAMMARS.witness(GRAMMARS.compile({"type": "object"}, PARAM))
    assert all(witness.read(letter) for letter in '{"ключ": "😀"}')
    assert witness.complete()
    assert not witness.read("!")


def test_a_call_is_one_tools_name_with_its_own_arguments() -> None:
    city = {"type": "object", "properties": {"c": {"$ref": "#/$defs/c"}}, "required": ["c"]}
    city["$defs"] = {"c": {"enum": ["Pune", "Delhi"]}}
    calls = call_schema([("weather", city), ("stop", None)])
    assert accepts(calls, '{"name": "weather", "arguments": {"c": "Pune"}}')
    assert accepts(calls, '{"name": "stop", "arguments": {"anything": 1}}')
    assert not accepts(calls, '{"name": "weather", "arguments": {"c": "Rome"}}')
    assert not accepts(calls, '{"name": "other", "arguments": {}}')


KEYS = st.sampled_from(["a", "b", "ab"])
WORDS = st.sampled_from(["", "a", "ab", "abc", "xy", "12", "é", '"q\\', "2024-02-30", "1.2.3.4"])
LEAVES: st.SearchStrategy[Any] = st.one_of(
    st.fixed_dictionaries(
        {"type": st.just("string")},
        optional={
            "minLength": st.integers(0, 3),
            "maxLength": st.integers(2, 5),
            "pattern": st.sampled_from(["^a", "b$", "^[a-c]+$", "a.c", "x|y", "\\d{2}"]),
        },
    ),
    st.fixed_dictionaries({"format": st.sampled_from(["date", "email", "uuid", "ipv4", "uri"])}),
    st.fixed_dictionaries(
        {"type": st.sampled_from(["integer", "number"])},
        optional={
            "minimum": st.integers(-9, 9),
            "maximum": st.integers(-9, 30),
            "exclusiveMaximum": st.sampled_from([7, 12.5]),
            "multipleOf": st.sampled_from([2, 0.5]),
        },
    ),
    st.fixed_dictionaries({"type": st.sampled_from(["boolean", "null", ["string", "null"]])}),
    st.fixed_dictionaries({"enum": st.lists(st.none() | WORDS, min_size=1, max_size=3)}),
    st.fixed_dictionaries({"const": st.integers(-3, 3) | WORDS | st.just([1, None])}),
    st.fixed_dictionaries({}, optional={"minLength": st.just(2), "required": st.just(["a"])}),
)


def with_parts(schemas: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    """Schemas made of schemas."""
    objects = {
        "properties": st.dictionaries(KEYS, schemas, max_size=3),
        "required": st.lists(KEYS, max_size=2, unique=True),
        "additionalProperties": st.booleans() | schemas,
        "patternProperties": st.dictionaries(st.sampled_from(["^a", "b$"]), schemas, max_size=1),
        "maxProperties": st.integers(1, 3),
    }
    arrays = {
        "items": st.booleans() | schemas,
        "prefixItems": st.lists(schemas, min_size=1, max_size=2),
        "minItems": st.integers(0, 2),
        "maxItems": st.integers(1, 3),
    }
    some = st.lists(schemas, min_size=1, max_size=3)
    return st.one_of(
        st.fixed_dictionaries({"type": st.just("object")}, optional=objects),
        st.fixed_dictionaries({"type": st.just("array")}, optional=arrays),
        st.fixed_dictionaries({"anyOf": some}),
        st.fixed_dictionaries({"oneOf": some}),
        st.fixed_dictionaries({"allOf": some}),
        st.builds(lambda one, other: {**one, **other}, LEAVES, schemas),
    )


SCHEMAS = st.recursive(LEAVES, with_parts, max_leaves=6)
VALUES: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.integers(-9, 30) | st.sampled_from([0.5, 2.25, -3.5]) | WORDS,
    lambda values: st.lists(values, max_size=3) | st.dictionaries(KEYS, values, max_size=3),
    max_leaves=6,
)


@given(SCHEMAS, st.lists(VALUES, min_size=1, max_size=8))
def test_what_passes_satisfies_the_schema(schema: Schema, values: list[Any]) -> None:
    try:
        GRAMMARS.compile(schema, PARAM)
    except SchemaViolation:
        return
    oracle = jsonschema_rs.Draft202012Validator(schema, validate_formats=True)
    passed = [v for v in values if accepts(schema, json.dumps(v, ensure_ascii=False))]
    assert [value for value in passed if not oracle.is_valid(value)] == []
