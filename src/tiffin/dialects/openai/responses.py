"""OpenAI's Responses API as a dialect of the walk: its requests become chats, and answers back."""

from collections.abc import Awaitable, Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import msgspec

from tiffin.dialects.dialect import Extent, Forward, Portion, Told, Whole
from tiffin.dialects.events import payload_of
from tiffin.dialects.openai.chat_reading import ChatReading
from tiffin.dialects.openai.errors import error_body, error_response
from tiffin.dialects.openai.requests import encode as encode_chat
from tiffin.dialects.openai.responses_items import completed
from tiffin.dialects.openai.responses_object import Form, Outcome, encode
from tiffin.dialects.openai.responses_request import (
    as_named,
    chat_of,
    check_request,
    input_items,
    read,
    renamed_field,
)
from tiffin.dialects.openai.responses_stream import ResponseTelling
from tiffin.dialects.openai.responses_whole import outcome_of
from tiffin.dialects.openai.text import JSON_HEADERS, TextAsked, TextEndpoint
from tiffin.dialects.openai.usage import StreamScanner
from tiffin.errors import PreviousResponseNotFound, TiffinError
from tiffin.ports.clock import Clock
from tiffin.ports.conversations import Conversations, Kept
from tiffin.ports.exchange import Exchange, Headers
from tiffin.ports.guard import Piece
from tiffin.types.responses import InputItem, ResponseRequest
from tiffin.types.snapshot import Plan, Target

CHAT = TextEndpoint("chat", b"/v1/chat/completions")
_LISTS = msgspec.json.Decoder(list[InputItem])


class _Output(msgspec.Struct):
    output: list[InputItem]


class _Continued(msgspec.Struct):
    previous_response_id: str | None = None


_CONTINUED = msgspec.json.Decoder(_Continued)
_OUTPUTS = msgspec.json.Decoder(_Output)


class ResponsesDialect:
    """Reads requests, and keeps their answers for `tenant_of` the exchange that brought them."""

    def __init__(
        self, conversations: Conversations, tenant_of: Callable[[Exchange], str], clock: Clock
    ) -> None:
        self._conversations = conversations
        self._tenant_of = tenant_of
        self._clock = clock

    async def fetch(self, tenant: str, body: bytes) -> None:
        """Have here what `read` will look for, where another gateway keeps it.

        Raises `Unavailable`; a body that can't be read is for `read` to refuse.
        """
        if b'"previous_response_id"' in body:
            with suppress(msgspec.DecodeError):
                previous = _CONTINUED.decode(body).previous_response_id
                if previous is not None:
                    await self._conversations.fetch(tenant, previous)

    def read(self, exchange: Exchange, body: bytes) -> "ResponsesAsked":
        """The request that a body spells, with what it continues.

        Raises `InvalidRequest`, or `PreviousResponseNotFound` for a response that this tenant
        doesn't have here.
        """
        request = read(body)
        check_request(request)
        tenant = self._tenant_of(exchange)
        earlier = self._earlier(tenant, request.previous_response_id)
        given = input_items(request, earlier)

        now_s = self._clock.now_ns() // 1_000_000_000
        shelf = Shelf(self._conversations, tenant)
        return ResponsesAsked(request, earlier, given, Form(request, now_s), shelf)

    def _earlier(self, tenant: str, previous: str | None) -> list[InputItem]:
        if previous is None:
            return []
        kept = self._conversations.find(tenant, previous)
        if kept is None:
            raise PreviousResponseNotFound(
                f"there is no response '{previous}' to continue: responses are kept for a while,"
                " and with 'store': false not at all",
                param="previous_response_id",
            )
        answered = [completed(item) for item in _OUTPUTS.decode(kept.response).output]
        return _LISTS.decode(kept.items) + answered

    def error(self, error: TiffinError) -> tuple[int, Headers, bytes]:
        """OpenAI's error object, in terms of this request."""
        return error_response(as_named(error))

    def stream_error(self, error: TiffinError) -> bytes:
        """The event that ends a broken stream.

        Its fields are told twice: where OpenAI's documents have them, and in `error`, which makes
        its client raise.
        """
        told = msgspec.json.decode(error_body(as_named(error)))["error"]
        event = {"type": "error", "sequence_number": 0, **told, "error": told}
        event["type"] = "error"
        return b"event: error\ndata: %b\n\n" % encode(event)


