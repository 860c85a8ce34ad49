"""A pipeline's section: names that lead nowhere and rings are refused, by the edge at fault."""

import pytest

from tiffin.config.load import load_text
from tiffin.errors import ConfigInvalid

FILE = 'sources = ["file:/f"]\nsha256 = "' + 64 * "0" + '"\n'
MODELS = f"""
[models.chat]
runtime = "echo"
[models.cheap]
runtime = "onnx"
[models.cheap.files."model.onnx"]
{FILE}
"""
STEP = '[[models.p.steps]]\nname = "a"\nmodel = "cheap"\ninputs = { x = "request.x" }\n'


def section(*steps: str, outputs: str = '{ y = "a.y" }') -> bytes:
    head = f'[models.p]\nruntime = "pipeline"\noutputs = {outputs}\n'
    return (MODELS + head + "\n".join(steps)).encode()


def test_a_right_one_is_read() -> None:
    loaded = load_text(section(STEP.replace('x = "', '"in:0" = "')), {})
    assert loaded.tree["models"]["p"]["steps"][0]["inputs"] == {"in:0": "request.x"}


@pytest.mark.parametrize(
    ("steps", "told"),
    [
        ((STEP, STEP), 'another step is called "a" already'),
        ((STEP.replace("request.x", "b.y"),), 'steps.0..inputs.x: "b.y": there is no step "b"'),
        ((STEP.replace("request.x", "b"),), "expected request.INPUT or STEP.OUTPUT"),
        ((STEP.replace("request.x", "a.y"),), "in a ring: a -> a"),
        ((STEP.replace("cheap", "chep"),), 'there is no model "chep"; did you mean cheap'),
        ((STEP.replace("cheap", "chat"),), "a step takes an onnx, python or pipeline model"),
        ((STEP.replace("cheap", "p"),), "in a ring: p -> p"),
        ((STEP + 'function = "f"\n',), "exactly one of model, function"),
        ((STEP + 'when = "a.b"\n',), "steps.0..when"),
        ((STEP.replace('"cheap"', '""') + 'function = "f.py:g"\n',), "trusted = true"),
        ((STEP.replace('"a"', '"a.b"'),), "expected letters"),
    ],
)
def test_a_broken_one_is_refused(steps: tuple[str, ...], told: str) -> None:
    with pytest.raises(ConfigInvalid, match=told):
        load_text(section(*steps), {})


def test_a_model_of_a_step_may_be_loaded_on_demand() -> None:
    text = section(STEP).replace(b'runtime = "onnx"', b'runtime = "onnx"\nkeep = "on-demand"')
    assert load_text(text, {}).config.models["p"]


def test_an_output_that_no_step_gives_is_named() -> None:
    with pytest.raises(ConfigInvalid, match=r"models\.p\.outputs\.y"):
        load_text(section(STEP, outputs='{ y = "b.y" }'), {})


def test_neither_steps_nor_outputs_are_wrong_kinds() -> None:
    with pytest.raises(ConfigInvalid, match="found 3, expected a text or a list"):
        load_text(section(STEP.replace('"request.x"', "3")), {})
