"""OpenAI's text endpoints as a dialect of the walk: chat, completions, tokenize, detokenize."""

from collections.abc import Iterator, Sequence
from typing import Any

import msgspec

from tiffin.dialects.dialect import (
    JSON_CONTENT,
    Extent,
    Forward,
    Portion,
    Told,
    Whole,
)
from tiffin.dialects.links import check_link
from tiffin.dialects.openai.answer_text import answer_text
from tiffin.dialects.openai.parameters import check_temperature, unsupported_by
from tiffin.dialects.openai.portions import portions, text_of
from tiffin.dialects.openai.question import as_meant, question_of
from tiffin.dialects.openai.recast import STREAM, WHOLE, WITH_USAGE, recast
from tiffin.dialects.openai.requests import encode, read
from tiffin.dialects.openai.usage import StreamScanner, read_whole
from tiffin.dialects.openai.validate import validate
from tiffin.ports.exchange import Exchange, Headers
from tiffin.ports.guard import Piece
from tiffin.types.profiles import profile_of
from tiffin.types.snapshot import Plan, Target
from tiffin.types.text import (
    ChatRequest,
    CompletionRequest,
    DetokenizeRequest,
    Message,
    TextRequest,
    TokenizeRequest,
)

JSON_HEADERS: Headers = [(b"content-type", b"application/json")]
# Requests whose answer is one of several that the model could give.
GENERATING = ("chat", "completion")
FLEX = "flex"  # the tier of what may wait
USUAL_TOKENS = 16  # of a completion that doesn't say how long it may be


class TextEndpoint:
    """Requests of one kind; `path` is where a target answers them."""

    def __init__(self, kind: str, path: bytes) -> None:
        self.kind = kind
        self.path = path
        self.upstream_path = path.removeprefix(b"/v1")

    def read(self, exchange: Exchange, body: bytes) -> "TextAsked":
        """The request that a body spells; raises `InvalidRequest`."""
        return TextAsked(self, *read(self.kind, body))


