"""A GGUF model run by OpenVINO GenAI in this process; satisfies `ports.text_runtime.TextRuntime`.

llama.cpp reads for it: the same template and tokens from the same vocabulary, with the weights left
on disk. What OpenVINO can't honour is refused by name.
"""

import asyncio
import secrets
from collections import deque
from collections.abc import AsyncIterator
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self

from tiffin.adapters.runtimes.cadence import interval_s
from tiffin.adapters.runtimes.engine import READING, Engine, Extent, Line, Pool
from tiffin.adapters.runtimes.gguf import read_vocabulary
from tiffin.adapters.runtimes.openvino_engine import Emitted, OpenvinoEngine, Work
from tiffin.adapters.runtimes.prompts import Prompts, Properties
from tiffin.adapters.runtimes.sampling import SEEDS, demand, parameters, wanted_rivals
from tiffin.adapters.runtimes.spelling import Spelling, read_spelling
from tiffin.adapters.runtimes.stops import Stops
from tiffin.config.models import LlamacppModel
from tiffin.errors import LoadFailed, RunFailed, UnsupportedParameter
from tiffin.ports.text_runtime import Capabilities, Delta, Prompt, TokenLogprob
from tiffin.types.text import ChatRequest, CompletionRequest, Message, Tool
from tiffin.types.usage import Usage

CLOSING_TURNS: Final = 5
_AS_THEY_ARE: Final[tuple[str, ...]] = ("presence_penalty", "frequency_penalty")


class OpenvinoRuntime:
    """One model and its engine; `backend` leads to `engine_socket`, where llama.cpp reads."""

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
        self._threads = max(threads, 1)
        self._link = Path(engine_socket).with_suffix(".gguf")
        self._reader = Engine(model_path, engine_socket, READING, reading=True)
        self._engine: OpenvinoEngine | None = None
        self._pool = backend
        self._line = Line(backend)

    @property
    def busy(self) -> bool:
        """Whether the engine has anything to compute."""
        return self._engine is not None and self._engine.busy

    async def load(self) -> Capabilities:
        """Load both; the process stands still for parts of it. Raises `LoadFailed`."""
        spec = self._spec
        self._vocabulary = await asyncio.to_thread(read_vocabulary, self._path)
        self._spelling = await asyncio.to_thread(read_spelling, self._path)
        context = min(spec.context, self._spelling.context or spec.context)
        extent = Extent(context, spec.slots, self._threads, spec.cache_type)
        self._engine = OpenvinoEngine(self._path, self._link, extent)
        await asyncio.to_thread(self._engine.start)
        await asyncio.to_thread(self._reader.start)
        properties = await self._line.ask("/props", None, Properties)
        self._capabilities = Capabilities(
            context_tokens=context,
            slots=spec.slots,
            tools=spec.tools and properties.chat_template_caps.supports_tools,
            chat=self._vocabulary.chat,
        )
        self._prompts = Prompts(self._line, self._vocabulary, self._capabilities)
        return self._capabilities

    async def prepare(self, request: ChatRequest | CompletionRequest) -> list[Prompt]:
        """Check and tokenize; raises an `InvalidRequest` that names the parameter."""
        sampling = parameters(request, self._vocabulary, self._capabilities.context_tokens)
        _refuse(request)
        if isinstance(request, CompletionRequest):
            return await self._prompts.of_completion(request, sampling)
        self._prompts.check_chat(request.messages, request.tools)
        return [await self._prompts.of_chat(request, sampling)]

    def start(self, prompt: Prompt, *, slot: int, sample: int, reuse_prefix: bool) -> "Answering":
        """Generate; the engine knows no slots, and remembers no prefix."""
        if self._engine is None:
            raise LoadFailed("the engine isn't loaded")
        settings = {
            **_settings(prompt.sampling, sample),
            "max_new_tokens": prompt.answer_tokens,
            "stop_token_ids": set(self._spelling.ends),
        }
        return Answering(
            self._engine,
            prompt,
            settings,
            self._spelling,
            interval_s(self._spec.stream_interval_ms, self._spec.between_tokens_timeout_s),
        )

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
        """End both engines; whatever still runs there ends with it."""
        self._pool.close()
        for _ in range(CLOSING_TURNS):
            await asyncio.sleep(0)
        if self._engine is not None:
            await asyncio.to_thread(self._engine.stop)
        await asyncio.to_thread(self._reader.stop)


