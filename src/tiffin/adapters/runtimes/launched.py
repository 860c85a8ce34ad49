"""A language model in an engine that we launch; satisfies `ports.text_runtime.TextRuntime`.

The engine runs as a child of this process and speaks OpenAI's API to it alone. What it is asked is
what the client asked, so templates, grammars and sampling are the engine's own.
"""

import math
import secrets
from collections.abc import Callable
from typing import Any, Final

import msgspec

from tiffin.adapters.runtimes.launch_table import PROFILES
from tiffin.adapters.runtimes.launched_child import Address, EngineChild, Place
from tiffin.adapters.runtimes.launched_line import EngineLine, Pool, said
from tiffin.adapters.runtimes.launched_stream import LaunchedRun
from tiffin.adapters.runtimes.prompts import answer_room, wanted_tokens
from tiffin.adapters.runtimes.sampling import offered_tools
from tiffin.config.models import LaunchedModel
from tiffin.dialects.openai.parameters import refuse_unsupported
from tiffin.errors import (
    InvalidRequest,
    LoadFailed,
    TiffinError,
    UnsupportedOperation,
    UnsupportedParameter,
)
from tiffin.ports.backend import Call
from tiffin.ports.launcher import Launcher
from tiffin.ports.text_runtime import Capabilities, Prompt
from tiffin.serving.engine_measures import EngineNumbers
from tiffin.telemetry import log
from tiffin.types.text import ChatRequest, CompletionRequest, Message, Tool

# Left of the time for loading, so that the reason is told before somebody else's patience ends.
TELLING_SHARE: Final = 0.95
SEEDS: Final = 2**31
BYTES_A_TOKEN: Final = 4

# What only we act on, and what is said to the engine anew.
_OURS: Final = (
    *("model", "n", "stream", "stream_options", "max_tokens", "max_completion_tokens", "seed"),
    *("user", "metadata", "safety_identifier", "prompt_cache_key", "store", "service_tier"),
    *("echo", "best_of", "suffix", "prompt"),
)

Connect = Callable[[Address], Pool]


