"""Schemas whose answers can't end are told by their place, and only those."""

import time
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tiffin.adapters.runtimes.endless import endless
from tiffin.adapters.runtimes.schema import Grammars, Schema, _at, call_schema
from tiffin.errors import SchemaViolation

LOOP: Schema = {"$ref": "#"}
NODE = {"$ref": "#/$defs/node"}
INTEGER = {"type": "integer"}


def found(schema: Schema) -> str:
    return endless(schema, lambda name: _at(schema, name))


def thing(*required: str, **properties: Any) -> Schema:
    return {"type": "object", "properties": properties, "required": list(required)}


@pytest.mark.parametrize(
    ("schema", "place"),
    [
        pytest.param(thing("a", a=LOOP), "#/properties/a", id="a required self"),
        pytest.param(thing("a", a=INTEGER, b=thing("c", c=NODE)) | {
            "$defs": {"node": thing("next", next=NODE)}
        }, "#/properties/b/properties/c", id="where it may be left out"),
        pytest.param(thing("a", a={"anyOf": [LOOP, thing("b", b=LOOP)]}),
                     "#/properties/a/anyOf/0", id="all alternatives"),
        pytest.param({"type": "array", "items": LOOP, "minItems": 1}, "#/items", id="items"),
        pytest.param({"type": "array", "prefixItems": [INTEGER, LOOP], "minItems": 2},
                     "#/prefixItems/1", id="first items"),
        pytest.param({"allOf": [thing("a", a=LOOP)]}, "#/allOf/0/properties/a", id="all of"),
        pytest.param({"type": "object", "additionalProperties": LOOP, "required": ["x"]},
                     "#/additionalProperties", id="any name"),
        pytest.param({"type": "object", "additionalProperties": LOOP, "minProperties": 1},
                     "#/additionalProperties", id="any names"),
        pytest.param(thing("a", a=NODE) | {"$defs": {
            "node": thing("b", b={"$ref": "#/$defs/other"}),
            "other": thing("c", c=NODE),
        }}, "#/properties/a", id="by way of another"),
    ],
)  # fmt: skip
def test_what_never_ends_is_told_by_its_place(schema: Schema, place: str) -> None:
    assert found(schema) == place
    with pytest.raises(SchemaViolation, match="no answer ever ends") as refused:
        Grammars().compile(schema, "response_format")
    assert f"'{place}'" in refused.value.message


@pytest.mark.parametrize(
    "schema",
    [
        pytest.param(thing(a=LOOP), id="may be left out"),
        pytest.param(thing("a", a={"anyOf": [LOOP, {"type": "null"}]}), id="or null"),
        pytest.param({"type": ["object", "null"], "properties": {"a": LOOP}, "required": ["a"]},
                     id="or nothing"),
        pytest.param({"type": "array", "items": LOOP}, id="an empty array"),
        pytest.param(thing("a", a={"type": "array", "items": LOOP, "maxItems": 3}), id="a tree"),
        pytest.param(thing("a", a=INTEGER) | {"$defs": {"node": thing("next", next=NODE)}},
                     id="nobody comes there"),
        pytest.param(thing("a", "b", a={"const": 1}), id="any value"),
        pytest.param(call_schema([("f", thing("a", a={"anyOf": [LOOP, INTEGER]}))]), id="a call"),
    ],
)  # fmt: skip
def test_what_can_end_is_left_alone(schema: Schema) -> None:
    assert found(schema) == ""


def parts(schema: Any, root: Schema) -> list[Any]:
    """What a schema of the strategy below is made of."""
    if "$ref" in schema:
        return [_at(root, schema["$ref"])]
    return [*schema.get("anyOf", ()), *schema.get("properties", {}).values()]


def barren(root: Schema, depth: int) -> bool:
    """Whether some place that an answer may come to has no value within this depth."""
    known: dict[tuple[int, int], bool] = {}

    def has_value(schema: Any, depth: int) -> bool:
        place = (id(schema), depth)
        if place not in known:
            enough = any if "anyOf" in schema else all
            known[place] = depth > 0 and enough(
                has_value(part, depth - 1) for part in parts(schema, root)
            )
        return known[place]

    places, left = {id(root): root}, [root]
    while left:
        for part in parts(left.pop(), root):
            if id(part) not in places:
                places[id(part)] = part
                left.append(part)
    return not all(has_value(place, depth) for place in places.values())


NAMES = ["n0", "n1", "n2"]
REFERENCE = st.sampled_from([{"$ref": f"#/$defs/{name}"} for name in NAMES])
LEAVES = REFERENCE | st.just(INTEGER)
SCHEMAS = st.recursive(
    LEAVES,
    lambda inner: (
        st.builds(lambda a, b: {"anyOf": [a, b]}, inner, inner)
        | st.builds(lambda a: thing("a", a=a), inner)
    ),
    max_leaves=4,
)


@given(st.fixed_dictionaries(dict.fromkeys(NAMES, SCHEMAS)), SCHEMAS)
def test_a_place_without_an_answer_is_told_exactly_where_there_is_one(
    defs: dict[str, Any], root: Any
) -> None:
    schema = thing("r", r=root) | {"$defs": defs}
    assert bool(found(schema)) == barren(schema, 40)


def test_a_long_chain_costs_little() -> None:
    defs = {f"n{at}": thing("a", a={"$ref": f"#/$defs/n{at + 1}"}) for at in range(2000)}
    schema = thing("a", a={"$ref": "#/$defs/n0"}) | {"$defs": {**defs, "n2000": INTEGER}}
    began = time.process_time()
    assert found(schema) == ""
    assert time.process_time() - began < 1
