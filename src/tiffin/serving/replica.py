"""One loaded model and its queue: requests in, pieces of answers out, nothing left behind.

Leaving an `Answer`, however it is left, stops its work and frees its slots before it returns.
"""

import asyncio
import math
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import NamedTuple, Self

from tiffin.errors import (
    DeadlineExceeded,
    Draining,
    LoadFailed,
    Loading,
    RunFailed,
    SchemaViolation,
    TiffinError,
)
from tiffin.ports.clock import Clock
from tiffin.ports.text_runtime import Capabilities, Delta, Prompt, TextRuntime
from tiffin.serving.context import Context
from tiffin.serving.lanes.claim import Ticket, Work
from tiffin.serving.lanes.slots import Lanes
from tiffin.serving.lanes.turn import Turn
from tiffin.serving.progress import Phase, ProgressFile
from tiffin.serving.timeouts import Timeouts, Watch
from tiffin.types.text import ChatRequest, CompletionRequest, Message
from tiffin.types.usage import Usage

MAX_CHOICES = 128
MAX_PIECES = 256  # that may wait for a slow reader before the engine waits too
WARM_UP_TOKENS = 4
LEAVE_S = 5.0  # for answers that were broken off to stop


class Piece(NamedTuple):
    """A step of one choice."""

    choice: int
    delta: Delta


@dataclass(frozen=True, slots=True)
class Served:
    """What became of one answer. Times are seconds; `reasons` has `abort` for unfinished choices.

    `first_s` is from asking to the first delta, None where none came.
    """

    queue_s: float
    first_s: float | None
    whole_s: float
    usage: Usage
    reasons: list[str]


class Replica:
    """Answers with one runtime, `capabilities.slots` at once, `queue` more waiting.

    `timeouts` end what the model takes too long for.
    """

    def __init__(
        self,
        runtime: TextRuntime,
        clock: Clock,
        progress: ProgressFile,
        observe: Callable[[Served], None],
        timeouts: Timeouts = Timeouts(),  # noqa: B008 - frozen
    ) -> None:
        self.timeouts = timeouts
        self.runtime = runtime
        self.clock = clock
        self.progress = progress
        self.observe = observe
        self.phase = Phase.LOADING
        self.capabilities = Capabilities(context_tokens=0, slots=0)
        self.lanes = Lanes(0, 0, clock)
        self._answers: set[Answer] = set()
        self._idle = asyncio.Event()
        self._idle.set()

    async def load(self, queue: int) -> None:
        """Load the model; raises `LoadFailed`."""
        self.capabilities = await self.runtime.load()
        self.lanes = Lanes(
            self.capabilities.slots, queue, self.clock, queue_timeout_s=self.timeouts.queue_s
        )
        self._enter(Phase.WARMING)

    async def warm_up(self) -> None:
        """Run a real inference the way of all others; ready afterwards. Raises `LoadFailed`."""
        request: ChatRequest | CompletionRequest
        if self.capabilities.chat:
            message = Message(role="user", content="Hello")
            request = ChatRequest(
                model="", messages=[message], max_completion_tokens=WARM_UP_TOKENS
            )
        else:
            request = CompletionRequest(model="", prompt="Hello", max_tokens=WARM_UP_TOKENS)
        try:
            prompts = await self.runtime.prepare(request)
            async with Answer(self, prompts, 1, Context()) as answer:
                async for _ in answer:
                    pass
        except TiffinError as error:
            raise LoadFailed(f"the warm-up failed: {error.message}") from error
        self._enter(Phase.READY)

    async def prepare(
        self, request: ChatRequest | CompletionRequest, context: Context
    ) -> list[Prompt]:
        """Everything that can refuse the request before it queues; raises `InvalidRequest`."""
        self.check()
        async with Within(context.deadline, self.clock):
            prompts = await self.runtime.prepare(request)
        param = "messages" if isinstance(request, ChatRequest) else "prompt"
        context.check_length(sum(len(one.tokens) for one in prompts), param)
        return prompts

    def answer(self, prompts: Sequence[Prompt], n: int, context: Context) -> "Answer":
        """`n` choices for every prompt, numbered prompt by prompt; work begins on entering."""
        self.check()
        return Answer(self, prompts, n, context)

    def check(self) -> None:
        """Raise the reason why nothing can be answered now, if there is one."""
        if self.phase is Phase.DRAINING:
            raise draining()
        if self.phase is not Phase.READY:
            raise Loading(f"the model is {self.phase.name.lower()}", retry_after=1.0)

    async def drain(self, within_s: float) -> None:
        """Refuse what waits, let what runs finish, and break off what hasn't after `within_s`."""
        self._enter(Phase.DRAINING)
        self.lanes.close(draining)
        if not await self._all_left(within_s):
            for answer in self._answers:
                answer.fail(draining())
            await self._all_left(LEAVE_S)

    def entered(self, answer: "Answer") -> None:
        """An answer is being worked on."""
        self._answers.add(answer)
        self._idle.clear()
        self.progress.outstanding(len(self._answers))

    def left(self, answer: "Answer") -> None:
        """Its work has stopped."""
        self._answers.discard(answer)
        self.progress.outstanding(len(self._answers))
        if not self._answers:
            self._idle.set()

    async def _all_left(self, within_s: float) -> bool:
        try:
            async with asyncio.timeout(within_s):
                await self._idle.wait()
        except TimeoutError:
            return False
        return True

    def _enter(self, phase: Phase) -> None:
        if self.phase is Phase.DRAINING:
            return
        self.phase = phase
        self.progress.phase(phase)


