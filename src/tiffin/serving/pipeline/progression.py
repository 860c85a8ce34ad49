"""How far one request has come through a graph: which steps may run now, which never will.

A state machine over values that it doesn't look into. A step is decided once all that it waits for
has run or been skipped: it is skipped where its condition doesn't hold or has no value, or where
an input that it can't miss has no source that ran.
"""

from collections.abc import Callable, Iterator, Mapping
from typing import Generic, TypeVar

from tiffin.config.graph import REQUEST, Condition, Source
from tiffin.serving.pipeline.graph import Graph, Sources, Step

V = TypeVar("V")


class Progression(Generic[V]):
    """`request` has the request's inputs; `holds` judges conditions."""

    def __init__(
        self, graph: Graph, request: Mapping[str, V], holds: Callable[[Condition, V], bool]
    ) -> None:
        self._graph = graph
        self._holds = holds
        self._values = {Source(REQUEST, name): value for name, value in request.items()}
        self._settled = {REQUEST}
        self._undecided = list(graph.steps)
        self.skipped: set[str] = set()

    @property
    def finished(self) -> bool:
        """Whether every step has run or been skipped."""
        return len(self._settled) == len(self._graph.steps) + 1

    def ready(self) -> Iterator[tuple[Step, dict[str, list[V]]]]:
        """Steps that can run now, each told once, with the values of each input's sources."""
        # Steps stand behind what they wait for, so one pass also sees what its own skips decide.
        undecided, self._undecided = self._undecided, []
        for step in undecided:
            if not all(source.step in self._settled for source in step.sources()):
                self._undecided.append(step)
                continue
            inputs = self._inputs(step)
            if inputs is None:
                self.skipped.add(step.name)
                self._settled.add(step.name)
            else:
                yield step, inputs

    def ran(self, step: Step, gave: Mapping[str, V]) -> None:
        """A step has run."""
        self._settled.add(step.name)
        for name, value in gave.items():
            self._values[Source(step.name, name)] = value

    def outputs(self) -> dict[str, list[V]]:
        """The values of each output's sources; an output of which none ran is left out."""
        found = {name: self._present(sources) for name, sources in self._graph.outputs.items()}
        return {name: values for name, values in found.items() if values}

    def _inputs(self, step: Step) -> dict[str, list[V]] | None:
        if step.when is not None:
            value = self._values.get(step.when.source)
            if value is None or not self._holds(step.when, value):
                return None
        found = {name: self._present(sources) for name, sources in step.inputs.items()}
        if any(not values and name not in step.optional for name, values in found.items()):
            return None
        return {name: values for name, values in found.items() if values}

    def _present(self, sources: Sources) -> list[V]:
        return [self._values[source] for source in sources if source in self._values]
