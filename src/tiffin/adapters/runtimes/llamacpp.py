"""A GGUF model run by llama.cpp inside this process; satisfies `ports.text_runtime.TextRuntime`."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from types import TracebackType
from typing import Any, Final, Self

import msgspec

from tiffin.adapters.runtimes.cadence import Cadence
from tiffin.adapters.runtimes.engine import Chance, Engine, Event, Line, Pool, Stream
from tiffin.adapters.runtimes.gguf import read_vocabulary
from tiffin.adapters.runtimes.sampling import (
    COMPLETION_TOKENS,
    SEEDS,
    demand,
    offered_tools,
    parameters,
    wanted_rivals,
)
from tiffin.adapters.runtimes.schema import Grammars, Witness
from tiffin.adapters.runtimes.template import Template
from tiffin.config.models import LlamacppModel
from tiffin.errors import (
    ContextLengthExceeded,
    InvalidRequest,
    RunFailed,
    SchemaViolation,
    UnsupportedParameter,
)
from tiffin.ports.text_runtime import Capabilities, Delta, Prompt, TokenLogprob
from tiffin.types.text import ChatRequest, CompletionRequest, Message, Tool
from tiffin.types.usage import Usage

CLOSING_TURNS: Final = 5
# What a token's log-probability is where the sampler ruled it out; OpenAI sends the same.
IMPOSSIBLE: Final = -9999.0


class _Settings(msgspec.Struct, frozen=True):
    n_ctx: int


class _Abilities(msgspec.Struct, frozen=True):
    supports_tools: bool = False


class _Properties(msgspec.Struct, frozen=True):
    default_generation_settings: _Settings
    chat_template_caps: _Abilities = _Abilities()


class LlamacppRuntime:
    """One model and its engine; `backend` leads to `engine_socket`, which the engine creates."""

    def __init__(
        self,
        model_path: str,
        spec: LlamacppModel,
        threads: int,
        engine_socket: str,
        backend: Pool,
    ) -> None:
        self._path = model_path
        self._spec = spec
        self._engine = Engine(
            model_path, engine_socket, context=spec.context, slots=spec.slots, threads=threads
        )
        self._pool = backend
        self._line = Line(backend)
        self._grammars = Grammars()

    async def load(self) -> Capabilities:
        """Start the engine; the process stands still while it loads. Raises `LoadFailed`."""
        self._vocabulary = await asyncio.to_thread(read_vocabulary, self._path)
        await asyncio.to_thread(self._engine.start)
        properties = await self._line.ask("/props", None, _Properties)
        self._capabilities = Capabilities(
            context_tokens=min(self._spec.context, properties.default_generation_settings.n_ctx),
            slots=self._spec.slots,
            tools=self._spec.tools and properties.chat_template_caps.supports_tools,
            chat=self._vocabulary.chat,
        )
        context = self._capabilities.context_tokens
        self._template = Template(self._line, self._vocabulary, context)
        return self._capabilities

    async def prepare(self, request: ChatRequest | CompletionRequest) -> list[Prompt]:
        """Check and tokenize; raises an `InvalidRequest` that names the parameter."""
        context = self._capabilities.context_tokens
        sampling = parameters(request, self._vocabulary, context)
        if isinstance(request, ChatRequest):
            return [await self._prepare_chat(request, sampling)]
        return [
            self._prompt(tokens, request, sampling, text)
            for text, tokens in await self._read_prompts(request)
        ]

    def start(self, prompt: Prompt, *, slot: int, sample: int, reuse_prefix: bool) -> "Run":
        """Generate in the engine's slot of this number."""
        # Remembered tokens were computed in other batches, whose rounding a seed would show.
        question = {**prompt.sampling, "cache_prompt": reuse_prefix}
        rivals = question.pop("rivals")
        if "seed" in question:
            question["seed"] = (question["seed"] + sample) % SEEDS
            question["cache_prompt"] = False
        question |= {
            "prompt": prompt.tokens,
            "id_slot": slot,
            "n_predict": prompt.answer_tokens,
        }
        grammar = question.get("grammar")
        witness = self._grammars.witness(grammar) if grammar else None
        cadence = Cadence(self._spec.stream_interval_ms / 1000, prompt.answer_tokens)
        stream = self._line.stream(question, cadence)
        return Run(stream, len(prompt.tokens), self._template.spell, rivals, witness)

    async def tokenize(
        self,
        *,
        text: str | None,
        messages: list[Message] | None,
        tools: list[Tool] | None,
        special: bool,
    ) -> list[int]:
        """The ids of a text, or of messages after the chat template."""
        if messages is None:
            return await self._template.text(text or "", special=special, param="prompt")
        self._check_chat(messages, tools)
        return await self._template.chat(messages, tools or [])

    async def detokenize(self, tokens: list[int]) -> str:
        """The text of ids; what isn't whole characters shows as U+FFFD."""
        self._check_tokens(tokens, "tokens")
        return await self._template.spell(tokens)

    async def close(self) -> None:
        """End the engine; whatever still runs there ends with it."""
        self._pool.close()
        # The loop needs a few turns to really close them, and the engine's end, which holds the
        # interpreter, waits for every client that hasn't gone.
        for _ in range(CLOSING_TURNS):
            await asyncio.sleep(0)
        await asyncio.to_thread(self._engine.stop)

    async def _prepare_chat(self, request: ChatRequest, sampling: dict[str, Any]) -> Prompt:
        self._check_chat(request.messages, request.tools)
        demanded = demand(request)
        if demanded is not None:
            for param, schema in demanded.parts:
                await asyncio.to_thread(self._grammars.compile, schema, param)
            sampling["grammar"] = await asyncio.to_thread(
                self._grammars.compile, demanded.schema, demanded.param
            )
        tools = offered_tools(request)
        tokens = await self._template.chat(request.messages, tools)
        names = [tool.function.name for tool in tools]
        return self._prompt(tokens, request, sampling, tool_names=names)

    async def _read_prompts(self, request: CompletionRequest) -> list[tuple[str, list[int]]]:
        """Every prompt as text (where it is known or must be) and as tokens."""
        prompt = request.prompt
        if isinstance(prompt, str) or isinstance(prompt[0], int):
            prompts: list[Any] = [prompt]
        else:
            prompts = prompt
        read = []
        for one in prompts:
            if isinstance(one, str):
                text = one
                tokens = await self._template.text(text, special=True, param="prompt")
            else:
                self._check_tokens(one, "prompt")
                tokens = one
                text = await self._template.spell(tokens) if request.echo else ""
            read.append((text, tokens))
        return read

    def _prompt(
        self,
        tokens: list[int],
        request: ChatRequest | CompletionRequest,
        sampling: dict[str, Any],
        text: str = "",
        tool_names: list[str] | None = None,
    ) -> Prompt:
        chat = isinstance(request, ChatRequest)
        param = "messages" if chat else "prompt"
        if not tokens:
            raise SchemaViolation(f"'{param}' has no tokens", param=param)
        wanted = request.max_completion_tokens if isinstance(request, ChatRequest) else None
        wanted = wanted or request.max_tokens
        left = self._capabilities.context_tokens - len(tokens)
        if left < (wanted or 1):
            raise self._too_long(len(tokens), wanted, param)
        return Prompt(
            tokens=tokens,
            answer_tokens=wanted or (left if chat else min(left, COMPLETION_TOKENS)),
            sampling={**sampling, "rivals": wanted_rivals(request)},
            text=text,
            tool_names=tool_names or [],
        )

    def _too_long(self, tokens: int, wanted: int | None, param: str) -> ContextLengthExceeded:
        context = self._capabilities.context_tokens
        asked = f" and {wanted} tokens of answer were asked for" if wanted else ""
        return ContextLengthExceeded(
            f"this model's context is {context} tokens, but '{param}' has {tokens}{asked};"
            " prompt and answer must fit it together",
            param=param,
        )

    def _check_chat(self, messages: list[Message], tools: list[Tool] | None) -> None:
        if not self._capabilities.chat:
            raise InvalidRequest(
                "this model has no chat template; use /v1/completions", param="messages"
            )
        if self._capabilities.tools:
            return
        if tools:
            raise _no_tools("tools")
        for index, message in enumerate(messages):
            if message.role == "tool":
                raise _no_tools(f"messages[{index}].role")
            if message.tool_calls:
                raise _no_tools(f"messages[{index}].tool_calls")

    def _check_tokens(self, tokens: list[int], param: str) -> None:
        if tokens and max(tokens) >= self._vocabulary.size:
            raise SchemaViolation(
                f"'{param}' has token {max(tokens)}, but this model's last is"
                f" {self._vocabulary.size - 1}",
                param=param,
            )


