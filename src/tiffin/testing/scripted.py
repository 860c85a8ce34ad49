"""A runtime that does what a test tells it, step by step: nothing happens by itself."""

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from types import TracebackType
from typing import Self

from tiffin.errors import TiffinError
from tiffin.ports.text_runtime import Capabilities, Delta, Prompt
from tiffin.types.text import ChatRequest, CompletionRequest, Message, Tool
from tiffin.types.usage import Usage

Step = Delta | BaseException


def words(text: str, finish: str = "stop") -> list[Step]:
    """An answer of one step a word, and the step that ends it."""
    parts = [Delta(text=word, tokens=1) for word in text.split("_")]
    usage = Usage(prompt_tokens=3, completion_tokens=len(parts))
    return [*parts, Delta(finish=finish, usage=usage)]


class ScriptedRuntime:
    """Satisfies `ports.text_runtime.TextRuntime`.

    Every `start` plays `script`, unless `held` (then it waits before each step for `release`).
    A prompt's tokens are its text's code points.
    """

    def __init__(
        self, script: Sequence[Step], *, slots: int = 1, tools: Sequence[str] = ()
    ) -> None:
        self.script = list(script)
        self.capabilities = Capabilities(context_tokens=4096, slots=slots, tools=bool(tools))
        self.tools = list(tools)
        self.refusal: TiffinError | None = None
        self.held = False
        self.runs: list[Run] = []
        self.running: set[Run] = set()
        self.closed = False
        self.changed = asyncio.Event()
        self._permits = asyncio.Semaphore(0)

    def release(self, steps: int = 1) -> None:
        """Let this many steps happen."""
        for _ in range(steps):
            self._permits.release()

    async def until(self, happened: Callable[[], bool]) -> None:
        """Wait until something holds that changes when a run begins or ends."""
        async with asyncio.timeout(10):
            while not happened():
                self.changed.clear()
                await self.changed.wait()

    async def load(self) -> Capabilities:
        """Loaded at once."""
        if self.refusal is not None:
            raise self.refusal
        return self.capabilities

    async def prepare(self, request: ChatRequest | CompletionRequest) -> list[Prompt]:
        """One prompt for each text."""
        if self.refusal is not None:
            raise self.refusal
        return [
            Prompt(tokens=[ord(c) for c in text], answer_tokens=64, sampling={}, text=text)
            if isinstance(request, CompletionRequest)
            else Prompt(
                tokens=[ord(c) for c in text],
                answer_tokens=64,
                sampling={},
                tool_names=self.tools if request.tools else [],
            )
            for text in _texts(request)
        ]

    def start(self, prompt: Prompt, *, slot: int, sample: int, reuse_prefix: bool) -> "Run":
        """Play the script."""
        return Run(self, prompt, slot, sample, reuse_prefix)

    async def tokenize(
        self,
        *,
        text: str | None,
        messages: list[Message] | None,
        tools: list[Tool] | None,
        special: bool,
    ) -> list[int]:
        """Code points; a zero first where `special`."""
        shown = text or "".join(str(message.content) for message in messages or ())
        return [0] * special + [ord(c) for c in shown]

    async def detokenize(self, tokens: list[int]) -> str:
        """The text of code points."""
        return "".join(chr(token) for token in tokens)

    async def close(self) -> None:
        """Closed."""
        self.closed = True

    async def permit(self) -> None:
        """Wait for the next step's turn."""
        if self.held:
            await self._permits.acquire()


class Run:
    """One `start` of a `ScriptedRuntime`, with what it was given."""

    def __init__(
        self, runtime: ScriptedRuntime, prompt: Prompt, slot: int, sample: int, reuse_prefix: bool
    ) -> None:
        self.prompt = prompt
        self.slot = slot
        self.sample = sample
        self.reuse_prefix = reuse_prefix
        self._runtime = runtime
        self._steps = iter(runtime.script)

    async def __aenter__(self) -> Self:
        if any(run.slot == self.slot for run in self._runtime.running):
            raise AssertionError(f"slot {self.slot} has two holders")
        self._runtime.runs.append(self)
        self._runtime.running.add(self)
        self._runtime.changed.set()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._runtime.running.discard(self)
        self._runtime.changed.set()

    def __aiter__(self) -> AsyncIterator[Delta]:
        return self

    async def __anext__(self) -> Delta:
        await self._runtime.permit()
        step = next(self._steps, None)
        if step is None:
            raise StopAsyncIteration
        if isinstance(step, BaseException):
            raise step
        return step


def _texts(request: ChatRequest | CompletionRequest) -> list[str]:
    if isinstance(request, ChatRequest):
        return [str(request.messages[-1].content)]
    if isinstance(request.prompt, str):
        return [request.prompt]
    return [text for text in request.prompt if isinstance(text, str)]
