"""Sections of revisions become models of their own, or are refused by path."""

import pytest

from tiffin.config.load import load_text
from tiffin.config.models import EchoModel, OnnxModel
from tiffin.errors import ConfigInvalid

BASE = """
[models.m]
runtime = "echo"
slots = 7
context = 100
[models.m.slo]
p50_ms = 3
[models.m.revisions.next]
context = 9
slo = { p95_ms = 9 }
"""


def test_a_revision_has_what_its_model_has_but_what_differs() -> None:
    models = load_text(BASE.encode(), {}).config.models
    base, other = models["m"], models["m@next"]
    assert isinstance(base, EchoModel)
    assert isinstance(other, EchoModel)
    assert (base.context, base.revisions) == (100, {})
    assert (other.slots, other.context, other.slo.p50_ms, other.slo.p95_ms) == (7, 9, 3, 9)


def test_a_file_is_replaced_whole_and_the_others_stay() -> None:
    text = """
[models.m]
runtime = "onnx"
[models.m.files]
"model.onnx" = { sources = ["file:/a"], sha256 = "ONE", size_bytes = 5 }
"more.bin" = { sources = ["file:/b"], sha256 = "ONE" }
[models.m.revisions.next.files]
"model.onnx" = { sources = ["file:/c"], sha256 = "TWO" }
""".replace("ONE", "ab" * 32).replace("TWO", "cd" * 32)
    model = load_text(text.encode(), {}).config.models["m@next"]
    assert isinstance(model, OnnxModel)
    assert set(model.files) == {"model.onnx", "more.bin"}
    assert model.files["model.onnx"].size_bytes == 0


def test_the_environment_changes_a_revision_too() -> None:
    environ = {"TIFFIN__MODELS__M__REVISIONS__NEXT__CONTEXT": "11"}
    model = load_text(BASE.encode(), environ).config.models["m@next"]
    assert isinstance(model, EchoModel)
    assert model.context == 11


def test_routes_keys_and_pipelines_may_name_revisions() -> None:
    more = '[routes.r]\nmodels = ["m@next", "m"]\n'
    assert load_text((BASE + more).encode(), {}).config.routes["r"].models[0] == "m@next"


@pytest.mark.parametrize(
    ("more", "told"),
    [
        ("contxt = 1", "models.m.revisions.next.contxt: no such setting; did you mean context"),
        ("replicas = 0", "models.m.revisions.next.replicas: found 0, expected"),
        ('guard = "g"', 'models.m.revisions.next.guard: there is no guard "g"'),
        ('runtime = "x"', 'models.m.revisions.next.runtime: found "x"'),
        ("[models.m.revisions.next.revisions.x]", "next.revisions: a revision has none"),
        ("[models.m.revisions.deadbeef]", "deadbeef: a label may not look like a digest"),
        ('[models.m.revisions."a b"]', "models.m.revisions.a b: names have letters"),
        ('[models."m@x"]\nruntime = "echo"', "models.m@x: names have letters"),
    ],
)
def test_what_is_wrong_is_told_with_its_path(more: str, told: str) -> None:
    with pytest.raises(ConfigInvalid) as caught:
        load_text((BASE + more).encode(), {})
    assert str(caught.value).startswith(told) or told in str(caught.value)


def test_what_is_wrong_with_the_model_is_told_once() -> None:
    with pytest.raises(ConfigInvalid) as caught:
        load_text(BASE.replace("slots = 7", "slots = 0").encode(), {})
    assert str(caught.value).count("\n") == 0