class Answer:
    """Entering begins the work on every choice; iterating gives all pieces that have come since.

    Pieces keep their order within a choice. The last one of a choice carries `finish`; `usage` is
    complete after the last. An error of any choice is raised after the pieces before it.
    """

    def __init__(
        self, replica: Replica, prompts: Sequence[Prompt], n: int, context: Context
    ) -> None:
        if not 1 <= n * len(prompts) <= MAX_CHOICES:
            raise SchemaViolation(
                f"a request may have 1 to {MAX_CHOICES} choices, not {n * len(prompts)}", param="n"
            )
        self._replica = replica
        self._prompts = prompts
        self._n = n
        self._context = context
        self._group = asyncio.TaskGroup()
        self._tasks: list[asyncio.Task[None]] = []
        self._tickets: list[Ticket] = []
        self._pieces: asyncio.Queue[Piece | TiffinError] = asyncio.Queue(MAX_PIECES)
        self._failure: TiffinError | None = None
        self._reasons: dict[int, str] = {}
        self._asked = 0.0
        self._first_s: float | None = None
        self._usage = Usage()

    @property
    def choices(self) -> int:
        """How many choices the answer has."""
        return self._n * len(self._prompts)

    @property
    def usage(self) -> Usage:
        """Prompts once each, answers of all choices, device time of all, the wait for the first."""
        return self._usage

    @property
    def so_far(self) -> Usage:
        """What it has taken while it still goes on, as far as is known; `usage` says it at last."""
        now = self._replica.clock.monotonic()
        held_s = sum(now - ticket.started for ticket in self._tickets if ticket.started)
        return Usage(
            prompt_tokens=sum(len(prompt.tokens) for prompt in self._prompts),
            queue_ns=int(self._queued_s() * 1e9),
            device_ns=int(held_s * 1e9),
            measured=False,
        )

    def fail(self, error: TiffinError) -> None:
        """Break the answer off: whoever iterates gets this error next."""
        if self._pieces.full():
            self._pieces.get_nowait()
        self._pieces.put_nowait(error)

    async def __aenter__(self) -> Self:
        replica, context = self._replica, self._context
        order = [prompt for prompt in self._prompts for _ in range(self._n)]
        self._asked = replica.clock.monotonic()
        works = [Work(prompt.tokens, prompt.answer_tokens) for prompt in order]
        self._tickets = replica.lanes.ask(context.claim(), works)
        replica.entered(self)
        await self._group.__aenter__()
        self._tasks = [
            self._group.create_task(self._run(choice, prompt, ticket))
            for choice, (prompt, ticket) in enumerate(zip(order, self._tickets, strict=True))
        ]
        return self

    def __aiter__(self) -> AsyncIterator[list[Piece]]:
        return self

    async def __anext__(self) -> list[Piece]:
        if self._failure is not None:
            raise self._failure
        if len(self._reasons) == self.choices and self._pieces.empty():
            raise StopAsyncIteration
        pieces: list[Piece] = []
        item = await self._pieces.get()
        while True:
            if isinstance(item, TiffinError):
                self._failure = item
                break
            pieces.append(item)
            if self._pieces.empty():
                break
            item = self._pieces.get_nowait()
        if not pieces and self._failure is not None:
            raise self._failure
        return pieces

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for task in self._tasks:
            task.cancel()
        cancelled = isinstance(error, asyncio.CancelledError)
        try:
            # The group is told of a cancellation only: any other error is not its to wrap.
            await self._group.__aexit__(*((kind, error, trace) if cancelled else (None,) * 3))
        except BaseExceptionGroup as group:
            raise group.exceptions[0] from None
        finally:
            for ticket in self._tickets:
                self._replica.lanes.leave(ticket)
            self._replica.left(self)
            self._report()

    async def _run(self, choice: int, prompt: Prompt, ticket: Ticket) -> None:
        replica = self._replica
        try:
            async with (
                Within(self._context.deadline, replica.clock),
                Turn(replica.lanes, ticket) as held,
                Watch(replica.timeouts) as watch,
                replica.runtime.start(
                    prompt,
                    slot=held.slot,
                    sample=choice % self._n,
                    reuse_prefix=held.reuse_prefix,
                ) as deltas,
            ):
                async for delta in deltas:
                    watch.came()
                    self._came(ticket, delta)
                    if delta.finish is not None:
                        self._finished(choice, ticket, delta)
                    await self._pieces.put(Piece(choice, delta))
                    if delta.finish is not None:
                        return
                    watch.waits()
                raise RunFailed("the engine broke the answer off")
        except TiffinError as error:
            await self._pieces.put(error)

    def _came(self, ticket: Ticket, delta: Delta) -> None:
        self._replica.progress.step()
        self._replica.lanes.came(ticket, delta.tokens)
        if self._first_s is None:
            self._first_s = self._replica.clock.monotonic() - self._asked

    def _finished(self, choice: int, ticket: Ticket, delta: Delta) -> None:
        self._reasons[choice] = delta.finish or ""
        of, all_ = delta.usage or Usage(), self._usage
        ticket.done = max(ticket.done, of.completion_tokens)
        ticket.ended = delta.finish == "stop"
        once = choice % self._n == 0  # a prompt's tokens count once, whatever `n` is
        held_s = self._replica.clock.monotonic() - ticket.started
        self._usage = Usage(
            prompt_tokens=all_.prompt_tokens + once * of.prompt_tokens,
            cached_tokens=all_.cached_tokens + once * of.cached_tokens,
            completion_tokens=all_.completion_tokens + of.completion_tokens,
            queue_ns=int(self._queued_s() * 1e9),
            device_ns=all_.device_ns + int(held_s * 1e9),
            measured=all_.measured and of.measured,
            reason=self._tickets[0].reason,
        )

    def _queued_s(self) -> float:
        return min((t.started - t.asked for t in self._tickets if t.started), default=0.0)

    def _report(self) -> None:
        if self._replica.phase is Phase.WARMING:
            return
        whole_s = self._replica.clock.monotonic() - self._asked
        reasons = [self._reasons.get(choice, "abort") for choice in range(self.choices)]
        served = Served(self._queued_s(), self._first_s, whole_s, self._usage, reasons)
        self._replica.observe(served)


class Within:
    """Raises `DeadlineExceeded` where what it holds isn't done by a monotonic moment."""

    __slots__ = ("_timeout",)

    def __init__(self, deadline: float, clock: Clock) -> None:
        left = deadline - clock.monotonic()
        self._timeout = asyncio.timeout(None if left == math.inf else left)

    async def __aenter__(self) -> None:
        await self._timeout.__aenter__()

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        try:
            await self._timeout.__aexit__(kind, error, trace)
        except TimeoutError:
            raise DeadlineExceeded("the deadline passed before the answer was complete") from None


def draining() -> Draining:
    """The refusal of a replica that is stopping."""
    return Draining("the replica is stopping", retry_after=1.0)
