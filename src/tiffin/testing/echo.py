"""A model that says the last message back, word by word: deterministic, with scripted faults.

Public, so that others test their clients, proxies and adapters without a real model.
"""

import asyncio
import re
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from types import TracebackType
from typing import Any, Self

import msgspec

from tiffin.adapters.runtimes import byte_tokens
from tiffin.adapters.runtimes.sampling import (
    COMPLETION_TOKENS,
    Demand,
    demand,
    offered_tools,
    wanted_rivals,
)
from tiffin.adapters.runtimes.schema import Grammars
from tiffin.config.models import EchoModel
from tiffin.errors import (
    ContextLengthExceeded,
    LoadFailed,
    RunFailed,
    SchemaViolation,
    UnsupportedParameter,
)
from tiffin.ports.text_runtime import Capabilities, Delta, Prompt, TokenLogprob
from tiffin.types.snapshot import Deployment
from tiffin.types.text import ChatRequest, CompletionRequest
from tiffin.types.usage import Usage

Sleep = Callable[[float], Awaitable[None]]
_WORD = re.compile(r"\S+\s*|\s+")


class EchoRuntime(byte_tokens.Tokenizing):
    """Satisfies `ports.text_runtime.TextRuntime`; a token is a byte of UTF-8, plus 1 for start.

    `running`, `started`, `finished` and `cancelled` count its runs, so that a test can see that
    leaving stopped the work.
    """

    def __init__(self, deployment: Deployment, *, sleep: Sleep = asyncio.sleep) -> None:
        self.spec = msgspec.json.decode(deployment.spec, type=EchoModel)
        self.sleep = sleep
        self.started = self.finished = self.cancelled = 0
        self.lanes: dict[int, list[int]] = {}

    @property
    def running(self) -> int:
        """Runs that have begun and not ended."""
        return self.started - self.finished - self.cancelled

    async def load(self) -> Capabilities:
        """Takes `load_ms`; raises `LoadFailed` where `fail_load` says so."""
        await self.sleep(self.spec.load_ms / 1000)
        if self.spec.fail_load:
            raise LoadFailed(self.spec.fail_load)
        spec = self.spec
        return Capabilities(context_tokens=spec.context, slots=spec.slots, tools=spec.tools)

    async def prepare(self, request: ChatRequest | CompletionRequest) -> list[Prompt]:
        """One prompt a text; the tokens of chat are all messages', the answer is the last one's.

        Where the answer must follow a schema, the last message must do so already.
        """
        _check_bias(request.logit_bias)
        if isinstance(request, CompletionRequest):
            return [
                self._prompt(request, tokens, byte_tokens.text_of(tokens), "prompt")
                for tokens in byte_tokens.prompts(request.prompt)
            ]
        if request.tools and not self.spec.tools:
            raise UnsupportedParameter("this model has no tools", param="tools")
        said = byte_tokens.said(request.messages[-1])
        if (demanded := demand(request)) is not None:
            said = _obey(demanded, said)
        return [self._prompt(request, byte_tokens.of_messages(request.messages), said, "messages")]

    def start(self, prompt: Prompt, *, slot: int, sample: int, reuse_prefix: bool) -> "EchoRun":
        """Say the prompt's text."""
        cached = 0
        if reuse_prefix:
            for before, now in zip(self.lanes.get(slot, []), prompt.tokens[:-1], strict=False):
                if before != now:
                    break
                cached += 1
        self.lanes[slot] = prompt.tokens
        return EchoRun(self, prompt, cached)

    async def close(self) -> None:
        """Nothing to give back."""

    def _prompt(
        self, request: ChatRequest | CompletionRequest, tokens: list[int], text: str, param: str
    ) -> Prompt:
        if not tokens:
            raise SchemaViolation(f"'{param}' is empty", param=param)
        room = self.spec.context - len(tokens)
        wanted = request.max_tokens
        if isinstance(request, ChatRequest):
            wanted = request.max_completion_tokens or wanted
        if room < (wanted or 1):
            raise ContextLengthExceeded(
                f"this model's context is {self.spec.context} tokens, but the request has"
                f" {len(tokens)} in its {param} and asks for {wanted or 1} more",
                param=param,
            )
        stop = [request.stop] if isinstance(request.stop, str) else request.stop or []
        chat = isinstance(request, ChatRequest)
        tools = offered_tools(request) if isinstance(request, ChatRequest) else []
        return Prompt(
            tokens=tokens,
            answer_tokens=wanted or (room if chat else min(room, COMPLETION_TOKENS)),
            sampling={"stop": stop, "rivals": wanted_rivals(request), "say": text},
            text="" if chat else text,
            tool_names=[tool.function.name for tool in tools],
        )


