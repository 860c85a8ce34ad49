"""A pipeline's steps in an order in which they can run, with every edge's type checked.

Pure: a plan is made of the section and of what each step's model or function takes and gives.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from graphlib import TopologicalSorter
from typing import Any

from tiffin.config.graph import REQUEST, Condition, Source, condition_of, sources_of
from tiffin.config.models import PipelineModel, PipelineStep
from tiffin.errors import LoadFailed
from tiffin.serving.pipeline.edges import EdgeType, fits, joined, narrowed
from tiffin.types.tensors import ANY, Signature, TensorSpec

Sources = tuple[Source, ...]
Types = dict[Source, EdgeType]


@dataclass(frozen=True, slots=True)
class Ends:
    """What a step's model or function takes and gives, by name."""

    takes: Mapping[str, EdgeType]
    gives: Mapping[str, EdgeType]


@dataclass(frozen=True, slots=True)
class Step:
    """One step. `each` names the inputs of which many come, so that it runs once for each, `many`
    those that it takes as lists.

    `wanted` are those of its outputs that anybody takes, `optional` the inputs that it can miss.
    """

    name: str
    model: str
    function: str
    inputs: Mapping[str, Sources]
    when: Condition | None
    options: Mapping[str, Any]
    each: frozenset[str]
    many: frozenset[str]
    optional: frozenset[str]
    wanted: tuple[str, ...]

    def sources(self) -> Iterator[Source]:
        """Everything that it waits for."""
        for sources in self.inputs.values():
            yield from sources
        if self.when is not None:
            yield self.when.source


@dataclass(frozen=True, slots=True)
class Graph:
    """`steps` come after all that they wait for."""

    steps: tuple[Step, ...]
    outputs: Mapping[str, Sources]
    signature: Signature

    def for_outputs(self, names: Iterable[str]) -> "Graph":
        """What of it must run for some of its outputs."""
        outputs = {name: self.outputs[name] for name in names}
        needed = {source.step for sources in outputs.values() for source in sources}
        for step in reversed(self.steps):
            if step.name in needed:
                needed.update(source.step for source in step.sources())
        kept = tuple(step for step in self.steps if step.name in needed)
        return Graph(kept, outputs, self.signature)


def graph_of(pipeline: PipelineModel, ends: Mapping[str, Ends]) -> Graph:
    """The graph of a section whose names were checked; `ends` by step's name.

    Raises `LoadFailed` that names the edge which can't be.
    """
    outputs = {name: sources_of(spelled) for name, spelled in pipeline.outputs.items()}
    builder = _Builder(ends)
    taken = {source for sources in outputs.values() for source in sources}
    for spelled in pipeline.steps:
        taken.update(source for sources in _inputs(spelled).values() for source in sources)
        if spelled.when:
            taken.add(condition_of(spelled.when).source)
    ordered = list(_ordered(pipeline.steps))
    for spelled in ordered:
        builder.requests(spelled)
    for spelled in ordered:
        builder.deciding(spelled)
    steps = tuple(builder.step(spelled, taken) for spelled in ordered)
    gives = {
        name: builder.arriving(f"outputs.{name}", sources) for name, sources in outputs.items()
    }
    for name, kind in gives.items():
        if kind.many:
            raise LoadFailed(f"outputs.{name}: many values ({kind}) can't be one output")
    return Graph(steps, outputs, Signature(inputs=builder.inputs(), outputs=_specs(gives)))


