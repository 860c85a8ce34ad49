"""One loaded tensor model and its queue, from loading to draining.

In process: `ran = await replica.infer({"x": array}, ("y",), rows=len(array), context=context)`
waits for this request's turn in a batch and gives `ran.outputs["y"]`, its own rows, and
`ran.usage`. Cancelling the await is leaving: what waits is then never computed. Arrays have the
signature's types and shapes; whoever calls has seen to that (`dialects.oip.binding` does).
"""

import asyncio
from collections.abc import Callable, Mapping
from typing import Any, Final

import msgspec
import numpy as np
from numpy.typing import NDArray

from tiffin.config.models import Decision
from tiffin.errors import Draining, LoadFailed, Loading, TiffinError
from tiffin.ports.clock import Clock
from tiffin.ports.tensor_runtime import TensorRuntime
from tiffin.serving.context import Context
from tiffin.serving.progress import Phase, ProgressFile
from tiffin.serving.tensors.batcher import NOBODY, Batcher
from tiffin.serving.tensors.decision import DECISION, REASONS, SCORE, Deciding
from tiffin.serving.tensors.execute import Execution
from tiffin.serving.tensors.probe import first_runs
from tiffin.serving.tensors.schedule import Batch, Bounds
from tiffin.serving.tensors.waiting import Ran
from tiffin.telemetry import log
from tiffin.types.tensors import Signature

Arrays = Mapping[str, NDArray[Any]]

WARM_UP_RUNS: Final = 8
"""Enough for the learnt run time to forget the slow first one."""
WARM_UP_S: Final = 1.0  # after which a slow model has run often enough
LEAVE_S: Final = 5.0  # for what was running when its time was over


