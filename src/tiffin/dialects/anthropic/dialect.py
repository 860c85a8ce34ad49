"""Anthropic's Messages API as a dialect of the walk: its requests become chats, answers back.

An upstream that speaks it itself is sent the request as it is, and its answer is passed on.
"""

import re
from collections.abc import Iterator
from typing import Any

import msgspec

from tiffin.dialects.anthropic.errors import error_response, stream_error_event
from tiffin.dialects.anthropic.native import NativeReading, read_message
from tiffin.dialects.anthropic.portions import links, portions
from tiffin.dialects.anthropic.question import question_of
from tiffin.dialects.anthropic.replies import encode, whole_message
from tiffin.dialects.anthropic.requests import MESSAGES, as_named, chat_of
from tiffin.dialects.anthropic.stream import MessageTelling
from tiffin.dialects.dialect import (
    JSON_CONTENT,
    Asked,
    Extent,
    Forward,
    Portion,
    Reading,
    Told,
    Whole,
)
from tiffin.dialects.events import payload_of
from tiffin.dialects.links import check_link
from tiffin.dialects.openai.chat_reading import ChatReading
from tiffin.dialects.openai.dialect import Read
from tiffin.dialects.openai.requests import encode as encode_chat
from tiffin.dialects.openai.text import JSON_HEADERS, TextAsked, TextEndpoint, strings
from tiffin.dialects.openai.usage import StreamScanner
from tiffin.errors import InvalidRequest, TiffinError
from tiffin.ports.exchange import Exchange, Headers
from tiffin.ports.guard import Piece
from tiffin.types.messages import Block, MessagesRequest
from tiffin.types.snapshot import Plan, Target

PATH = b"/v1/messages"
UPSTREAM_PATH = b"/messages"
PROTOCOL = "anthropic"
# What they differ in concerns what Anthropic's own models refuse; answers have one shape.
VERSIONS = (b"2023-06-01", b"2026-10-21")
CHAT = TextEndpoint("chat", b"/v1/chat/completions")
_BETA = re.compile(rb"[A-Za-z0-9,. _-]{1,512}")


class MessagesDialect:
    """An endpoint with Anthropic's errors; `read` makes its requests."""

    def __init__(self, read: Read) -> None:
        self._read = read

    def read(self, exchange: Exchange, body: bytes) -> Asked:
        """The request that an exchange carries, in a version that is known."""
        version = exchange.header(b"anthropic-version")
        if version is not None and version not in VERSIONS:
            known = b" or ".join(VERSIONS).decode()
            raise InvalidRequest(f"the header anthropic-version must be {known}")
        return self._read(exchange, body)

    def error(self, error: TiffinError) -> tuple[int, Headers, bytes]:
        """Anthropic's error object."""
        return error_response(error)

    def stream_error(self, error: TiffinError) -> bytes:
        """The event that ends a broken stream."""
        return stream_error_event(error)


def read_message_request(exchange: Exchange, body: bytes) -> "MessagesAsked":
    """The request that a body spells."""
    return MessagesAsked(*MESSAGES.read(body), content_of(exchange))


def content_of(exchange: Exchange) -> bytes:
    """The header lines that go with a body to Anthropic: what it is, its version and its betas."""
    version = exchange.header(b"anthropic-version") or VERSIONS[-1]
    lines = b"%banthropic-version: %b\r\n" % (JSON_CONTENT, version)
    beta = exchange.header(b"anthropic-beta")
    if beta is None or not _BETA.fullmatch(beta):
        return lines
    return b"%banthropic-beta: %b\r\n" % (lines, beta)


def is_native(target: Target) -> bool:
    """Whether a target speaks this dialect itself."""
    return target.protocol == PROTOCOL