class Run:
    """One answer: entering sends it to its slot, iterating gives its steps, leaving stops it."""

    def __init__(
        self,
        stream: Stream,
        prompt_tokens: int,
        spell: Callable[[list[int]], Awaitable[str]],
        rivals: int | None,
        witness: Witness | None,
    ) -> None:
        self._stream = stream
        self._prompt_tokens = prompt_tokens
        self._spell = spell
        self._rivals = rivals
        self._witness = witness
        self._generated = 0
        self._held: list[int] = []
        self._ended = False

    async def __aenter__(self) -> Self:
        await self._stream.__aenter__()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self._stream.__aexit__(kind, error, trace)

    def __aiter__(self) -> AsyncIterator[Delta]:
        return self

    async def __anext__(self) -> Delta:
        if self._ended:
            raise StopAsyncIteration
        events = await self._stream.next()
        if (fault := events[0].error) is not None:
            raise RunFailed(f"the engine failed: {fault.message}")
        texts = []
        for event in events:
            text = await self._text(event)
            self._watch(event, text)
            texts.append(text)
        last = events[-1]
        tokens = last.tokens_predicted - self._generated
        self._generated = last.tokens_predicted
        self._ended = last.stop
        return Delta(
            text="".join(texts),
            tokens=tokens,
            logprobs=self._logprobs(events),
            finish=None if not last.stop else "length" if last.stop_type == "limit" else "stop",
            usage=self._usage(last) if last.stop else None,
        )

    def _logprobs(self, events: list[Event]) -> list[TokenLogprob] | None:
        chosen = [one for event in events for one in event.completion_probabilities]
        if self._rivals is None or not chosen:
            return None
        return [_logprob(one, self._rivals) for one in chosen]

    async def _text(self, event: Event) -> str:
        """The event's text; with the last, also what was held back for a stop that never came."""
        if event.content:
            self._held.clear()
        elif not event.stop:
            self._held += event.tokens
        if event.stop_type == "limit" and self._held:
            return event.content + await self._spell(self._held)
        return event.content

    def _watch(self, event: Event, text: str) -> None:
        """Raise `RunFailed` where the engine dropped the grammar, as it does without a word."""
        witness = self._witness
        if witness is None:
            return
        kept = witness.read(text)
        if event.stop and event.stop_type == "eos":
            kept = kept and witness.complete()
        if not kept:
            raise RunFailed("the engine left the schema that the answer must follow")

    def _usage(self, event: Event) -> Usage:
        timings = event.timings
        return Usage(
            prompt_tokens=self._prompt_tokens,
            completion_tokens=event.tokens_predicted,
            cached_tokens=timings.cache_n if timings else 0,
            device_ns=int((timings.prompt_ms + timings.predicted_ms) * 1e6) if timings else 0,
            measured=timings is not None,
        )


def _logprob(chance: Chance, rivals: int) -> TokenLogprob:
    # The engine shows the text that it sent with a token, which differs while it holds some back.
    known = next((rival for rival in chance.top_logprobs if rival.id == chance.id), chance)
    return TokenLogprob(
        token=known.token,
        token_bytes=known.bytes,
        logprob=IMPOSSIBLE if chance.logprob is None else chance.logprob,
        top=[_logprob(rival, 0) for rival in chance.top_logprobs[:rivals]],
    )


def _no_tools(param: str) -> UnsupportedParameter:
    return UnsupportedParameter(f"'{param}' is not supported: this model has no tools", param=param)
