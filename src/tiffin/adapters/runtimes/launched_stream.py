"""An engine's answer in OpenAI's stream, step by step, as deltas; leaving it stops the engine."""

from collections import deque
from collections.abc import AsyncIterator
from types import TracebackType
from typing import Any, Self

import msgspec

from tiffin.adapters.runtimes.launched_line import MAX_ANSWER_BYTES, refusal
from tiffin.dialects.openai.tool_calls import TAG, TAG_END
from tiffin.errors import RunFailed, TiffinError, UpstreamUnavailable
from tiffin.ports.backend import Backend, Call, Reply
from tiffin.ports.text_runtime import Delta, TokenLogprob
from tiffin.types.usage import Usage

MAX_EVENT_BYTES = 4_194_304


class _Named(msgspec.Struct, frozen=True):
    name: str | None = None
    arguments: str | None = None


class _Called(msgspec.Struct, frozen=True):
    index: int = 0
    function: _Named = _Named()


class _Said(msgspec.Struct, frozen=True):
    content: str | None = None
    tool_calls: list[_Called] | None = None


class _Choice(msgspec.Struct, frozen=True):
    delta: _Said = _Said()
    text: str = ""
    finish_reason: str | None = None
    logprobs: Any = None


class _Cached(msgspec.Struct, frozen=True):
    cached_tokens: int | None = None


class _Used(msgspec.Struct, frozen=True):
    prompt_tokens: int = 0
    completion_tokens: int | None = None
    prompt_tokens_details: _Cached | None = None


class _Chunk(msgspec.Struct, frozen=True):
    choices: list[_Choice] = []
    usage: _Used | None = None
    error: Any = None
    object: str = ""
    message: str = ""


class LaunchedRun:
    """One answer: entering asks for it, iterating gives its steps, leaving closes the connection.

    `prompt_tokens` is what we counted, for engines that don't tell.
    """

    def __init__(self, pool: Backend, call: Call, prompt_tokens: int) -> None:
        self._exchange = pool.start(call)
        self._prompt_tokens = prompt_tokens
        self._reply: Reply | None = None
        self._rest = b""
        self._chunks: deque[_Chunk] = deque()
        self._calls: dict[int, tuple[str, str]] = {}
        self._told = 0  # tokens
        self._finish = ""
        self._usage: _Used | None = None
        self._done = self._ended = False

    async def __aenter__(self) -> Self:
        try:
            reply = await self._exchange.__aenter__()
        except UpstreamUnavailable as error:
            raise RunFailed(f"the engine can't be reached: {error.message}") from error
        if reply.status != 200:
            try:
                raise refusal(reply.status, await reply.read_all(MAX_ANSWER_BYTES))
            finally:
                await self._exchange.__aexit__(None, None, None)
        self._reply = reply
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self._exchange.__aexit__(kind, error, trace)

    def __aiter__(self) -> AsyncIterator[Delta]:
        return self

    async def __anext__(self) -> Delta:
        if self._ended:
            raise StopAsyncIteration
        while True:
            while not self._chunks and not self._done:
                await self._read()
            if not self._chunks:
                if not self._finish:
                    raise RunFailed("the engine broke the answer off")
                self._ended = True
                return self._last()
            delta = self._step(self._chunks.popleft())
            if delta is not None:
                return delta

    async def _read(self) -> None:
        assert self._reply is not None  # noqa: S101 - entered before it is read
        try:
            data = await self._reply.read()
        except TiffinError as error:
            raise RunFailed(f"the engine broke the answer off: {error.message}") from error
        if not data:
            self._done = True
            return
        *lines, self._rest = (self._rest + data).split(b"\n")
        if len(self._rest) > MAX_EVENT_BYTES:
            raise RunFailed("the engine's answer has a line without end")
        for line in lines:
            name, _, value = line.strip().partition(b":")
            value = value.strip()
            if name != b"data":
                continue
            if value == b"[DONE]":
                self._done = True
            else:
                self._chunks.append(_decoded(value))

    def _step(self, chunk: _Chunk) -> Delta | None:
        if chunk.error is not None or chunk.object == "error":
            told: Any = chunk.error or {"message": chunk.message}
            # A refusal may come as the first event of a stream that was accepted.
            code = told.get("code") if isinstance(told, dict) else None
            status = code if isinstance(code, int) else 500
            raise refusal(status, msgspec.json.encode({"error": told}))
        if chunk.usage is not None:
            self._usage = chunk.usage
        if not chunk.choices:
            return None
        choice = chunk.choices[0]
        for called in choice.delta.tool_calls or ():
            name, arguments = self._calls.get(called.index, ("", ""))
            told_name, told_arguments = called.function.name or "", called.function.arguments or ""
            self._calls[called.index] = (name + told_name, arguments + told_arguments)
        self._finish = self._finish or choice.finish_reason or ""
        text = choice.delta.content or choice.text
        logprobs = _logprobs(choice.logprobs)
        tokens = self._tokens(chunk.usage, text, logprobs)
        if not text and not tokens and logprobs is None:
            return None
        return Delta(text=text, tokens=tokens, logprobs=logprobs)

    def _tokens(self, used: _Used | None, text: str, logprobs: list[TokenLogprob] | None) -> int:
        if used is not None and used.completion_tokens is not None:
            fresh = max(0, used.completion_tokens - self._told)
        else:
            fresh = len(logprobs) if logprobs else int(bool(text))
        self._told += fresh
        return fresh

    def _last(self) -> Delta:
        used = self._usage
        completed = self._told
        if used is not None and used.completion_tokens is not None:
            completed = used.completion_tokens
        details = used.prompt_tokens_details if used else None
        usage = Usage(
            prompt_tokens=used.prompt_tokens if used else self._prompt_tokens,
            completion_tokens=completed,
            cached_tokens=(details.cached_tokens or 0) if details else 0,
            measured=used is not None,
        )
        return Delta(
            text="".join(map(_written, self._calls.values())),
            tokens=max(0, completed - self._told),
            finish="length" if self._finish == "length" else "stop",
            usage=usage,
        )