class MessagesAsked:
    """One request for a message; satisfies `dialects.dialect.Asked`."""

    operation = "chat"
    timeout_s = 0.0
    batch = False
    leaves_prefix = True
    cached_as = "message"
    question = question_of

    def __init__(self, request: MessagesRequest, canonical: bytes, content: bytes) -> None:
        self._canonical = canonical
        self.content = content
        self._chat: TextAsked | None = None
        self.request = request
        self.model = request.model
        self.streaming = bool(request.stream)
        self.offers_tools = bool(request.tools or request.mcp_servers)
        self.end_user = (request.metadata.user_id if request.metadata else None) or ""

    def check(self, plan: Plan) -> None:
        """What the fields mean together, and what a target of the plan can't honour.

        Anthropic's own models check what they are sent themselves.
        """
        for url, where in links(self.request):
            check_link(url, where, plan.targets)
        others = [target for target in plan.targets if not is_native(target)]
        if not others:
            return
        chat, places = chat_of(self.request)
        self._chat = TextAsked(CHAT, chat, encode_chat(chat, model=self.model))
        try:
            self._chat.check(msgspec.structs.replace(plan, targets=tuple(others)))
        except TiffinError as error:
            raise as_named(error, places) from None

    def pieces(self) -> Iterator[Piece]:
        """Every string."""
        return strings("", msgspec.to_builtins(self.request))

    def extent(self) -> Extent:
        """A prompt and one answer."""
        images = sum(_images(turn.content) for turn in self.request.messages)
        return Extent(True, self.request.max_tokens, images=images)

    def portions(self) -> Iterator[Portion]:
        """What its fields ask for."""
        return portions(self.request)

    def shorten(self, tokens: int) -> None:
        """Nothing: how long an answer may be is always said."""

    def canonical(self) -> bytes:
        """The canonical spelling, and the betas that it needs."""
        return self._canonical + self.content

    def forward(self, target: Target) -> Forward:
        """The chat request, or the request itself where that is spoken."""
        if not is_native(target):
            return self._as_chat.forward(target)
        named = msgspec.structs.replace(self.request, model=target.upstream_model or target.model)
        return Forward(UPSTREAM_PATH, self.content, encode(named))

    def whole(self, told: Told, target: Target) -> Whole:
        """The message that a chat's whole answer makes, or the message as it came."""
        if is_native(target):
            return Whole(JSON_HEADERS, told.body, read_message(told.body))
        usage = self._as_chat.whole(told, target).usage
        stops = self.request.stop_sequences or ()
        return Whole(JSON_HEADERS, whole_message(told.body, self.model, usage, stops), usage)

    def reading(self, target: Target) -> Reading:
        """A reader that turns a chat's chunks into a message's events, or passes these on."""
        if is_native(target):
            return NativeReading()
        scanner = StreamScanner(keep_usage=False, trusted=target.kind != "remote")
        return ChatReading(scanner, MessageTelling(self.model, self.request.stop_sequences or ()))

    def settle(self) -> None:
        """Nothing is kept of it."""

    def answer_text(self, body: bytes) -> str:
        """All words of the answer, block by block."""
        if not self.streaming:
            return "\n".join(_words(msgspec.json.decode(body)["content"]))
        return "\n".join(_streamed(body).values())

    @property
    def _as_chat(self) -> TextAsked:
        if self._chat is None:
            raise TypeError("what wasn't checked for a chat isn't sent as one")
        return self._chat


def _images(content: str | list[Block]) -> int:
    blocks = content if isinstance(content, list) else ()
    return sum(block.type == "image" for block in blocks)


def _words(content: list[dict[str, Any]]) -> Iterator[str]:
    for block in content:
        for name in ("text", "thinking", "name"):
            if isinstance(word := block.get(name), str):
                yield word
        if "input" in block:
            yield encode(block["input"]).decode()


def _streamed(body: bytes) -> dict[int, str]:
    """What each block of a stream says, by its index."""
    said: dict[int, str] = {}
    for event in body.split(b"\n\n"):
        payload = payload_of(event)
        told = msgspec.json.decode(payload) if payload else {}
        if told.get("type") not in ("content_block_start", "content_block_delta"):
            continue
        part = told.get("content_block") or told["delta"]
        words = (part.get(name) for name in ("name", "text", "thinking", "partial_json"))
        said[told["index"]] = said.get(told["index"], "") + "".join(filter(None, words))
    return said
