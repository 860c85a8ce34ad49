"""A replica's inbound edge: OpenAI's text endpoints over one model, health and counters.

What the gateway says about a request comes in `x-tiffin-*` headers. A streamed and a whole answer
take the same way; an error after the first byte is the stream's last event, without `[DONE]`, and
the connection is cut, so that it never looks complete.
"""

import os
from collections.abc import Sequence
from typing import Any, TypeVar

import msgspec

from tiffin.api.hop import Routes, context_of, failures_told, route_of, usage_header
from tiffin.dialects.openai import requests
from tiffin.dialects.openai.chat_replies import ChatStream, ChatWhole, Tools
from tiffin.dialects.openai.replies import JSON, Head, Reply
from tiffin.dialects.openai.text_replies import TextStream, TextWhole
from tiffin.dialects.openai.validate import validate
from tiffin.errors import (
    ContextLengthExceeded,
)
from tiffin.ports.exchange import Exchange
from tiffin.ports.text_runtime import Prompt
from tiffin.serving.context import Context
from tiffin.serving.replica import Replica, Within
from tiffin.telemetry.metrics import Meter
from tiffin.types.text import (
    ChatRequest,
    CompletionRequest,
    DetokenizeRequest,
    StreamOptions,
    TextRequest,
    TokenizeRequest,
)

NO_STORE = (b"cache-control", b"no-cache")

R = TypeVar("R", bound=TextRequest)


class ReplicaApi:
    """Answers exchanges from one replica. `fingerprint` names the revision in every answer."""

    def __init__(
        self, replica: Replica, meter: Meter, *, fingerprint: str, max_body_bytes: int
    ) -> None:
        self._replica = replica
        self._meter = meter
        self._fingerprint = fingerprint
        self._max_body_bytes = max_body_bytes
        self._routes: Routes = {
            b"/v1/chat/completions": (b"POST", self._chat),
            b"/v1/completions": (b"POST", self._completions),
            b"/tokenize": (b"POST", self._tokenize),
            b"/detokenize": (b"POST", self._detokenize),
            b"/v2/health/live": (b"GET", self._live),
            b"/v2/health/ready": (b"GET", self._ready),
            b"/metrics.json": (b"GET", self._metrics),
        }

    async def __call__(self, exchange: Exchange) -> None:
        """Answer one exchange; cancelling this stops the work behind it."""
        with failures_told(exchange):
            await route_of(self._routes, exchange)(exchange)

    async def _chat(self, exchange: Exchange) -> None:
        request = await self._read(exchange, "chat", ChatRequest)
        context = self._context(exchange)
        prompts = await self._replica.prepare(request, context)
        n = request.n or 1
        names = prompts[0].tool_names
        tools = Tools(names=names, only_first=request.parallel_tool_calls is False)
        head = self._head(exchange, request.model)
        reply: Reply
        if request.stream:
            include_usage = _include_usage(request.stream_options)
            reply = ChatStream(head, n, tools, include_usage=include_usage)
        else:
            reply = ChatWhole(head, n, tools)
        await self._send(exchange, reply, prompts, n, context)

    async def _completions(self, exchange: Exchange) -> None:
        request = await self._read(exchange, "completion", CompletionRequest)
        context = self._context(exchange)
        prompts = await self._replica.prepare(request, context)
        n = request.n or 1
        echo = await self._echo(prompts, n) if request.echo else [""] * n * len(prompts)
        head = self._head(exchange, request.model)
        reply: Reply
        if request.stream:
            reply = TextStream(head, echo, include_usage=_include_usage(request.stream_options))
        else:
            reply = TextWhole(head, echo)
        await self._send(exchange, reply, prompts, n, context)

    async def _send(
        self,
        exchange: Exchange,
        reply: Reply,
        prompts: Sequence[Prompt],
        n: int,
        context: Context,
    ) -> None:
        head = [(b"content-type", reply.content_type), NO_STORE]
        async with self._replica.answer(prompts, n, context) as answer:
            async for pieces in answer:
                out = b"".join([reply.piece(choice, delta) for choice, delta in pieces])
                if out:
                    if not exchange.begun:
                        exchange.begin(200, [*head, usage_header(answer.so_far)])
                    exchange.write(out)
                    await exchange.drain()
        if exchange.begun:
            exchange.write(reply.end(answer.usage))
            exchange.finish()
        else:
            exchange.respond(200, head, reply.end(answer.usage))

    async def _tokenize(self, exchange: Exchange) -> None:
        request = await self._read(exchange, "tokenize", TokenizeRequest)
        self._replica.check()
        async with self._within(exchange):
            tokens = await self._replica.runtime.tokenize(
                text=request.prompt,
                messages=request.messages,
                tools=request.tools,
                special=request.add_special_tokens is not False,
            )
            longest = self._replica.capabilities.context_tokens
            answer = {"count": len(tokens), "max_model_len": longest, "tokens": tokens}
            if request.return_token_strs:
                if len(tokens) > longest:
                    raise ContextLengthExceeded(
                        f"the strings of at most {longest} tokens can be given, not {len(tokens)}",
                        param="return_token_strs",
                    )
                detokenize = self._replica.runtime.detokenize
                answer["token_strs"] = [await detokenize([token]) for token in tokens]
        _respond(exchange, 200, answer)

    async def _detokenize(self, exchange: Exchange) -> None:
        request = await self._read(exchange, "detokenize", DetokenizeRequest)
        self._replica.check()
        async with self._within(exchange):
            text = await self._replica.runtime.detokenize(request.tokens)
        _respond(exchange, 200, {"prompt": text})

    async def _live(self, exchange: Exchange) -> None:
        _respond(exchange, 200, {"live": True})

    async def _ready(self, exchange: Exchange) -> None:
        self._replica.check()
        _respond(exchange, 200, {"ready": True})

    async def _metrics(self, exchange: Exchange) -> None:
        exchange.respond(200, [(b"content-type", JSON)], self._meter.state())

    async def _read(self, exchange: Exchange, kind: str, shape: type[R]) -> R:
        self._replica.check()
        request = requests.decode(kind, await exchange.body(self._max_body_bytes))
        validate(request)
        if not isinstance(request, shape):
            raise TypeError(f"{kind} was decoded as {type(request).__name__}")
        return request

    async def _echo(self, prompts: Sequence[Prompt], n: int) -> list[str]:
        detokenize = self._replica.runtime.detokenize
        texts = [prompt.text or await detokenize(prompt.tokens) for prompt in prompts]
        return [text for text in texts for _ in range(n)]

    def _context(self, exchange: Exchange) -> Context:
        return context_of(exchange, self._replica.clock)

    def _within(self, exchange: Exchange) -> Within:
        return Within(self._context(exchange).deadline, self._replica.clock)

    def _head(self, exchange: Exchange, model: str) -> Head:
        known = (exchange.header(b"x-tiffin-request") or b"").decode("latin-1")
        digits = known.removeprefix("req_")
        return Head(
            id=digits if len(digits) == 32 and digits.isalnum() else os.urandom(16).hex(),
            created=self._replica.clock.now_ns() // 1_000_000_000,
            model=model,
            fingerprint=self._fingerprint,
        )


def _include_usage(options: StreamOptions | None) -> bool:
    return options is not None and options.include_usage is True


def _respond(exchange: Exchange, status: int, answer: dict[str, Any]) -> None:
    exchange.respond(status, [(b"content-type", JSON)], msgspec.json.encode(answer))