class TensorReplica:
    """Runs one model's requests; `observe` is told of every batch."""

    def __init__(
        self,
        runtime: TensorRuntime,
        clock: Clock,
        progress: ProgressFile,
        observe: Callable[[Batch], None],
    ) -> None:
        self.runtime = runtime
        self.clock = clock
        self.phase = Phase.LOADING
        self.signature = Signature(inputs=(), outputs=())
        self._progress = progress
        self._observe = observe
        self._batcher: Batcher | None = None
        self._first: Arrays = {}
        self._batched = False
        self._deciding: Deciding | None = None
        self._extra: frozenset[str] = frozenset()

    @property
    def running(self) -> int:
        """How many batches are being computed."""
        return self._batcher.running if self._batcher else 0

    @property
    def waiting(self) -> int:
        """How many requests wait."""
        return self._batcher.waiting if self._batcher else 0

    @property
    def refusals(self) -> Mapping[str, int]:
        """How many requests were refused, by `schedule.REASONS`."""
        return self._batcher.refusals if self._batcher else {}

    async def load(
        self,
        *,
        max_batch: int = 32,
        queue: int = 1024,
        queue_timeout_s: float = 0.0,
        decision: Decision | None = None,
    ) -> None:
        """Load the model, and see whether its rows may run together; raises `LoadFailed`.

        With a `decision` the signature has the extra outputs that come of it.
        """
        signature = await self.runtime.load()
        self._enter(Phase.WARMING)
        self._first, batched = await asyncio.to_thread(first_runs, self.runtime, signature)
        if signature.batched and not batched:
            log.warning("rows of this model depend on each other: requests will run one by one")
        self._batched = batched
        if decision is not None:
            self._deciding = Deciding(decision, signature)
            self._extra = frozenset(spec.name for spec in self._deciding.specs)
            signature = msgspec.structs.replace(signature, extra_outputs=self._deciding.specs)
        self.signature = signature
        runtime = self.runtime
        bounds = Bounds(
            lanes=runtime.lanes,
            max_batch=max_batch if batched else 1,
            queue=queue,
            inline=runtime.inline,
            wide=runtime.wide is not None,
            queue_s=queue_timeout_s,
        )
        self._batcher = Batcher(
            Execution(runtime, batched=batched, max_rows=max_batch),
            bounds,
            self.clock,
            self._ran,
        )

    async def warm_up(self) -> None:
        """Run real inferences the way of all others; ready afterwards. Raises `LoadFailed`."""
        names = tuple(spec.name for spec in self.signature.outputs)
        end = self.clock.monotonic() + WARM_UP_S
        try:
            for _ in range(WARM_UP_RUNS):
                await self._running().run(self._first, names, 1)
                if self.clock.monotonic() > end:
                    break
        except TiffinError as error:
            raise LoadFailed(f"the warm-up failed: {error.message}") from error
        self._enter(Phase.READY)

    def check(self) -> None:
        """Raise the reason why nothing can be answered now, if there is one."""
        if self.phase is Phase.READY:
            return
        if self.phase is Phase.DRAINING:
            raise draining()
        raise Loading(f"the model is {self.phase.name.lower()}", retry_after=1.0)

    async def infer(
        self,
        inputs: Arrays,
        outputs: tuple[str, ...] = (),
        *,
        rows: int = 1,
        context: Context = NOBODY,
    ) -> Ran:
        """One request's own rows of the named outputs (none named: all that the model gives).

        `rows` counts the first dimension where the signature is `batched`, and is 1 elsewhere.
        Raises `Overloaded`, `DeadlineExceeded`, `Loading`, `Draining`, or the model's error.
        """
        self.check()
        batcher = self._running()
        if not outputs:
            outputs = tuple(spec.name for spec in self.signature.outputs)
        self._progress.outstanding(batcher.inside + 1)
        try:
            if self._deciding is not None and not self._extra.isdisjoint(outputs):
                return await self._decide(inputs, outputs, rows, context)
            return await batcher.run(inputs, outputs, rows, context)
        finally:
            self._progress.outstanding(batcher.inside)

    async def drain(self, within_s: float) -> None:
        """Take nothing more, let what was taken finish, and refuse what hasn't in that time."""
        self._enter(Phase.DRAINING)
        if self._batcher is None:
            return
        self._batcher.close(draining)
        if not await self._batcher.emptied(within_s):
            self._batcher.abandon(draining)
            await self._batcher.emptied(LEAVE_S)

    async def close(self) -> None:
        """Give the model back."""
        if self._batcher is not None:
            self._batcher.abandon(draining)
        await self.runtime.close()

    async def _decide(
        self, inputs: Arrays, outputs: tuple[str, ...], rows: int, context: Context
    ) -> Ran:
        """A request that asks for outputs which come of the model's score."""
        deciding, batcher = self._deciding, self._running()
        if deciding is None:
            raise TypeError("no decision is configured")
        plain = [name for name in outputs if name not in self._extra]
        own = tuple(dict.fromkeys([*plain, deciding.output]))
        ran = await batcher.run(inputs, own, rows, context)
        told: dict[str, NDArray[Any]] = dict(ran.outputs)
        scores = told[SCORE] = deciding.scores(ran.outputs)
        usage = ran.usage
        if DECISION in outputs:
            told[DECISION] = deciding.decisions(scores)
        if REASONS in outputs:
            told[REASONS], more_ns = await self._reasons(deciding, inputs, context)
            usage = msgspec.structs.replace(usage, device_ns=usage.device_ns + more_ns)
        return Ran({name: told[name] for name in outputs}, usage)

    async def _reasons(
        self, deciding: Deciding, inputs: Arrays, context: Context
    ) -> tuple[NDArray[Any], int]:
        reasons: list[bytes] = []
        device_ns = 0
        for variants in deciding.variants(inputs):
            count = len(next(iter(variants.values())))
            step = count if self._batched else 1
            scores = []
            for at in range(0, count, step):
                part = {name: array[at : at + step] for name, array in variants.items()}
                ran = await self._running().run(part, (deciding.output,), step, context)
                device_ns += ran.usage.device_ns
                scores.append(deciding.scores(ran.outputs))
            reasons.append(deciding.reasons(np.concatenate(scores)))
        told = np.empty(len(reasons), object)
        told[:] = reasons
        return told, device_ns

    def _running(self) -> Batcher:
        if self._batcher is None:
            raise Loading("the model is loading", retry_after=1.0)
        return self._batcher

    def _ran(self, batch: Batch) -> None:
        self._progress.step(batch.outcome.runs)
        if self.phase is not Phase.WARMING:
            self._observe(batch)

    def _enter(self, phase: Phase) -> None:
        if self.phase is Phase.DRAINING:
            return
        self.phase = phase
        self._progress.phase(phase)


def draining() -> Draining:
    """The refusal of a replica that is stopping."""
    return Draining("the replica is stopping", retry_after=1.0)
