"""Vectors and scores of texts: tokens, batches of like length, pooling. Nothing is shared.

Every text is a row of its own to the batcher, padded up to the next of a few lengths, so that texts
of all requests run together with little waste. A graph whose rows aren't independent (`alone`) gets
each text by itself and unpadded: what others ask then can't change an answer.
"""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from time import perf_counter_ns
from typing import Any, Final, Generic, TypeVar

import numpy as np
from numpy.typing import NDArray

from tiffin.errors import InvalidRequest, Overloaded, SchemaViolation, UnsupportedParameter
from tiffin.ports.tokenizer import Tokens
from tiffin.serving.context import Context
from tiffin.serving.replica import draining
from tiffin.serving.tensors.waiting import Ran
from tiffin.serving.texts.fitting import Fitting, Manner
from tiffin.serving.texts.pooling import Vector, finished, pooled, score
from tiffin.serving.texts.reading import Reader, named
from tiffin.types.usage import Usage

# How long a request that is half done waits before it looks for room in the queue again.
ROOM_S: Final = 0.02

R = TypeVar("R")

Run = Callable[[Mapping[str, NDArray[Any]], tuple[str, ...], Context], Awaitable[Ran]]
"""Runs one row among others' and gives its own of the named outputs."""


class Encoder:
    """One model of texts. `window` is how many texts of one request are in the queue at most."""

    def __init__(
        self,
        model: Manner,
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
        self._inside = 0
        self._closed = False
        self._idle = asyncio.Event()

    async def embed(
        self, inputs: Sequence[str | list[int]], dimensions: int | None, context: Context
    ) -> tuple[list[bytes], Usage]:
        """A vector for each input as little-endian 32-bit floats; raises `InvalidRequest`."""
        wanted = self._dimensions(dimensions)
        with self._entered():
            began = perf_counter_ns()
            read = await self._reader.texts(inputs)
            context.check_length(sum(len(one.ids) for one in read), "input")
            work: _Work[Vector] = _Work("input", read, self._vector)
            work.prepare_ns = perf_counter_ns() - began
            await self._compute(work, context)
        return finished(work.results, wanted, normalize=self._model.normalize), work.usage()

    async def rerank(
        self, query: str, documents: Sequence[str], context: Context
    ) -> tuple[list[float], Usage]:
        """How relevant each document is to the query, 0 to 1; raises `InvalidRequest`."""
        with self._entered():
            began = perf_counter_ns()
            tokens = await self._reader.pairs(query, documents)
            context.check_length(sum(len(one.ids) for one in tokens), "documents")
            work: _Work[float] = _Work("documents", tokens, _score)
            work.prepare_ns = perf_counter_ns() - began
            await self._compute(work, context)
        return work.results, work.usage()

    async def drain(self, within_s: float) -> None:
        """Take no more requests, and wait so long for those that have begun: all their texts."""
        self._closed = True
        self._idle.clear()
        if self._inside:
            with suppress(TimeoutError):
                async with asyncio.timeout(within_s):
                    await self._idle.wait()

    @contextmanager
    def _entered(self) -> Iterator[None]:
        if self._closed:
            raise draining()
        self._inside += 1
        try:
            yield
        finally:
            self._inside -= 1
            if not self._inside:
                self._idle.set()

    def _vector(self, given: NDArray[Any], tokens: int) -> Vector:
        """A text's vector, without the batch that it came in."""
        if self._fitting.by_token:
            given = pooled(given, tokens, self._model.pooling)
        return given.astype(np.float32)

    def _padded(self, count: int) -> int:
        """A length that others have too, and no more than the model reads."""
        return max(count, min(padded(count), self._model.max_tokens))

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

    async def _compute(self, work: "_Work[Any]", context: Context) -> None:
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

    async def _in_its_turn(self, work: "_Work[Any]", at: int, context: Context) -> None:
        """One of several texts: a request that is half done waits where a new one is refused."""
        while True:
            try:
                await self._text(work, at, context)
                return
            except Overloaded:
                if not work.begun:
                    raise
            await asyncio.sleep(ROOM_S)

    async def _text(self, work: "_Work[Any]", at: int, context: Context) -> None:
        fitting, tokens = self._fitting, work.tokens[at]
        count = len(tokens.ids)
        length = fitting.length or (count if self._alone else self._padded(count))
        try:
            ran = await self._run(fitting.arrays(tokens, length), (fitting.output,), context)
        except InvalidRequest as error:
            name = work.name(at)
            raise SchemaViolation(f"'{name}': {error.message}", param=name) from error
        work.done(at, ran.outputs[fitting.output][0], ran.usage)


class _Work(Generic[R]):
    """The texts of one request, and what has come for them: `take` makes a result of an output."""

    def __init__(
        self, param: str, tokens: list[Tokens], take: Callable[[NDArray[Any], int], R]
    ) -> None:
        self.tokens = tokens
        self.prepare_ns = 0
        self.begun = False
        self._param = param
        self._take = take
        self._results: dict[int, R] = {}
        self._queue_ns: list[int] = []
        self._device_ns = 0

    @property
    def results(self) -> list[R]:
        """One for each text, in their order, once all are done."""
        return [self._results[at] for at in range(len(self.tokens))]

    def name(self, at: int) -> str:
        """What a text is called in the request."""
        return named(self._param, at, len(self.tokens))

    def done(self, at: int, given: NDArray[Any], usage: Usage) -> None:
        """A text's own row of the output, and what it took."""
        self.begun = True
        self._results[at] = self._take(given, len(self.tokens[at].ids))
        self._queue_ns.append(usage.queue_ns)
        self._device_ns += usage.device_ns

    def usage(self) -> Usage:
        """Of all texts: the wait of the one that waited least, the time of all."""
        return Usage(
            prompt_tokens=sum(len(text.ids) for text in self.tokens),
            queue_ns=min(self._queue_ns),
            device_ns=self._device_ns,
            prepare_ns=self.prepare_ns,
            rows=len(self.tokens),
        )


def _score(given: NDArray[Any], _tokens: int) -> float:
    return score(np.atleast_1d(given))


def padded(count: int) -> int:
    """The length that a text of so many tokens is padded to: an eighth more at most, from 32 on."""
    step = 4
    while count > step * 16:
        step *= 2
    return -(-count // step) * step