class EchoRun:
    """One answer."""

    def __init__(self, runtime: EchoRuntime, prompt: Prompt, cached: int) -> None:
        self._runtime = runtime
        self._prompt = prompt
        self._cached = cached
        say = prompt.sampling["say"]
        words = _WORD.findall(_before_any(prompt.sampling["stop"], say)) or [""]
        self._words = words[: prompt.answer_tokens]
        self._finish = "stop" if len(words) <= prompt.answer_tokens else "length"
        self._said = 0
        self._ended = False

    async def __aenter__(self) -> Self:
        self._runtime.started += 1
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._ended:
            self._runtime.finished += 1
        else:
            self._runtime.cancelled += 1

    def __aiter__(self) -> AsyncIterator[Delta]:
        return self

    async def __anext__(self) -> Delta:
        spec = self._runtime.spec
        if self._ended:
            raise StopAsyncIteration
        if self._said == 0:
            await self._runtime.sleep(spec.prefill_ms / 1000)
            _hold_the_interpreter(spec.spin_ms / 1000)
        if spec.fail_after and self._said >= spec.fail_after:
            raise RunFailed(f"the echo model breaks off after {spec.fail_after} words, as told")
        if self._said == len(self._words):
            self._ended = True
            return Delta(finish=self._finish, usage=self._usage())
        await self._runtime.sleep(spec.token_ms / 1000)
        word = self._words[self._said]
        self._said += 1
        return Delta(text=word, tokens=1, logprobs=self._logprobs(word))

    def _logprobs(self, word: str) -> list[TokenLogprob] | None:
        rivals = self._prompt.sampling["rivals"]
        if rivals is None:
            return None
        sure = TokenLogprob(token=word, token_bytes=list(word.encode()), logprob=0.0)
        return [msgspec.structs.replace(sure, top=[sure] if rivals else [])]

    def _usage(self) -> Usage:
        spec = self._runtime.spec
        return Usage(
            prompt_tokens=len(self._prompt.tokens),
            completion_tokens=self._said,
            cached_tokens=self._cached,
            device_ns=int((spec.prefill_ms + spec.token_ms * self._said) * 1e6),
        )


def _hold_the_interpreter(seconds: float) -> None:
    """Compute for that long and let no other thread run."""
    end = time.perf_counter() + seconds
    interval = sys.getswitchinterval()
    sys.setswitchinterval(seconds + interval)
    try:
        while time.perf_counter() < end:
            sum(range(100_000))
    finally:
        sys.setswitchinterval(interval)


def _before_any(stops: list[str], text: str) -> str:
    return text[: min((at for stop in stops if (at := text.find(stop)) >= 0), default=len(text))]


def _obey(demanded: Demand, said: str) -> str:
    grammars = Grammars()
    for param, schema in demanded.parts:
        grammars.compile(schema, param)
    answer = said
    if demanded.param == "tools":
        name = demanded.schema["anyOf"][0]["properties"]["name"]["const"]
        answer = msgspec.json.encode({"name": name, "arguments": _object(said)}).decode()
    witness = grammars.witness(grammars.compile(demanded.schema, demanded.param))
    if not (witness.read(answer) and witness.complete()):
        raise UnsupportedParameter(
            f"'{demanded.param}' asks for another answer than the echo model's: what it was told",
            param=demanded.param,
        )
    return answer


def _object(said: str) -> Any:
    try:
        return msgspec.json.decode(said, type=dict[str, Any])
    except msgspec.DecodeError:
        return {}


def _check_bias(bias: dict[str, float] | None) -> None:
    for token in bias or ():
        if int(token) >= byte_tokens.TOKENS:
            raise SchemaViolation(f"{token} is no token of this model", param="logit_bias")