def _written(call: tuple[str, str]) -> str:
    """A call as text, as `dialects.openai.tool_calls` finds it again."""
    name, arguments = call
    try:
        given = msgspec.json.decode(arguments or "{}", type=dict[str, Any])
    except msgspec.DecodeError as error:
        raise RunFailed(f"the engine's call of {name} can't be read: {error}") from error
    told = msgspec.json.encode({"name": name, "arguments": given}).decode()
    return f"{TAG}\n{told}\n{TAG_END}"


def _logprobs(told: Any) -> list[TokenLogprob] | None:
    """Log-probabilities in the shape of chats (`content`) or of completions (`tokens`)."""
    if not isinstance(told, dict):
        return None
    if isinstance(told.get("content"), list):
        return [_chance(one) for one in told["content"]]
    tokens, chances = told.get("tokens"), told.get("token_logprobs")
    if not isinstance(tokens, list) or not isinstance(chances, list):
        return None
    rivals = told.get("top_logprobs") or [None] * len(tokens)
    return [
        _token(token, chance, _rivals(tops))
        for token, chance, tops in zip(tokens, chances, rivals, strict=False)
    ]


def _chance(one: dict[str, Any]) -> TokenLogprob:
    return _token(
        one.get("token", ""),
        one.get("logprob"),
        [_chance(r) for r in one.get("top_logprobs") or ()],
    )


def _rivals(tops: dict[str, float] | None) -> list[TokenLogprob]:
    return [_token(token, chance, []) for token, chance in (tops or {}).items()]


def _token(token: str, chance: float | None, top: list[TokenLogprob]) -> TokenLogprob:
    sure = min(0.0, chance if chance is not None else 0.0)
    return TokenLogprob(token=token, token_bytes=list(token.encode()), logprob=sure, top=top)


def _decoded(value: bytes) -> _Chunk:
    try:
        return msgspec.json.decode(value, type=_Chunk)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise RunFailed(f"the engine's answer can't be read: {error}") from error
