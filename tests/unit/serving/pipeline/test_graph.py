"""Planning: order, types along edges, what runs for which outputs; and how a request progresses."""

import random
from collections.abc import Mapping
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tiffin.config.graph import Condition, condition_of
from tiffin.config.models import PipelineModel, PipelineStep
from tiffin.errors import ConfigInvalid, LoadFailed
from tiffin.serving.pipeline.edges import edge_type
from tiffin.serving.pipeline.graph import Ends, Graph, Step, graph_of
from tiffin.serving.pipeline.progression import Progression


def ends(takes: Mapping[str, str], gives: Mapping[str, str]) -> Ends:
    return Ends(
        {name: edge_type(kind) for name, kind in takes.items()},
        {name: edge_type(kind) for name, kind in gives.items()},
    )


NUMBER = ends({"x": "FP32[-1]", "z": "FP32[-1]?"}, {"y": "FP32[-1]"})


def pipeline(steps: list[dict[str, Any]], outputs: Mapping[str, Any]) -> PipelineModel:
    tree = {"steps": [{"function": "f", **step} for step in steps], "outputs": outputs}
    return msgspec.convert({"runtime": "pipeline", **tree}, PipelineModel)


def planned(steps: list[dict[str, Any]], outputs: Mapping[str, Any], **of: Ends) -> Graph:
    spelled = pipeline(steps, outputs)
    return graph_of(spelled, {step.name: of.get(step.name, NUMBER) for step in spelled.steps})


@st.composite
def graphs(draw: st.DrawFn) -> Graph:
    """Any graph of numbers: each step takes from the request or steps before it."""
    count = draw(st.integers(1, 7))
    steps = []
    for number in range(count):
        known = ["request.x", *(f"s{before}.y" for before in range(number))]
        step: dict[str, Any] = {
            "name": f"s{number}",
            "inputs": {"x": draw(st.lists(st.sampled_from(known), min_size=1, max_size=3))},
        }
        if draw(st.booleans()):
            step["inputs"]["z"] = draw(st.sampled_from(known))
        if draw(st.booleans()):
            step["when"] = f"{draw(st.sampled_from(known))} > 0"
        steps.append(step)
    outputs = draw(st.lists(st.integers(0, count - 1), min_size=1, max_size=3, unique=True))
    random.Random(draw(st.integers(0, 9))).shuffle(steps)
    # `request.x` must have a user, for its type to be known.
    if not any("request.x" in str(step["inputs"]) for step in steps):
        steps[0]["inputs"]["x"] = "request.x"
    return planned(steps, {f"o{number}": f"s{number}.y" for number in outputs})


@given(graphs())
def test_every_step_stands_behind_all_that_it_waits_for(graph: Graph) -> None:
    seen = {"request"}
    for step in graph.steps:
        assert {source.step for source in step.sources()} <= seen
        seen.add(step.name)


@given(graphs())
def test_what_runs_for_some_outputs_is_closed_and_has_no_idle_step(graph: Graph) -> None:
    for name in graph.outputs:
        part = graph.for_outputs([name])
        kept = {step.name for step in part.steps}
        waited = {source.step for step in part.steps for source in step.sources()} - {"request"}
        asked = {source.step for source in part.outputs[name]} - {"request"}
        assert kept == waited | asked


@given(graphs(), st.randoms(), st.data())
def test_a_request_always_comes_to_its_end_and_each_step_runs_at_most_once(
    graph: Graph, order: random.Random, data: st.DataObject
) -> None:
    def holds(condition: Condition, value: int) -> bool:
        return value > 0

    progression = Progression(graph, {"x": data.draw(st.integers(0, 1))}, holds)
    running: list[Step] = []
    ran: list[str] = []
    while not progression.finished:
        for step, inputs in progression.ready():
            assert set(step.inputs) - set(step.optional) <= set(inputs)
            assert all(inputs.values())
            running.append(step)
        if not running:
            continue
        step = running.pop(order.randrange(len(running)))
        ran.append(step.name)
        progression.ran(step, {"y": data.draw(st.integers(0, 1))})
    assert not list(progression.ready())
    assert len(set(ran)) == len(ran)
    assert set(ran) | progression.skipped == {step.name for step in graph.steps}
    assert not set(ran) & progression.skipped


def test_a_branch_that_is_not_taken_takes_what_needs_it_along() -> None:
    graph = planned(
        [
            {"name": "judge", "inputs": {"x": "request.x"}},
            {"name": "deep", "inputs": {"x": "request.x"}, "when": "judge.y >= 0.5"},
            {"name": "after", "inputs": {"x": "deep.y"}},
            {"name": "merge", "inputs": {"x": ["deep.y", "judge.y"]}},
        ],
        {"y": "merge.y", "deep": "after.y"},
    )
    progression = Progression(graph, {"x": 1.0}, lambda condition, value: condition.holds(value))
    [(judge, _)] = progression.ready()
    progression.ran(judge, {"y": 0.1})
    [(merge, inputs)] = progression.ready()
    assert (merge.name, inputs) == ("merge", {"x": [0.1]})
    progression.ran(merge, {"y": 7.0})
    assert progression.finished
    assert progression.skipped == {"deep", "after"}
    assert progression.outputs() == {"y": [7.0]}


