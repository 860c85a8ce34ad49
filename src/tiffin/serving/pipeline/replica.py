"""One pipeline and its queue: loaded once its models are ready, ready once a request went through.

Work of its own is only what its functions do: waiting for other models is no reason to think it
stuck, so a supervisor is told of nothing else.
"""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final

from numpy.typing import NDArray

from tiffin.config.graph import REQUEST
from tiffin.config.models import PipelineModel
from tiffin.errors import (
    DeadlineExceeded,
    InvalidRequest,
    LoadFailed,
    Loading,
    TiffinError,
    Unavailable,
)
from tiffin.ports.backend import Backend
from tiffin.ports.clock import Clock
from tiffin.serving.context import Context
from tiffin.serving.lanes.claim import Work
from tiffin.serving.lanes.slots import Lanes
from tiffin.serving.lanes.turn import Turn
from tiffin.serving.pipeline.functions import Function
from tiffin.serving.pipeline.graph import Ends, Graph, graph_of
from tiffin.serving.pipeline.measures import PipelineMeasures
from tiffin.serving.pipeline.peer import Hop, Peer, ends_of
from tiffin.serving.pipeline.run import Run, Tally, Workers
from tiffin.serving.progress import Phase, ProgressFile
from tiffin.serving.replica import Within, draining
from tiffin.serving.tensors.probe import probes
from tiffin.types.tensors import Signature
from tiffin.types.usage import Usage

Arrays = Mapping[str, NDArray[Any]]
Functions = Callable[[], Mapping[str, Function]]
"""Makes the functions of all steps that have one, by step; raises `LoadFailed`."""

LOOK_AGAIN_S: Final = 0.2
ASK_S: Final = 10.0
LEAVE_S: Final = 5.0
# Of the time for loading, what is left for the warm-up once the models are there.
WAIT_SHARE: Final = 0.8