class Answering:
    """One answer: entering begins it, iterating gives its steps, leaving stops it."""

    def __init__(
        self,
        engine: OpenvinoEngine,
        prompt: Prompt,
        settings: dict[str, Any],
        spelling: Spelling,
        interval_s: float,
    ) -> None:
        loop = asyncio.get_running_loop()
        self._engine = engine
        self._prompt = prompt
        self._spelling = spelling
        self._text = spelling.text()
        self._stops = Stops(prompt.sampling.get("stop", []))
        self._come: deque[Emitted] = deque()
        self._some = asyncio.Event()
        self._generated = 0
        self._ended = False

        def emit(emitted: Emitted) -> None:
            loop.call_soon_threadsafe(self._take, emitted)

        self._work = Work(prompt.tokens, settings, emit, interval_s)

    async def __aenter__(self) -> Self:
        self._engine.begin(self._work)
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._engine.leave(self._work)

    def __aiter__(self) -> AsyncIterator[Delta]:
        return self

    async def __anext__(self) -> Delta:
        if self._ended:
            raise StopAsyncIteration
        while not self._come:
            self._some.clear()
            await self._some.wait()
        emitted = self._come.popleft()
        if emitted.fault:
            raise RunFailed(f"the engine failed: {emitted.fault}")
        return self._delta(emitted)

    def _take(self, emitted: Emitted) -> None:
        self._come.append(emitted)
        self._some.set()

    def _delta(self, emitted: Emitted) -> Delta:
        texts: list[str] = []
        told: list[TokenLogprob] = []
        before = self._generated
        finish = emitted.finish
        for token, logprob in zip(emitted.tokens, emitted.logprobs, strict=True):
            self._generated += 1
            if token in self._spelling.ends:
                continue
            texts.append(self._stops.read(self._text.add(token)))
            told.append(_told(self._spelling.pieces[token], logprob))
            if self._stops.found:
                finish = "stop"
                break
        if finish:
            self._ended = True
            if not self._stops.found:
                texts += [self._stops.read(self._text.end()), self._stops.end()]
        wanted = self._prompt.sampling["rivals"] is not None
        return Delta(
            text="".join(texts),
            tokens=self._generated - before,
            logprobs=told if wanted and told else None,
            finish=finish or None,
            usage=self._usage(emitted) if finish else None,
        )

    def _usage(self, emitted: Emitted) -> Usage:
        return Usage(
            prompt_tokens=len(self._prompt.tokens),
            completion_tokens=self._generated,
            device_ns=emitted.held_ns,
        )


def _refuse(request: ChatRequest | CompletionRequest) -> None:
    """Raise `UnsupportedParameter` for what OpenVINO can't honour, or not surely."""
    if request.logit_bias:
        raise _cannot("logit_bias", "it takes no bias")
    if wanted_rivals(request):
        name = "logprobs" if isinstance(request, CompletionRequest) else "top_logprobs"
        raise _cannot(name, "it tells the chosen token's alone; ask for 0")
    if isinstance(request, ChatRequest) and (demanded := demand(request)) is not None:
        name = "tool_choice" if demanded.param == "tools" else demanded.param.partition(".")[0]
        raise _cannot(name, "a schema that its grammar can't compile would end others' answers")


def _cannot(param: str, why: str) -> UnsupportedParameter:
    return UnsupportedParameter(
        f"'{param}' is not supported by this model's engine, OpenVINO: {why}; with"
        ' engine = "llamacpp" it is',
        param=param,
    )


def _settings(sampling: dict[str, Any], sample: int) -> dict[str, Any]:
    """llama.cpp's parameters in the words of OpenVINO."""
    settings: dict[str, Any] = {name: sampling[name] for name in _AS_THEY_ARE if name in sampling}
    settings["logprobs"] = 1
    if sampling["temperature"] > 0:
        seed = sampling.get("seed")
        drawn = secrets.randbelow(SEEDS) if seed is None else (seed + sample) % SEEDS
        settings |= {
            "do_sample": True,
            "temperature": sampling["temperature"],
            "top_p": sampling["top_p"],
            "rng_seed": drawn,
        }
    return settings


def _told(piece: bytes, logprob: float) -> TokenLogprob:
    return TokenLogprob(
        token=piece.decode("utf-8", "replace"), token_bytes=list(piece), logprob=logprob
    )