def test_the_signature_is_what_the_steps_take_and_give() -> None:
    graph = planned(
        [{"name": "a", "inputs": {"x": "request.rows"}}, {"name": "b", "inputs": {"x": "a.y"}}],
        {"score": "b.y"},
        a=ends({"x": "FP32[-1,4]"}, {"y": "FP32[-1]"}),
    )
    [taken], [given_] = graph.signature.inputs, graph.signature.outputs
    assert (taken.name, taken.datatype, taken.shape) == ("rows", "FP32", (-1, 4))
    assert (given_.name, given_.shape) == ("score", (-1,))


def test_many_are_taken_one_by_one_and_come_out_as_many() -> None:
    graph = planned(
        [
            {"name": "split", "inputs": {"x": "request.x"}},
            {"name": "look", "inputs": {"x": "split.y"}},
            {"name": "gather", "inputs": {"x": "look.y"}},
        ],
        {"y": "gather.y"},
        split=ends({"x": "FP32[-1]"}, {"y": "FP32[-1]*"}),
        gather=ends({"x": "FP32[-1]*"}, {"y": "FP32[-1]"}),
    )
    by_name = {step.name: step for step in graph.steps}
    assert by_name["look"].each == {"x"}
    assert by_name["gather"].each == frozenset()


@pytest.mark.parametrize(
    ("steps", "outputs", "of", "told"),
    [
        (
            [{"name": "a", "inputs": {"x": "request.x"}}, {"name": "b", "inputs": {"x": "a.y"}}],
            {"y": "b.y"},
            {"b": ends({"x": "BYTES[-1]"}, {"y": "FP32[-1]"})},
            r"a\.y -> b\.x: it is FP32\[-1\], and the step takes BYTES\[-1\]",
        ),
        (
            [{"name": "a", "inputs": {"x": "request.x"}}, {"name": "b", "inputs": {"x": "a.y"}}],
            {"y": "b.y"},
            {"b": ends({"x": "FP32[-1,2]"}, {"y": "FP32[-1]"})},
            r"a\.y -> b\.x",
        ),
        (
            [{"name": "a", "inputs": {"x": "request.x"}}],
            {"y": "a.nope"},
            {},
            r"a\.nope -> outputs\.y: step 'a' gives y",
        ),
        (
            [{"name": "a", "inputs": {"w": "request.x"}}],
            {"y": "a.y"},
            {},
            r"a\.w: there is no such input; it takes: x, z",
        ),
        ([{"name": "a"}], {"y": "a.y"}, {}, r"a\.x: the input \(FP32\[-1\]\) comes from nowhere"),
        (
            [
                {"name": "a", "inputs": {"x": "request.x"}},
                {"name": "b", "inputs": {"x": "request.x"}},
            ],
            {"y": "a.y"},
            {"b": ends({"x": "INT64[-1]"}, {"y": "FP32[-1]"})},
            r"request\.x -> b\.x: it takes INT64\[-1\], and another step takes FP32\[-1\]",
        ),
        (
            [
                {"name": "a", "inputs": {"x": "request.x"}},
                {"name": "b", "inputs": {"x": "request.x"}, "when": "a.y == 'yes'"},
            ],
            {"y": "b.y"},
            {},
            r"a\.y -> b\.when",
        ),
        (
            [{"name": "a", "inputs": {"x": "request.x"}}],
            {"y": "a.y"},
            {"a": ends({"x": "FP32[-1]"}, {"y": "FP32[-1]*"})},
            r"outputs\.y: many values",
        ),
    ],
    ids=["datatype", "shape", "output", "input", "missing", "request", "condition", "many"],
)
def test_an_edge_that_cannot_be_is_named(
    steps: list[dict[str, Any]], outputs: dict[str, str], of: dict[str, Ends], told: str
) -> None:
    with pytest.raises(LoadFailed, match=told):
        planned(steps, outputs, **of)


@pytest.mark.parametrize(
    ("text", "value", "holds"),
    [
        ("a.b >= 0.5", 0.5, True),
        ("a.b < -1e3", 0.0, False),
        ("a.b == 'in review'", "in review", True),
        ('a.b != "x"', "x", False),
        ("request.fast == true", True, True),
    ],
)
def test_conditions(text: str, value: float | str | bool, holds: bool) -> None:
    assert condition_of(text).holds(value) is holds


@pytest.mark.parametrize("text", ["a.b", "a >= 1", "a.b >= ", "a.b >= nan", "a.b = 1", "a.b == x"])
def test_what_is_no_condition_is_refused(text: str) -> None:
    with pytest.raises(ConfigInvalid):
        condition_of(text)


def test_a_step_of_the_configuration_needs_a_name() -> None:
    with pytest.raises(msgspec.ValidationError):
        msgspec.convert({"model": "m"}, PipelineStep)