@dataclass(slots=True, frozen=True)
class Shelf:
    """One tenant's place among what is kept."""

    conversations: Conversations
    tenant: str


class ResponsesAsked:
    """One request for a response; satisfies `dialects.dialect.Asked`."""

    timeout_s = 0.0
    leaves_prefix = True

    def __init__(
        self,
        request: ResponseRequest,
        earlier: list[InputItem],
        given: list[InputItem],
        form: Form,
        shelf: Shelf,
    ) -> None:
        chat, self._places = chat_of(request, earlier, given)
        self._chat = TextAsked(CHAT, chat, encode_chat(chat, model=request.model))
        self._conversation = [*earlier, *given]
        self._form = form
        self._shelf = shelf
        self._finished: Kept | None = None
        self._store = request.store is not False
        self.operation = "response"
        self.cached_as = ""  # each has an id of its own, under which it may be kept
        self.model = request.model
        self.streaming = bool(request.stream)
        self.batch = self._chat.batch
        self.offers_tools = self._chat.offers_tools
        self.end_user = self._chat.end_user

    def check(self, plan: Plan) -> None:
        """What the chat's fields mean together, and what a target of the plan can't honour."""
        try:
            self._chat.check(plan)
        except TiffinError as error:
            raise as_named(error, self._places) from None

    def pieces(self) -> Iterator[Piece]:
        """Every string that a model gets, of earlier turns too."""
        return self._chat.pieces()

    def extent(self) -> Extent:
        """The chat's own: earlier turns are in its prompt."""
        return self._chat.extent()._replace(size=len(self._chat.canonical()))

    def portions(self) -> Iterator[Portion]:
        """The chat's own, by the names of this request's fields."""
        for one in self._chat.portions():
            yield one._replace(field=renamed_field(one.field, self._places))

    def shorten(self, tokens: int) -> None:
        """As the chat does."""
        self._chat.shorten(tokens)

    def canonical(self) -> bytes:
        """The chat's own."""
        return self._chat.canonical()

    def forward(self, target: Target) -> Forward:
        """The chat request."""
        return self._chat.forward(target)

    def whole(self, told: Told, target: Target) -> Whole:
        """The response that a chat's whole answer makes."""
        usage = self._chat.whole(told, target).usage
        response = self._finish(outcome_of(told.body, usage))
        return Whole(JSON_HEADERS, encode(response), usage)

    def reading(self, target: Target) -> ChatReading:
        """A reader that turns a chat's chunks into a response's events."""
        scanner = StreamScanner(keep_usage=False, trusted=target.kind != "remote")
        telling = ResponseTelling(self._form, self._finish, store=self._store)
        return ChatReading(scanner, telling)

    def settle(self) -> Awaitable[None] | None:
        """Keep the response where that is asked for; before its client can ask for it."""
        if self._finished is None:
            return None
        conversations, tenant = self._shelf.conversations, self._shelf.tenant
        conversations.keep(tenant, self._form.id, self._finished)
        return conversations.share(tenant, self._form.id)

    def answer_text(self, body: bytes) -> str:
        """All words of the answer: a stream's last event has the whole of it."""
        if self.streaming:
            body = payload_of(body.rstrip(b"\n").rpartition(b"\n\n")[2])
        said = msgspec.json.decode(body)
        response = said["response"] if self.streaming else said
        return "\n".join(_words(response["output"]))

    def _finish(self, outcome: Outcome) -> dict[str, Any]:
        """The finished object; `store` says whether it is kept once it may be."""
        response = self._form.response(outcome, store=self._store)
        if self._store:
            items = encode([completed(item) for item in self._conversation])
            kept = Kept(response=encode(response), items=items)
            response["store"] = fits = self._shelf.conversations.fits(kept)
            self._finished = kept if fits else None
        return response


def _words(output: list[dict[str, Any]]) -> Iterator[str]:
    for item in output:
        for part in item.get("content", ()):
            yield part.get("text") or part.get("refusal") or ""
        if item["type"] == "function_call":
            yield item["name"]
            yield item["arguments"]