class PipelineReplica:
    """Answers with one graph, `concurrency` requests at once, `queue` more waiting."""

    def __init__(
        self,
        pipeline: PipelineModel,
        backends: Mapping[str, Backend],
        threads: int,
        clock: Clock,
        progress: ProgressFile,
        measures: PipelineMeasures,
    ) -> None:
        self.clock = clock
        self.phase = Phase.LOADING
        self.graph = Graph((), {}, Signature(inputs=(), outputs=()))
        self.lanes = Lanes(
            pipeline.concurrency,
            pipeline.queue,
            clock,
            queue_timeout_s=pipeline.queue_timeout_s,
        )
        self._pipeline = pipeline
        self._backends = backends
        self._progress = progress
        self._measures = measures
        self._threads = ThreadPoolExecutor(threads, thread_name_prefix="function")
        self._working = 0
        self._functions: Mapping[str, Function] = {}
        self._workers: Workers | None = None
        self._inside: set[asyncio.Task[Any]] = set()
        self._broken_off: set[asyncio.Task[Any]] = set()

    async def load(self, functions: Functions) -> None:
        """Make the functions, wait for the models, check every edge; raises `LoadFailed`."""
        self._functions = await asyncio.to_thread(functions)
        models = await self._models()
        ends = {
            step.name: models[step.model] if step.model else self._functions[step.name].ends
            for step in self._pipeline.steps
        }
        self.graph = graph_of(self._pipeline, ends)
        peers = {
            name: Peer(
                name,
                {tensor: kind.datatype for tensor, kind in models[name].takes.items()},
                backend,
            )
            for name, backend in self._backends.items()
        }
        self._workers = Workers(peers, self._functions, self._threads, self._work, self._stepped)
        self._enter(Phase.WARMING)

    async def warm_up(self) -> None:
        """A real request through all steps, whatever their conditions; ready afterwards.

        Raises `LoadFailed`.
        """
        hop = Hop(b"", asyncio.get_running_loop().time() + self._pipeline.load_timeout_s)
        failure: TiffinError | None = None
        for inputs in self._samples():
            run = Run(self._ready_workers(), hop, self._pipeline.parallel, all_steps=True)
            try:
                await run(self.graph, inputs)
            except InvalidRequest as error:
                failure = error
            except TiffinError as error:
                raise LoadFailed(f"the warm-up failed: {error.message}") from error
            else:
                self._enter(Phase.READY)
                return
        raise LoadFailed(f"the warm-up failed on all inputs made up for it: {failure}") from failure

    def check(self) -> None:
        """Raise the reason why nothing can be answered now, if there is one."""
        if self.phase is Phase.DRAINING:
            raise draining()
        if self.phase is not Phase.READY:
            raise Loading(f"the pipeline is {self.phase.name.lower()}", retry_after=1.0)

    async def infer(
        self,
        inputs: Arrays,
        outputs: Sequence[str],
        context: Context,
        headers: bytes,
        tally: Tally | None = None,
    ) -> tuple[dict[str, NDArray[Any]], Usage]:
        """The named outputs, and the sum of what all steps took; cancelling stops them all.

        `headers` go along to the models; `tally` has what the steps took, even where one fails.
        Raises `Overloaded`, `DeadlineExceeded` or a step's error.
        """
        self.check()
        size = sum(array.nbytes for array in inputs.values())
        [ticket] = self.lanes.ask(context.claim(), [Work(size=size)])
        task = asyncio.current_task()
        if task is not None:
            self._inside.add(task)
        hop = Hop(headers, context.deadline)
        run = Run(self._ready_workers(), hop, self._pipeline.parallel, tally)
        with self._measures.watching() as watched:
            try:
                async with Within(context.deadline, self.clock), Turn(self.lanes, ticket):
                    waited_s = ticket.started - ticket.asked
                    run.tally.waited(int(waited_s * 1e9))
                    run.tally.reason = ticket.reason
                    found = await run(self.graph.for_outputs(outputs), inputs)
                    self.lanes.came(ticket, 0)
            except asyncio.CancelledError:
                if task in self._broken_off:
                    raise draining() from None
                raise
            finally:
                self.lanes.leave(ticket)
                if task is not None:
                    self._inside.discard(task)
                    self._broken_off.discard(task)
            watched.usage = run.tally.usage()
        return found, watched.usage

    async def drain(self, within_s: float) -> None:
        """Refuse what waits, let what runs finish, and break off what hasn't after `within_s`."""
        self._enter(Phase.DRAINING)
        self.lanes.close(draining)
        if self._inside:
            _, late = await asyncio.wait(self._inside, timeout=within_s)
            self._broken_off.update(late)
            for task in late:
                task.cancel()
            if late:
                await asyncio.wait(late, timeout=LEAVE_S)

    def close(self) -> None:
        """Give the threads back; a function that runs is left to finish."""
        self._threads.shutdown(wait=False, cancel_futures=True)

    async def _models(self) -> dict[str, Ends]:
        """What the models take and give, once each is ready."""
        loop = asyncio.get_running_loop()
        last = loop.time() + WAIT_SHARE * self._pipeline.load_timeout_s
        found: dict[str, Ends] = {}
        for name, backend in self._backends.items():
            while name not in found:
                try:
                    found[name] = await ends_of(name, backend, loop.time() + ASK_S)
                except (Unavailable, DeadlineExceeded) as error:
                    if loop.time() > last:
                        why = f"it calls '{name}', which isn't ready: {error.message}"
                        raise LoadFailed(why) from error
                    await asyncio.sleep(LOOK_AGAIN_S)
        return found

    def _samples(self) -> list[Arrays]:
        """What may go through: the functions' examples, and what is made up for the rest."""
        examples: dict[str, NDArray[Any]] = {}
        for step in self.graph.steps:
            function = self._functions.get(step.name)
            if function is None or function.example is None:
                continue
            for name, value in function.example().items():
                for source in step.inputs.get(name, ()):
                    if source.step == REQUEST:
                        examples[source.name] = value
        return [{**made_up, **examples} for made_up in probes(self.graph.signature)]

    def _ready_workers(self) -> Workers:
        if self._workers is None:
            raise Loading("the pipeline is loading", retry_after=1.0)
        return self._workers

    def _work(self, change: int) -> None:
        self._working += change
        self._progress.outstanding(self._working)

    def _stepped(self) -> None:
        self._progress.step()

    def _enter(self, phase: Phase) -> None:
        if self.phase is Phase.DRAINING:
            return
        self.phase = phase
        self._progress.phase(phase)
