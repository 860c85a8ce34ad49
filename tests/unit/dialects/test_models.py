"""The listing of models as clients read it."""

import json

from openai.types import Model

from tiffin.dialects.openai.models import model_body, model_list_body
from tiffin.types.snapshot import Plan


def plan(name: str) -> Plan:
    return Plan(name=name, identity="i", targets=(), created=1_700_000_000)


def test_a_model() -> None:
    assert json.loads(model_body(plan("chat"))) == {
        "id": "chat",
        "object": "model",
        "created": 1_700_000_000,
        "owned_by": "tiffin",
    }
    Model.model_validate_json(model_body(plan("chat")))


def test_the_listing_keeps_its_order() -> None:
    listing = json.loads(model_list_body([plan("b"), plan("a")]))
    assert listing["object"] == "list"
    assert [model["id"] for model in listing["data"]] == ["b", "a"]
    assert json.loads(model_list_body([])) == {"object": "list", "data": []}
