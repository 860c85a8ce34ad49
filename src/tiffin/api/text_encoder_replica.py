"""The inbound edge of a replica that reads texts: vectors, rankings, tokens.

What the gateway says about a request comes in `x-tiffin-*` headers; what it used goes back in one.
Every other path is left to `otherwise`, which knows the model's tensors, its health and counters.
"""

import asyncio
import os
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from functools import partial
from typing import TypeVar

import msgspec

from tiffin.api.hop import context_of, failures_told, usage_header
from tiffin.dialects.openai import embeddings, requests, rerank
from tiffin.dialects.openai.parameters import not_supported
from tiffin.dialects.openai.validate import validate
from tiffin.errors import (
    ContextLengthExceeded,
    InvalidRequest,
    MethodNotAllowed,
)
from tiffin.ports.clock import Clock
from tiffin.ports.exchange import Exchange
from tiffin.ports.tokenizer import Tokenizer
from tiffin.serving.context import Context
from tiffin.serving.replica import Within
from tiffin.serving.texts.encoder import Encoder
from tiffin.serving.texts.measures import TextMeasures
from tiffin.serving.texts.reading import INLINE_CHARACTERS
from tiffin.types.text import DetokenizeRequest, TokenizeRequest
from tiffin.types.usage import Usage

T = TypeVar("T")

JSON = (b"content-type", b"application/json")
# Beyond it another thread does the work.
INLINE_TOKENS = INLINE_CHARACTERS // 4
INLINE_VECTORS = 32


@dataclass(frozen=True, slots=True)
class Served:
    """One loaded model of texts, and what it does: `embed` or `rerank`. `check` raises the reason
    why nothing can be answered now, if there is one."""

    task: str
    encoder: Encoder
    tokenizer: Tokenizer
    max_tokens: int
    check: Callable[[], None]


class TextEncoderApi:
    """Answers exchanges from one model; `served` is asked for each, since it comes with loading."""

    def __init__(
        self,
        served: Callable[[], Served],
        measures: TextMeasures,
        clock: Clock,
        otherwise: Callable[[Exchange], Awaitable[None]],
        *,
        max_body_bytes: int,
    ) -> None:
        self._served = served
        self._measures = measures
        self._clock = clock
        self._otherwise = otherwise
        self._max_body_bytes = max_body_bytes
        self._routes: dict[bytes, Callable[[Exchange, Served], Awaitable[None]]] = {
            embeddings.PATH: self._embeddings,
            rerank.PATH: self._rerank,
            b"/tokenize": self._tokenize,
            b"/detokenize": self._detokenize,
        }

    async def __call__(self, exchange: Exchange) -> None:
        """Answer one exchange; cancelling this stops the work behind it."""
        answer = self._routes.get(exchange.path)
        if answer is None:
            await self._otherwise(exchange)
            return
        with failures_told(exchange):
            if exchange.method != b"POST":
                raise MethodNotAllowed("this endpoint takes POST only", allowed="POST")
            served = self._served()
            served.check()
            await answer(exchange, served)

    async def _embeddings(self, exchange: Exchange, served: Served) -> None:
        with self._measures.watching():
            request, _ = embeddings.READER.read(await exchange.body(self._max_body_bytes))
            embeddings.check(request)
            _refuse_unless(served.task == "embed", "embeddings")
            context = self._context(exchange)
            async with Within(context.deadline, self._clock):
                vectors, usage = await served.encoder.embed(
                    embeddings.inputs_of(request), request.dimensions, context
                )
        form, tokens = request.encoding_format, usage.prompt_tokens
        spell = partial(embeddings.embeddings_reply, request.model, vectors, form, tokens)
        body = await asyncio.to_thread(spell) if len(vectors) > INLINE_VECTORS else spell()
        self._answer(exchange, body, usage)

    async def _rerank(self, exchange: Exchange, served: Served) -> None:
        with self._measures.watching():
            request, _ = rerank.READER.read(await exchange.body(self._max_body_bytes))
            rerank.check(request)
            _refuse_unless(served.task == "rerank", "reranking")
            context = self._context(exchange)
            async with Within(context.deadline, self._clock):
                scores, usage = await served.encoder.rerank(
                    request.query, rerank.texts_of(request), context
                )
        name = f"rerank-{_digits(exchange)}"
        body = rerank.rerank_reply(name, request, scores, usage.prompt_tokens)
        self._answer(exchange, body, usage)

    async def _tokenize(self, exchange: Exchange, served: Served) -> None:
        request = requests.decode("tokenize", await exchange.body(self._max_body_bytes))
        validate(request)
        if not isinstance(request, TokenizeRequest):
            raise TypeError(f"tokenize was decoded as {type(request).__name__}")
        if request.prompt is None:
            raise not_supported("messages")
        special = request.add_special_tokens is not False
        work = partial(served.tokenizer.ids, request.prompt, special=special)
        tokens = await self._within(exchange, work, len(request.prompt) > INLINE_CHARACTERS)
        answer = {"count": len(tokens), "max_model_len": served.max_tokens, "tokens": tokens}
        if request.return_token_strs:
            if len(tokens) > served.max_tokens:
                raise ContextLengthExceeded(
                    f"the strings of at most {served.max_tokens} tokens can be given, "
                    f"not {len(tokens)}",
                    param="return_token_strs",
                )
            answer["token_strs"] = [served.tokenizer.text([token]) for token in tokens]
        exchange.respond(200, [JSON], msgspec.json.encode(answer))

    async def _detokenize(self, exchange: Exchange, served: Served) -> None:
        request = requests.decode("detokenize", await exchange.body(self._max_body_bytes))
        if not isinstance(request, DetokenizeRequest):
            raise TypeError(f"detokenize was decoded as {type(request).__name__}")
        most = served.tokenizer.vocabulary - 1
        for at, token in enumerate(request.tokens):
            if token > most:
                raise InvalidRequest(
                    f"'tokens[{at}]' is {token}; this model has ids up to {most}",
                    param=f"tokens[{at}]",
                )
        work = partial(served.tokenizer.text, request.tokens)
        text = await self._within(exchange, work, len(request.tokens) > INLINE_TOKENS)
        exchange.respond(200, [JSON], msgspec.json.encode({"prompt": text}))

    async def _within(self, exchange: Exchange, work: Callable[[], T], is_long: bool) -> T:
        """Work of the tokenizer's, off the loop where it is long, before the deadline."""
        async with Within(self._context(exchange).deadline, self._clock):
            return await asyncio.to_thread(work) if is_long else work()

    def _answer(self, exchange: Exchange, body: bytes, usage: Usage) -> None:
        self._measures.read(usage.prompt_tokens)
        exchange.respond(200, [JSON, usage_header(usage)], body)

    def _context(self, exchange: Exchange) -> Context:
        return context_of(exchange, self._clock)


def _refuse_unless(can: bool, what: str) -> None:
    if not can:
        raise InvalidRequest(f"this model doesn't do {what}", param="model")


def _digits(exchange: Exchange) -> str:
    known = (exchange.header(b"x-tiffin-request") or b"").decode("latin-1").removeprefix("req_")
    return known if len(known) == 32 and known.isalnum() else os.urandom(16).hex()
