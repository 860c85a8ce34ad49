"""A pipeline's graph as its section spells it: where values come from, conditions, rules of names.

What flows along the edges isn't known here; types are checked where the models are.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from graphlib import CycleError, TopologicalSorter
from typing import Final, NamedTuple

from tiffin.config.models import (
    LlamacppModel,
    Model,
    OnnxModel,
    PipelineModel,
    PipelineStep,
    PythonModel,
)
from tiffin.config.shape import Problem, nearest
from tiffin.errors import ConfigInvalid

REQUEST: Final = "request"
STEP_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,63}")
_CONDITION: Final = re.compile(r"\s*(\S+)\s*(==|!=|<=|>=|<|>)\s*(\S.*?)\s*")
_TEXT: Final = re.compile(r"'([^']*)'|\"([^\"]*)\"")


class Source(NamedTuple):
    """Where a value comes from: an output of a step, or (`step` is `request`) of the request."""

    step: str
    name: str

    def __str__(self) -> str:
        return f"{self.step}.{self.name}"


class Condition(NamedTuple):
    """When a step runs: the one value at `source`, compared by `sign` with `limit`."""

    source: Source
    sign: str
    limit: float | str | bool

    def holds(self, value: float | str | bool) -> bool:
        """Whether it holds for a value; raises `TypeError` where texts meet numbers."""
        if isinstance(value, str) != isinstance(self.limit, str):
            raise TypeError(f"a text can't be compared with a number: {self}")
        match self.sign:
            case "==":
                return value == self.limit
            case "!=":
                return value != self.limit
            case "<":
                return value < self.limit  # type: ignore[operator]
            case "<=":
                return value <= self.limit  # type: ignore[operator]
            case ">":
                return value > self.limit  # type: ignore[operator]
            case _:
                return value >= self.limit  # type: ignore[operator]

    def __str__(self) -> str:
        return f"{self.source} {self.sign} {self.limit!r}"


def source_of(text: str) -> Source:
    """`request.INPUT` or `STEP.OUTPUT` (an output's own dots stay); raises `ConfigInvalid`."""
    step, dot, name = text.strip().partition(".")
    if not dot or not name or not STEP_NAME.fullmatch(step):
        raise ConfigInvalid(f'found "{text}", expected request.INPUT or STEP.OUTPUT')
    return Source(step, name)


def sources_of(spelled: str | Sequence[str]) -> tuple[Source, ...]:
    """The sources of one input or output; raises `ConfigInvalid`."""
    texts = [spelled] if isinstance(spelled, str) else list(spelled)
    if not texts:
        raise ConfigInvalid("expected at least one source")
    return tuple(source_of(text) for text in texts)


def condition_of(text: str) -> Condition:
    """`STEP.OUTPUT >= 0.5`, `request.INPUT == 'text'`, `… == true`; raises `ConfigInvalid`."""
    found = _CONDITION.fullmatch(text)
    if found is None:
        raise ConfigInvalid(f"found \"{text}\", expected such as STEP.OUTPUT >= 0.5 or … == 'yes'")
    return Condition(source_of(found[1]), found[2], _limit(found[3]))


def _limit(text: str) -> float | str | bool:
    quoted = _TEXT.fullmatch(text)
    if quoted is not None:
        return quoted[1] if quoted[1] is not None else quoted[2]
    if text in ("true", "false"):
        return text == "true"
    try:
        number = float(text)
    except ValueError:
        number = float("nan")
    if number != number or abs(number) == float("inf"):
        raise ConfigInvalid(f"found {text}, expected a number, true, false or a text in quotes")
    return number


def broken_graph(
    pipeline: PipelineModel, where: str, models: Mapping[str, Model]
) -> Iterator[Problem]:
    """Every rule of names that a pipeline's section breaks."""
    names = [step.name for step in pipeline.steps]
    if not names:
        yield Problem(f"{where}.steps", "expected at least one step")
    if not pipeline.outputs:
        yield Problem(f"{where}.outputs", "expected at least one output")
    edges: dict[str, set[str]] = {name: set() for name in names}
    for number, step in enumerate(pipeline.steps):
        at = f"{where}.steps[{number}]"
        yield from _broken_name(step, at, names[:number])
        yield from _broken_work(step, at, pipeline, models)
        spelled = {f"{at}.inputs.{name}": value for name, value in step.inputs.items()}
        for path, value in spelled.items():
            yield from _unknown(path, value, names, edges[step.name])
        if step.when:
            yield from _broken_condition(f"{at}.when", step.when, names, edges[step.name])
    for name, value in pipeline.outputs.items():
        yield from _unknown(f"{where}.outputs.{name}", value, names, set())
    yield from _cycle(f"{where}.steps", edges)


def broken_nesting(models: Mapping[str, Model]) -> Iterator[Problem]:
    """Pipelines that contain one another."""
    edges = {
        name: {step.model for step in model.steps if step.model}
        for name, model in models.items()
        if isinstance(model, PipelineModel)
    }
    yield from _cycle("models", edges)


def _broken_name(step: PipelineStep, at: str, before: Sequence[str]) -> Iterator[Problem]:
    if not STEP_NAME.fullmatch(step.name) or step.name == REQUEST:
        wanted = "letters, digits, '_', '-', and another name than request"
        yield Problem(f"{at}.name", f'found "{step.name}", expected {wanted}')
    if step.name in before:
        yield Problem(f"{at}.name", f'another step is called "{step.name}" already')


def _broken_work(
    step: PipelineStep, at: str, pipeline: PipelineModel, models: Mapping[str, Model]
) -> Iterator[Problem]:
    if bool(step.model) == bool(step.function):
        yield Problem(at, f'step "{step.name}": expected exactly one of model, function')
    elif step.model:
        yield from _broken_model(step, at, models)
    elif ":" in step.function:
        file = step.function.partition(":")[0]
        if file not in pipeline.files:
            hint = nearest(file, pipeline.files)
            yield Problem(f"{at}.function", f'the pipeline has no file "{file}"{hint}')
        if not pipeline.trusted:
            yield Problem(
                f"{at}.function",
                "code of your own runs with the server's rights: say trusted = true in the"
                " pipeline's section if it may",
            )


def _broken_model(step: PipelineStep, at: str, models: Mapping[str, Model]) -> Iterator[Problem]:
    called = models.get(step.model)
    if called is None:
        hint = nearest(step.model, models)
        yield Problem(f"{at}.model", f'there is no model "{step.model}"{hint}')
    elif not isinstance(called, OnnxModel | PythonModel | PipelineModel):
        kind = "a language model" if isinstance(called, LlamacppModel) else "elsewhere"
        yield Problem(
            f"{at}.model",
            f'"{step.model}" is {kind}; a step takes an onnx, python or pipeline model',
        )
    if step.options:
        yield Problem(f"{at}.options", "a function's settings; a model has none")


def _unknown(
    path: str, spelled: str | Sequence[str], names: Sequence[str], edges: set[str]
) -> Iterator[Problem]:
    try:
        sources = sources_of(spelled)
    except ConfigInvalid as error:
        yield Problem(path, error.message)
        return
    for source in sources:
        if source.step in names:
            edges.add(source.step)
        elif source.step != REQUEST:
            hint = nearest(source.step, names)
            yield Problem(path, f'"{source}": there is no step "{source.step}"{hint}')


def _broken_condition(
    path: str, text: str, names: Sequence[str], edges: set[str]
) -> Iterator[Problem]:
    try:
        condition = condition_of(text)
    except ConfigInvalid as error:
        yield Problem(path, error.message)
    else:
        yield from _unknown(path, str(condition.source), names, edges)


def _cycle(where: str, edges: Mapping[str, set[str]]) -> Iterator[Problem]:
    try:
        TopologicalSorter(edges).prepare()
    except CycleError as error:
        ring = " -> ".join(reversed(error.args[1]))
        yield Problem(where, f"these wait for each other in a ring: {ring}")