class _Builder:
    """Learns the types of all sources while it goes through the steps in their order."""

    def __init__(self, ends: Mapping[str, Ends]) -> None:
        self._ends = ends
        self._types: Types = {}

    def requests(self, spelled: PipelineStep) -> None:
        """What the request must have is what those take that get it."""
        for name, sources in _inputs(spelled).items():
            kind = self._taken(spelled, name)
            for source in sources:
                if source.step == REQUEST:
                    self._request(f"{spelled.name}.{name}", source, kind)

    def deciding(self, spelled: PipelineStep) -> None:
        """An input of the request that only conditions look at is of what it is compared with."""
        when = condition_of(spelled.when) if spelled.when else None
        if when is not None and when.source.step == REQUEST and when.source not in self._types:
            datatype = {str: "BYTES", bool: "BOOL", float: "FP32"}[type(when.limit)]
            self._types[when.source] = EdgeType(datatype, (1,))

    def step(self, spelled: PipelineStep, taken: set[Source]) -> Step:
        """One step, checked; what comes before it has been here."""
        own = self._ends[spelled.name]
        inputs = _inputs(spelled)
        for name, kind in own.takes.items():
            if name not in inputs and not kind.optional:
                raise LoadFailed(f"{spelled.name}.{name}: the input ({kind}) comes from nowhere")
        each = frozenset(
            name for name, sources in inputs.items() if self._edge(spelled, name, sources)
        )
        for name, kind in own.gives.items():
            many = kind.many or bool(each)
            if kind.many and each:
                raise LoadFailed(f"{spelled.name}.{name}: many of many can't flow along an edge")
            self._types[Source(spelled.name, name)] = EdgeType(kind.datatype, kind.shape, many)
        when = condition_of(spelled.when) if spelled.when else None
        if when is not None:
            self._condition(spelled.name, when)
        return Step(
            name=spelled.name,
            model=spelled.model,
            function=spelled.function,
            inputs=inputs,
            when=when,
            options=spelled.options,
            each=each,
            many=frozenset(name for name, kind in own.takes.items() if kind.many),
            optional=frozenset(name for name, kind in own.takes.items() if kind.optional),
            wanted=tuple(name for name in own.gives if Source(spelled.name, name) in taken),
        )

    def arriving(self, where: str, sources: Sources) -> EdgeType:
        """The type of what comes from these sources."""
        types = [self._type(where, source) for source in sources]
        kind = joined(types)
        if kind is None:
            told = ", ".join(f"{s} {t}" for s, t in zip(sources, types, strict=True))
            raise LoadFailed(f"{where}: these can't be joined: {told}")
        return kind

    def inputs(self) -> tuple[TensorSpec, ...]:
        """What the request must have."""
        found = {
            source.name: kind for source, kind in self._types.items() if source.step == REQUEST
        }
        return _specs(found)

    def _edge(self, spelled: PipelineStep, name: str, sources: Sources) -> bool:
        """Check one input; whether many come where one is taken."""
        where = f"{spelled.name}.{name}"
        taken = self._taken(spelled, name)
        given = self.arriving(where, sources)
        if not fits(given, taken):
            told = " or ".join(str(source) for source in sources)
            raise LoadFailed(f"{told} -> {where}: it is {given}, and the step takes {taken}")
        return given.many and not taken.many

    def _taken(self, spelled: PipelineStep, name: str) -> EdgeType:
        takes = self._ends[spelled.name].takes
        if name not in takes:
            told = ", ".join(takes) or "nothing"
            raise LoadFailed(f"{spelled.name}.{name}: there is no such input; it takes: {told}")
        return takes[name]

    def _type(self, where: str, source: Source) -> EdgeType:
        kind = self._types.get(source)
        if kind is not None:
            return kind
        if source.step == REQUEST:
            raise LoadFailed(f"{source} -> {where}: no step takes it, so its type isn't known")
        told = ", ".join(self._ends[source.step].gives) or "nothing"
        raise LoadFailed(f"{source} -> {where}: step '{source.step}' gives {told}")

    def _request(self, where: str, source: Source, kind: EdgeType) -> None:
        if kind.many:
            raise LoadFailed(f"{source} -> {where}: a request can't have many ({kind})")
        known = self._types.get(source, kind)
        if not fits(known, kind):
            raise LoadFailed(
                f"{source} -> {where}: it takes {kind}, and another step takes {known}"
            )
        self._types[source] = narrowed(known, kind)

    def _condition(self, step: str, when: Condition) -> None:
        kind = self._type(f"{step}.when", when.source)
        text = kind.datatype == "BYTES"
        if kind.many or any(size not in (ANY, 1) for size in kind.shape):
            raise LoadFailed(f"{when.source} -> {step}.when: {kind} isn't one value")
        if text != isinstance(when.limit, str):
            raise LoadFailed(f"{when.source} -> {step}.when: {kind} can't be compared as {when}")


def _inputs(spelled: PipelineStep) -> dict[str, Sources]:
    return {name: sources_of(value) for name, value in spelled.inputs.items()}


def _specs(types: Mapping[str, EdgeType]) -> tuple[TensorSpec, ...]:
    return tuple(
        TensorSpec(name=name, datatype=kind.datatype, shape=kind.shape, optional=kind.optional)
        for name, kind in types.items()
    )


def _ordered(steps: Iterable[PipelineStep]) -> Iterator[PipelineStep]:
    """Each after those that it waits for; otherwise as they stand in the section."""
    by_name = {step.name: step for step in steps}
    waits = {}
    for step in by_name.values():
        sources = [source for sources in _inputs(step).values() for source in sources]
        if step.when:
            sources.append(condition_of(step.when).source)
        waits[step.name] = [source.step for source in sources if source.step != REQUEST]
    return (by_name[name] for name in TopologicalSorter(waits).static_order())
