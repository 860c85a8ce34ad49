"""One request through a graph: every step as soon as it can run, all of them ended together.

Leaving it early, or the first step that fails, cancels what runs: calls of models stop at once, a
function's thread can only be left behind to finish what it has in hand.
"""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Mapping, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass, field, replace
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from tiffin.config.graph import Condition
from tiffin.errors import InvalidRequest, RunFailed, SchemaViolation, TiffinError
from tiffin.serving.pipeline.functions import Function, Value
from tiffin.serving.pipeline.graph import Graph, Step
from tiffin.serving.pipeline.peer import Hop, Peer
from tiffin.serving.pipeline.progression import Progression
from tiffin.types.usage import Usage

Arrays = Mapping[str, NDArray[Any]]
One = dict[str, Value]


@dataclass(frozen=True, slots=True)
class Workers:
    """What does the steps: models by name, functions by step, and the functions' threads.

    `working` is told how many functions run, `stepped` that a step has run.
    """

    peers: Mapping[str, Peer]
    functions: Mapping[str, Function]
    threads: Executor
    working: Callable[[int], None]
    stepped: Callable[[], None]


@dataclass(slots=True)
class Tally:
    """What all steps of a request took together, in counts and nanoseconds."""

    counts: dict[str, int] = field(default_factory=dict)
    steps: int = 0
    measured: bool = True
    reason: str = ""

    def add(self, usage: Usage) -> None:
        """One more step's."""
        self.steps += 1
        self.measured = self.measured and usage.measured
        for name in ("queue_ns", "device_ns", "prepare_ns", "pages", "pixels"):
            self.counts[name] = self.counts.get(name, 0) + getattr(usage, name)

    def waited(self, queue_ns: int) -> None:
        """It waited for its turn."""
        self.counts["queue_ns"] = self.counts.get("queue_ns", 0) + queue_ns

    def spent(self) -> Usage | None:
        """The sum, where any step has run."""
        return self.usage() if self.steps else None

    def usage(self) -> Usage:
        """The sum."""
        plain = Usage(measured=self.measured, reason=self.reason)
        return msgspec.structs.replace(plain, **self.counts)


class Run:
    """A request's way. `parallel` runs of steps go on at once; `all_steps` ignores conditions.

    What the steps took is added to `tally` as they end, so that it is there however this ends.
    """

    def __init__(
        self,
        workers: Workers,
        hop: Hop,
        parallel: int,
        tally: Tally | None = None,
        *,
        all_steps: bool = False,
    ) -> None:
        self._workers = workers
        self.tally = tally or Tally()
        self._hop = replace(hop, spent=self.tally.add)
        self._room = asyncio.Semaphore(parallel)
        self._all_steps = all_steps

    async def __call__(self, graph: Graph, request: Arrays) -> dict[str, NDArray[Any]]:
        """The graph's outputs; those of which no source ran are left out."""
        progression: Progression[Value] = Progression(graph, dict(request), self._holds)
        try:
            async with asyncio.TaskGroup() as group:
                self._start(progression, group)
        except BaseExceptionGroup as broken:
            raise _first(broken) from None
        told = {name: _joined(name, values) for name, values in progression.outputs().items()}
        return {name: value for name, value in told.items() if not isinstance(value, list)}

    def _start(self, progression: Progression[Value], group: asyncio.TaskGroup) -> None:
        for step, inputs in progression.ready():
            group.create_task(self._step(step, inputs, progression, group))

    async def _step(
        self,
        step: Step,
        inputs: Mapping[str, Sequence[Value]],
        progression: Progression[Value],
        group: asyncio.TaskGroup,
    ) -> None:
        values = {name: _joined(f"{step.name}.{name}", parts) for name, parts in inputs.items()}
        for name in step.many & values.keys():
            value = values[name]
            values[name] = value if isinstance(value, list) else [value]
        work = self._function if step.function else self._model
        if step.each:
            gave = await self._for_each(step, values, work)
        else:
            gave = await self._with_room(step, values, work)
        progression.ran(step, gave)
        self._start(progression, group)

    async def _for_each(
        self, step: Step, values: One, work: Callable[[Step, One], Awaitable[One]]
    ) -> One:
        counts = {name: len(values[name]) for name in step.each if name in values}
        if len(set(counts.values())) > 1:
            told = ", ".join(f"{count} of {name}" for name, count in sorted(counts.items()))
            raise RunFailed(f"step '{step.name}' can't run for each: it got {told}")
        items = [
            {name: v[at] if name in step.each else v for name, v in values.items()}
            for at in range(next(iter(counts.values()), 0))
        ]
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(self._with_room(step, item, work)) for item in items]
        gave = [task.result() for task in tasks]
        return {name: [_one(item[name]) for item in gave] for name in step.wanted}

    async def _with_room(
        self, step: Step, values: One, work: Callable[[Step, One], Awaitable[One]]
    ) -> One:
        async with self._room:
            try:
                return await work(step, values)
            except InvalidRequest:
                raise
            except TiffinError as error:
                message = f"step '{step.name}': {error.message}"
                raise type(error)(message, retry_after=error.retry_after) from error

    async def _model(self, step: Step, values: One) -> One:
        arrays = {name: _one(value) for name, value in values.items()}
        gave, usage = await self._workers.peers[step.model](arrays, step.wanted, self._hop)
        self._workers.stepped()
        self.tally.add(usage)
        missing = [name for name in step.wanted if name not in gave]
        if missing:
            raise RunFailed(f"'{step.model}' didn't give {', '.join(missing)}")
        return dict(gave)

    async def _function(self, step: Step, values: One) -> One:
        workers, loop = self._workers, asyncio.get_running_loop()

        def count() -> None:
            workers.working(-1)
            workers.stepped()  # to refuse is progress too

        def ended(_: object) -> None:
            # The loop may have closed before a function that was left behind has ended.
            with contextlib.suppress(RuntimeError):
                loop.call_soon_threadsafe(count)

        workers.working(1)
        # Whoever leaves doesn't end it: it counts until its thread is free.
        work = workers.threads.submit(workers.functions[step.name], values)
        work.add_done_callback(ended)
        gave, usage = await asyncio.wrap_future(work)
        self.tally.add(usage)
        return gave

    def _holds(self, condition: Condition, value: Value) -> bool:
        if self._all_steps:
            return True
        items = _one(value).ravel().tolist()
        if len(items) != 1:
            raise SchemaViolation(
                f"the condition {condition} decides on one value, and there are {len(items)}:"
                " send one row a request"
            )
        item = items[0]
        return condition.holds(item.decode("utf-8", "replace") if isinstance(item, bytes) else item)


def _joined(where: str, parts: Sequence[Value]) -> Value:
    """Values of several sources as one."""
    if len(parts) == 1:
        return parts[0]
    if isinstance(parts[0], list):
        return [item for part in parts for item in part]
    try:
        return np.concatenate([_one(part) for part in parts])
    except ValueError as error:
        raise RunFailed(f"{where}: the values can't be joined: {error}") from error


def _one(value: Value) -> NDArray[Any]:
    if isinstance(value, list):
        raise RunFailed("many values came where one was expected")
    return value


def _first(broken: BaseExceptionGroup[BaseException]) -> BaseException:
    """The first of our own errors in it, else whatever there is."""
    flat: list[BaseException] = []
    waiting: list[BaseException] = [broken]
    while waiting:
        error = waiting.pop(0)
        if isinstance(error, BaseExceptionGroup):
            waiting = [*error.exceptions, *waiting]
        else:
            flat.append(error)
    return next((error for error in flat if isinstance(error, TiffinError)), flat[0])