class LaunchedRuntime:
    """One engine and its model; `connect` makes connections to where it listens."""

    def __init__(
        self, spec: LaunchedModel, place: Place, launcher: Launcher, connect: Connect
    ) -> None:
        self._spec = spec
        self._profile = PROFILES[spec.engine]
        self._name = place.name
        self._child = EngineChild(spec, place, launcher)
        self._line = EngineLine(connect(self._child.address), self._profile, place.name)
        self._counts = True
        self._context = spec.context
        self._salts: dict[int, str] = {}

    @property
    def fault(self) -> str:
        """Why the engine isn't running although it should; empty while all is well."""
        return self._child.fault

    async def load(self) -> Capabilities:
        """Start the engine and wait until it really answered; raises `LoadFailed`."""
        try:
            await self._child.start()
            within_s = self._spec.load_timeout_s * TELLING_SHARE
            await self._child.wait_for(self._line.healthy, within_s)
            longest = await self._line.longest()
            self._context = min(self._spec.context, longest or self._spec.context)
            await self._try_tokens()
            await self._try_answer()
        except BaseException:
            await self._child.stop()
            raise
        return Capabilities(
            context_tokens=self._context,
            slots=self._spec.slots,
            tools=self._spec.tools,
            chat=self._spec.chat,
        )

    async def prepare(self, request: ChatRequest | CompletionRequest) -> list[Prompt]:
        """Check and count; raises an `InvalidRequest` that names the parameter."""
        refuse_unsupported(request, self._profile.refused)
        if isinstance(request, ChatRequest):
            return [await self._prepare_chat(request)]
        return [
            await self._prepare_text(request, prompt, index)
            for index, prompt in enumerate(_prompts(request.prompt))
        ]

    def start(self, prompt: Prompt, *, slot: int, sample: int, reuse_prefix: bool) -> LaunchedRun:
        """Ask the engine; `slot` counts for what may be remembered only."""
        question = dict(prompt.sampling)
        path = question.pop("path")
        if "seed" in question:
            question["seed"] = (question["seed"] + sample) % SEEDS
        if self._profile.salted:
            if not reuse_prefix or slot not in self._salts:
                self._salts[slot] = secrets.token_hex(16)
            question["cache_salt"] = self._salts[slot]
        call = Call(path, msgspec.json.encode(question), b"", math.inf)
        return LaunchedRun(self._line.pool, call, len(prompt.tokens))

    async def tokenize(
        self,
        *,
        text: str | None,
        messages: list[Message] | None,
        tools: list[Tool] | None,
        special: bool,
    ) -> list[int]:
        """The ids of a text or of messages, by the engine's word."""
        if not self._counts or (messages is not None and not self._profile.counts_chat):
            raise UnsupportedOperation("this model's engine doesn't tell these tokens")
        if messages is None:
            return await self._line.text_tokens(text or "", special=special)
        self._check_chat(messages, tools)
        return await self._line.chat_tokens(messages, tools)

    async def detokenize(self, tokens: list[int]) -> str:
        """The text of ids, by the engine's word."""
        if not self._counts:
            raise UnsupportedOperation("this model's engine doesn't turn tokens into text")
        return await self._line.spell(tokens)

    async def numbers(self) -> EngineNumbers:
        """What the engine says about itself; raises `TiffinError` where it doesn't answer."""
        return await self._line.numbers()

    async def healthy(self) -> bool:
        """Whether the engine answers that it is."""
        return await self._line.healthy()

    async def close(self) -> None:
        """End the engine; what runs there ends with it."""
        self._line.pool.close()
        await self._child.stop()

    async def _try_tokens(self) -> None:
        try:
            await self._line.text_tokens("Hello", special=True)
        except TiffinError as error:
            self._counts = False
            log.info("the engine doesn't tell tokens, so they are guessed", why=error.message)

    async def _try_answer(self) -> None:
        """A token of an answer: an engine calls itself healthy before it can do that."""
        request = CompletionRequest(model=self._name, prompt="Hello", max_tokens=1)
        try:
            [prompt] = await self.prepare(request)
            async with self.start(prompt, slot=0, sample=0, reuse_prefix=False) as deltas:
                async for _ in deltas:
                    pass
        except TiffinError as error:
            raise LoadFailed(f"{self._spec.engine} doesn't answer: {error.message}") from error

    async def _prepare_chat(self, request: ChatRequest) -> Prompt:
        self._check_chat(request.messages, request.tools)
        tools = offered_tools(request)
        if self._counts:
            tokens = await self._line.chat_tokens(request.messages, tools)
        else:
            tokens = _guessed(said(request.messages))
        question = self._question(request, b"/v1/chat/completions")
        if request.logprobs:
            question["top_logprobs"] = request.top_logprobs or 0
        names = [tool.function.name for tool in tools]
        return self._prompt(tokens, request, question, tool_names=names)

    async def _prepare_text(
        self, request: CompletionRequest, prompt: str | list[int], index: int
    ) -> Prompt:
        question = self._question(request, b"/v1/completions")
        question["prompt"] = prompt
        if isinstance(prompt, str):
            text = prompt
            counted = self._counts
            tokens = (
                await self._line.text_tokens(prompt, special=True) if counted else _guessed(prompt)
            )
        elif self._profile.prompts_as_tokens:
            tokens = prompt
            text = await self.detokenize(prompt) if request.echo else ""
        else:
            raise UnsupportedParameter(
                f"prompts given as tokens aren't supported by this model's engine: prompt {index}",
                param="prompt",
            )
        return self._prompt(tokens, request, question, text=text)

    def _question(self, request: ChatRequest | CompletionRequest, path: bytes) -> dict[str, Any]:
        """What the engine is asked, whatever the prompt."""
        question: dict[str, Any] = msgspec.to_builtins(request)
        for name in _OURS:
            question.pop(name, None)
        options: dict[str, Any] = {"include_usage": True}
        if self._profile.counts_always:
            options["continuous_usage_stats"] = True
        question |= {"path": path, "model": self._name, "stream": True, "stream_options": options}
        # Engines take other defaults from the model's files; OpenAI's are these.
        question.setdefault("temperature", 1.0)
        question.setdefault("top_p", 1.0)
        if request.seed is not None:
            question["seed"] = request.seed % SEEDS
        return question

    def _prompt(
        self,
        tokens: list[int],
        request: ChatRequest | CompletionRequest,
        question: dict[str, Any],
        *,
        text: str = "",
        tool_names: list[str] | None = None,
    ) -> Prompt:
        most = answer_room(request, len(tokens), self._context, exact=self._counts)
        chat = isinstance(request, ChatRequest)
        exact = self._counts and (not chat or self._profile.counts_chat)
        if wanted_tokens(request) or exact or not chat:
            question["max_tokens"] = most
        return Prompt(
            tokens=tokens,
            answer_tokens=most,
            sampling=question,
            text=text,
            tool_names=tool_names or [],
        )

    def _check_chat(self, messages: list[Message], tools: list[Tool] | None) -> None:
        if not self._spec.chat:
            raise InvalidRequest(
                "this model has no chat template; use /v1/completions", param="messages"
            )
        if self._spec.tools:
            return
        if tools:
            raise _no_tools("tools")
        for index, message in enumerate(messages):
            if message.role == "tool":
                raise _no_tools(f"messages[{index}].role")
            if message.tool_calls:
                raise _no_tools(f"messages[{index}].tool_calls")


def _prompts(given: Any) -> list[str | list[int]]:
    if isinstance(given, str) or isinstance(given[0], int):
        return [given]
    return list(given)


def _guessed(text: str) -> list[int]:
    """Numbers for pieces of a text, so that prompts that begin alike have numbers that do."""
    data = text.encode()
    return [
        int.from_bytes(data[at : at + BYTES_A_TOKEN], "big")
        for at in range(0, len(data), BYTES_A_TOKEN)
    ]


def _no_tools(param: str) -> UnsupportedParameter:
    return UnsupportedParameter(f"'{param}' is not supported: this model has no tools", param=param)