class TextAsked:
    """One request for text; satisfies `dialects.dialect.Asked`."""

    __slots__ = (
        "_canonical",
        "_endpoint",
        "_keep_usage",
        "batch",
        "cached_as",
        "end_user",
        "leaves_prefix",
        "model",
        "offers_tools",
        "operation",
        "request",
        "streaming",
    )

    timeout_s = 0.0
    recast = staticmethod(recast)
    question = question_of

    def __init__(self, endpoint: TextEndpoint, request: TextRequest, canonical: bytes) -> None:
        self._endpoint = endpoint
        self._canonical = canonical
        self._keep_usage = False
        self.request = request
        self.model = request.model
        self.operation = endpoint.kind
        self.streaming = False
        self.cached_as = ""
        self.batch = False
        self.offers_tools = False
        self.end_user = ""
        self.leaves_prefix = endpoint.kind in GENERATING
        if isinstance(request, ChatRequest | CompletionRequest):
            self.streaming = bool(request.stream)
            self.end_user = request.user or ""
            options = request.stream_options
            self._keep_usage = options is not None and bool(options.include_usage)
            in_events = WITH_USAGE if self._keep_usage else STREAM
            self.cached_as = in_events if self.streaming else WHOLE
        if isinstance(request, ChatRequest):
            self.batch = request.service_tier == FLEX
            self.offers_tools = not (request.tools is None and request.functions is None)
            self.end_user = request.safety_identifier or self.end_user

    def check(self, plan: Plan) -> None:
        """What the fields mean together, and what none of the plan's targets can honour."""
        validate(self.request, unsupported=unsupported_by(plan.targets))
        if isinstance(self.request, ChatRequest | CompletionRequest):
            check_temperature(self.request, plan.targets)
        if isinstance(self.request, ChatRequest | TokenizeRequest):
            _check_links(self.request.messages or (), plan)

    def pieces(self) -> Iterator[Piece]:
        """Every string; token ids as what can't be looked into."""
        request = self.request
        if isinstance(request, DetokenizeRequest):
            yield Piece("tokens", None)
        elif isinstance(request, CompletionRequest) and not _is_text(request.prompt):
            yield Piece("prompt", None)
        else:
            yield from strings("", msgspec.to_builtins(request))

    def extent(self) -> Extent:
        """A prompt, and as many answers as it asks for."""
        request = self.request
        if isinstance(request, ChatRequest):
            most = request.max_completion_tokens or request.max_tokens
            images = sum(map(_images, request.messages))
            return Extent(True, most and most * (request.n or 1), images=images)
        if isinstance(request, CompletionRequest):
            prompts = 1 if _is_one(request.prompt) else len(request.prompt)
            answers = prompts * max(request.n or 1, request.best_of or 1)
            return Extent(True, request.max_tokens and request.max_tokens * answers)
        return Extent(True)

    def portions(self) -> Iterator[Portion]:
        """What its fields ask for."""
        return portions(self.request)

    def shorten(self, tokens: int) -> None:
        """An answer that may have any length gets a `max_tokens`; it is another request then."""
        request = self.request
        if isinstance(request, ChatRequest):
            is_open = request.max_tokens is None and request.max_completion_tokens is None
        else:
            is_open = isinstance(request, CompletionRequest) and request.max_tokens is None
            tokens = min(tokens, USUAL_TOKENS)
        if is_open:
            self.request = msgspec.structs.replace(request, max_tokens=tokens)
            self._canonical = msgspec.json.encode(self.request)

    def canonical(self) -> bytes:
        """The canonical spelling without what changes no answer but its form."""
        meant = as_meant(self.request)
        return self._canonical if meant is self.request else msgspec.json.encode(meant)

    def forward(self, target: Target) -> Forward:
        """The canonical body with the target's name for the model, and usage asked of streams."""
        remote = target.kind == "remote"
        path = self._endpoint.upstream_path if remote else self._endpoint.path
        name = target.upstream_model or target.model
        if target.profile:
            profile = profile_of(target.profile)
            return Forward(path, JSON_CONTENT, encode(self.request, model=name, profile=profile))
        return Forward(path, JSON_CONTENT, self._spelling(name))

    def whole(self, told: Told, target: Target) -> Whole:
        """The answer as it came."""
        usage = told.usage or read_whole(
            told.body, chosen=self.operation in GENERATING, trusted=target.kind != "remote"
        )
        return Whole(JSON_HEADERS, told.body, usage)

    def reading(self, target: Target) -> StreamScanner:
        """A scanner of the target's events."""
        return StreamScanner(keep_usage=self._keep_usage, trusted=target.kind != "remote")

    def settle(self) -> None:
        """Nothing is kept of it."""

    def answer_text(self, body: bytes) -> str:
        """All words of the answer."""
        return answer_text(body, streaming=self.streaming)

    def _spelling(self, model: str) -> bytes:
        if model == self.model and not self.streaming:
            return self._canonical
        return encode(self.request, model=model)


def _check_links(messages: Sequence[Message], plan: Plan) -> None:
    """Refuse addresses that the plan's targets mustn't be sent, or nobody."""
    for at, message in enumerate(messages):
        content = message.content
        for number, part in enumerate(content if isinstance(content, list) else ()):
            if part.type != "text" and (url := text_of(part)) and part.input_audio is None:
                check_link(url, f"messages[{at}].content[{number}].{part.type}", plan.targets)


def _images(message: Message) -> int:
    content = message.content
    if not isinstance(content, list):
        return 0
    return sum(part.type == "image_url" for part in content)


def _is_one(prompt: str | list[Any]) -> bool:
    return isinstance(prompt, str) or all(isinstance(item, int) for item in prompt)


def _is_text(prompt: str | list[Any]) -> bool:
    return isinstance(prompt, str) or all(isinstance(item, str) for item in prompt)


def strings(path: str, value: Any) -> Iterator[Piece]:
    """Every string below a value with its path, keys of objects too."""
    waiting = [(path, value)]
    while waiting:
        path, value = waiting.pop()
        if isinstance(value, str):
            yield Piece(path, value)
        elif isinstance(value, list):
            waiting += reversed([(f"{path}[{at}]", item) for at, item in enumerate(value)])
        elif isinstance(value, dict):
            yield from (Piece(path, key) for key in value)
            prefix = f"{path}." if path else ""
            waiting += reversed([(prefix + key, item) for key, item in value.items()])
