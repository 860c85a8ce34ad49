"""Vectors and scores of texts: tokens, batches of like length, pooling. Nothing is shared.

Every text is a row of its own to the batcher, padded up to the next of a few lengths, so that texts
of all requests run together with little waste. A graph whose rows aren't independent (`alone`) gets
each text by itself and unpadded: what others ask then can't change an answer.
"""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from time import perf_counter_ns
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from tiffin.config.models import OnnxModel
from tiffin.errors import Overloaded, SchemaViolation, UnsupportedParameter
from tiffin.ports.tokenizer import Tokens
from tiffin.serving.replica import Context
from tiffin.serving.tensors.waiting import Ran
from tiffin.serving.texts.fitting import Fitting
from tiffin.serving.texts.pooling import Vector, finished, pooled, score
from tiffin.serving.texts.reading import Reader
from tiffin.types.usage import Usage

# How long a request that is half done waits before it looks for room in the queue again.
ROOM_S: Final = 0.02


Run = Callable[[Mapping[str, NDArray[Any]], tuple[str, ...], Context], Awaitable[Ran]]
"""Runs one row among others' and gives its own of the named outputs."""


class Encoder:
    """One model of texts. `window` is how many texts of one request are in the queue at most."""

    def __init__(
        self,
        model: OnnxModel,
        fitting: Fitting,
        reader: Reader,
        run: Run,
        *,
        alone: bool,
        window: int,
    ) -> None:
        self._model = model
        self._fitting = fitting
        self._reader = reader
        self._run = run
        self._alone = alone
        self._window = window

    async def embed(
        self, inputs: Sequence[str | list[int]], dimensions: int | None, context: Context
    ) -> tuple[list[bytes], Usage]:
        """A vector for each input as little-endian 32-bit floats; raises `InvalidRequest`."""
        wanted = self._dimensions(dimensions)
        began = perf_counter_ns()
        tokens = await self._reader.texts(inputs)
        work = _Work(tokens, perf_counter_ns() - began)
        await self._compute(work, context)
        how = self._model.pooling
        vectors: list[Vector] = [
            pooled(given, len(text.ids), how)
            if self._fitting.by_token
            else given.astype(np.float32, copy=False)
            for given, text in zip(work.given, tokens, strict=True)
        ]
        return finished(vectors, wanted, normalize=self._model.normalize), work.usage()

    async def rerank(
        self, query: str, documents: Sequence[str], context: Context
    ) -> tuple[list[float], Usage]:
        """How relevant each document is to the query, 0 to 1; raises `InvalidRequest`."""
        began = perf_counter_ns()
        tokens = await self._reader.pairs(query, documents)
        work = _Work(tokens, perf_counter_ns() - began)
        await self._compute(work, context)
        return [score(np.atleast_1d(given)) for given in work.given], work.usage()

    def _dimensions(self, dimensions: int | None) -> int:
        if dimensions is None or dimensions == self._fitting.width:
            return 0
        if not self._model.dimensions:
            raise UnsupportedParameter(
                "'dimensions' is not supported by this model", param="dimensions"
            )
        if self._fitting.width and dimensions > self._fitting.width:
            raise SchemaViolation(
                f"'dimensions' must be at most {self._fitting.width} for this model",
                param="dimensions",
            )
        return dimensions

    async def _compute(self, work: "_Work", context: Context) -> None:
        if len(work.tokens) == 1:
            await self._text(work, 0, context)
            return
        # Like lengths follow each other, so that they wait together and run together.
        order = sorted(range(len(work.tokens)), key=lambda at: len(work.tokens[at].ids))
        left = deque(order)

        async def take() -> None:
            while left:
                await self._in_its_turn(work, left.popleft(), context)

        try:
            async with asyncio.TaskGroup() as group:
                for _ in range(min(self._window, len(left))):
                    group.create_task(take())
        except BaseExceptionGroup as failures:
            raise failures.exceptions[0] from None

    async def _in_its_turn(self, work: "_Work", at: int, context: Context) -> None:
        """One of several texts: a request that is half done waits where a new one is refused."""
        while True:
            try:
                await self._text(work, at, context)
                return
            except Overloaded:
                if not work.queue_ns:
                    raise
            await asyncio.sleep(ROOM_S)

    async def _text(self, work: "_Work", at: int, context: Context) -> None:
        fitting, tokens = self._fitting, work.tokens[at]
        count = len(tokens.ids)
        length = fitting.length or (count if self._alone else padded(count))
        length = min(length, fitting.length or max(count, self._model.max_tokens))
        ran = await self._run(fitting.arrays(tokens, length), (fitting.output,), context)
        work.done(at, ran.outputs[fitting.output][0], ran.usage)


@dataclass(slots=True)
class _Work:
    """The texts of one request, and what has come for them."""

    tokens: list[Tokens]
    prepare_ns: int
    given: list[NDArray[Any]] = field(init=False)
    queue_ns: list[int] = field(default_factory=list)
    device_ns: int = 0

    def __post_init__(self) -> None:
        self.given = [_NOTHING] * len(self.tokens)

    def done(self, at: int, given: NDArray[Any], usage: Usage) -> None:
        self.given[at] = given
        self.queue_ns.append(usage.queue_ns)
        self.device_ns += usage.device_ns

    def usage(self) -> Usage:
        return Usage(
            prompt_tokens=sum(len(text.ids) for text in self.tokens),
            queue_ns=min(self.queue_ns),
            device_ns=self.device_ns,
            prepare_ns=self.prepare_ns,
            rows=len(self.tokens),
        )


_NOTHING: NDArray[Any] = np.empty(0)


def padded(count: int) -> int:
    """The length that a text of so many tokens is padded to: an eighth more at most, from 32 on."""
    step = 4
    while count > step * 16:
        step *= 2
    return -(-count // step) * step
