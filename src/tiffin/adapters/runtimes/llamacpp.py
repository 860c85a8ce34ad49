"""A GGUF model run by llama.cpp inside this process; satisfies `ports.text_runtime.TextRuntime`."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from types import TracebackType
from typing import Any, Final, Self

from tiffin.adapters.runtimes.cadence import Cadence, interval_s
from tiffin.adapters.runtimes.engine import Chance, Engine, Event, Extent, Line, Pool, Stream
from tiffin.adapters.runtimes.gguf import read_vocabulary
from tiffin.adapters.runtimes.prompts import Prompts, Properties
from tiffin.adapters.runtimes.sampling import SEEDS, demand, parameters
from tiffin.adapters.runtimes.schema import Grammars, Witness
from tiffin.config.models import LlamacppModel
from tiffin.errors import RunFailed
from tiffin.ports.text_runtime import Capabilities, Delta, Prompt, TokenLogprob
from tiffin.types.text import ChatRequest, CompletionRequest, Message, Tool
from tiffin.types.usage import Usage

CLOSING_TURNS: Final = 5
# What a token's log-probability is where the sampler ruled it out; OpenAI sends the same.
IMPOSSIBLE: Final = -9999.0


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
        extent = Extent(spec.context, spec.slots, threads, spec.cache_type)
        self._engine = Engine(model_path, engine_socket, extent)
        self._pool = backend
        self._line = Line(backend)
        self._grammars = Grammars()

    async def load(self) -> Capabilities:
        """Start the engine; the process stands still while it loads. Raises `LoadFailed`."""
        self._vocabulary = await asyncio.to_thread(read_vocabulary, self._path)
        await asyncio.to_thread(self._engine.start)
        properties = await self._line.ask("/props", None, Properties)
        self._capabilities = Capabilities(
            context_tokens=min(self._spec.context, properties.default_generation_settings.n_ctx),
            slots=self._spec.slots,
            tools=self._spec.tools and properties.chat_template_caps.supports_tools,
            chat=self._vocabulary.chat,
        )
        self._prompts = Prompts(self._line, self._vocabulary, self._capabilities)
        return self._capabilities

    async def prepare(self, request: ChatRequest | CompletionRequest) -> list[Prompt]:
        """Check and tokenize; raises an `InvalidRequest` that names the parameter."""
        context = self._capabilities.context_tokens
        sampling = parameters(request, self._vocabulary, context)
        if isinstance(request, CompletionRequest):
            return await self._prompts.of_completion(request, sampling)
        self._prompts.check_chat(request.messages, request.tools)
        await self._demand(request, sampling)
        return [await self._prompts.of_chat(request, sampling)]

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
        spec = self._spec
        longest_s = interval_s(spec.stream_interval_ms, spec.between_tokens_timeout_s)
        cadence = Cadence(longest_s, prompt.answer_tokens)
        stream = self._line.stream(question, cadence)
        return Run(stream, len(prompt.tokens), self._prompts.spell_known, rivals, witness)

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
            return await self._prompts.text(text or "", special=special)
        return await self._prompts.messages(messages, tools)

    async def detokenize(self, tokens: list[int]) -> str:
        """The text of ids; what isn't whole characters shows as U+FFFD."""
        return await self._prompts.spell(tokens)

    async def close(self) -> None:
        """End the engine; whatever still runs there ends with it."""
        self._pool.close()
        # The loop needs a few turns to really close them, and the engine's end, which holds the
        # interpreter, waits for every client that hasn't gone.
        for _ in range(CLOSING_TURNS):
            await asyncio.sleep(0)
        await asyncio.to_thread(self._engine.stop)

    async def _demand(self, request: ChatRequest, sampling: dict[str, Any]) -> None:
        """Put the grammar of what the whole answer must be among the parameters."""
        demanded = demand(request)
        if demanded is None:
            return
        for param, schema in demanded.parts:
            await asyncio.to_thread(self._grammars.compile, schema, param)
        sampling["grammar"] = await asyncio.to_thread(
            self._grammars.compile, demanded.schema, demanded.param
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
