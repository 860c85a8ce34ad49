"""A chat's stream of chunks as the typed events that a streamed response has.

The order is that of OpenAI's documents: `response.created`, `response.in_progress`; for each item
`response.output_item.added`, its parts and their deltas, what each came to, and
`response.output_item.done`; `response.completed` or `response.incomplete`. Every event has the next
`sequence_number`.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from tiffin.dialects.openai.answers import Call, ChunkChoice, Function
from tiffin.dialects.openai.responses_object import (
    Form,
    Outcome,
    call_item,
    encode,
    message_item,
    part,
)
from tiffin.errors import UpstreamFailed
from tiffin.types.ids import new_id
from tiffin.types.usage import Usage

# What a stream may hold in its items, as what it came to is told again at the end.
MAX_TEXT = 8_388_608

Finish = Callable[[Outcome], dict[str, Any]]


@dataclass(slots=True)
class _Part:
    kind: str
    at: dict[str, Any]
    texts: list[str] = field(default_factory=list)

    def whole(self) -> dict[str, Any]:
        return part(self.kind, "".join(self.texts))


@dataclass(slots=True)
class _Message:
    """What the model says, in parts."""

    id: str
    index: int
    parts: dict[str, _Part] = field(default_factory=dict)

    def item(self, status: str) -> dict[str, Any]:
        return message_item(self.id, status, [part.whole() for part in self.parts.values()])


@dataclass(slots=True)
class _Asking:
    """A call that the model asks for, while its arguments come."""

    id: str
    index: int
    call_id: str
    name: str
    texts: list[str] = field(default_factory=list)

    def item(self, status: str) -> dict[str, Any]:
        return call_item(
            self.id,
            status,
            call_id=self.call_id,
            function=self.name,
            arguments="".join(self.texts),
        )


class Events:
    """The events of one response as bytes, numbered; `out` has those not taken yet."""

    def __init__(self) -> None:
        self._number = 0
        self._out: list[bytes] = []

    def add(self, kind: str, **fields: Any) -> None:
        """The next event."""
        told = encode({"type": kind, "sequence_number": self._number, **fields})
        self._out.append(b"event: %b\ndata: %b\n\n" % (kind.encode(), told))
        self._number += 1

    def take(self) -> bytes:
        """Those since the last time."""
        out = b"".join(self._out)
        self._out.clear()
        return out


class ResponseTelling:
    """Tells a chat's stream as a response's; satisfies `chat_reading.Telling`.

    `finish` is told what the answer came to and returns the object that the last event carries.
    """

    def __init__(self, form: Form, finish: Finish, *, store: bool) -> None:
        self._form = form
        self._finish = finish
        self._store = store
        self._events = Events()
        self._message: _Message | None = None
        self._calls: dict[int, _Asking] = {}
        self._items = 0
        self._room = MAX_TEXT

    def begin(self) -> None:
        """The response as it is before it says anything."""
        told = self._form.response(Outcome(), store=self._store)
        self._events.add("response.created", response=told)
        self._events.add("response.in_progress", response=told)

    def said(self) -> bytes:
        """What was said since the last time."""
        return self._events.take()

    def add(self, choice: ChunkChoice) -> None:
        """Texts, refusals and calls, as they come; raises `UpstreamFailed` over `MAX_TEXT`."""
        delta = choice.delta
        if delta is None:
            return
        if delta.content:
            self._say("output_text", delta.content)
        if delta.refusal:
            self._say("refusal", delta.refusal)
        for call in delta.tool_calls or ():
            self._ask(call)

    def _say(self, kind: str, text: str) -> None:
        self._fit(text)
        message = self._message
        if message is None:
            message = self._message = _Message(new_id("msg"), self._next())
            self._added(message)
        spoken = message.parts.get(kind)
        if spoken is None:
            at = {
                "item_id": message.id,
                "output_index": message.index,
                "content_index": len(message.parts),
            }
            spoken = message.parts[kind] = _Part(kind, at)
            self._events.add("response.content_part.added", **at, part=spoken.whole())
        spoken.texts.append(text)
        more: dict[str, Any] = {"logprobs": []} if kind == "output_text" else {}
        self._events.add(f"response.{kind}.delta", **spoken.at, delta=text, **more)

    def _ask(self, delta: Call) -> None:
        function = delta.function or Function()
        call = self._calls.get(delta.index)
        if call is None:
            call = _Asking(
                new_id("fc"), self._next(), delta.id or new_id("call"), function.name or ""
            )
            self._calls[delta.index] = call
            self._added(call)
        if function.arguments:
            self._fit(function.arguments)
            call.texts.append(function.arguments)
            self._events.add(
                "response.function_call_arguments.delta",
                item_id=call.id,
                output_index=call.index,
                delta=function.arguments,
            )

    def _fit(self, text: str) -> None:
        self._room -= len(text)
        if self._room < 0:
            raise UpstreamFailed(f"the answer is over {MAX_TEXT} characters")

    def _next(self) -> int:
        self._items += 1
        return self._items - 1

    def _added(self, item: _Message | _Asking) -> None:
        told = item.item("in_progress")
        self._events.add("response.output_item.added", output_index=item.index, item=told)

    def end(self, reason: str, usage: Usage, cost: str) -> None:
        """Each item whole, and the response."""
        if self._message is None and not self._calls:  # it had nothing to say, and says that
            self._message = _Message(new_id("msg"), self._next())
            self._added(self._message)
        outcome = Outcome(finish=reason or "stop", usage=usage, cost=cost)
        items = [*([self._message] if self._message else ()), *self._calls.values()]
        for item in sorted(items, key=lambda item: item.index):
            if isinstance(item, _Message):
                self._end_parts(item)
            else:
                self._end_call(item)
            told = item.item(outcome.status)
            self._events.add("response.output_item.done", output_index=item.index, item=told)
            outcome.output.append(told)
        response = self._finish(outcome)
        self._events.add(f"response.{outcome.status}", response=response)

    def _end_parts(self, message: _Message) -> None:
        for spoken in message.parts.values():
            whole = spoken.whole()
            if spoken.kind == "refusal":
                self._events.add("response.refusal.done", **spoken.at, refusal=whole["refusal"])
            else:
                self._events.add(
                    "response.output_text.done", **spoken.at, text=whole["text"], logprobs=[]
                )
            self._events.add("response.content_part.done", **spoken.at, part=whole)

    def _end_call(self, call: _Asking) -> None:
        self._events.add(
            "response.function_call_arguments.done",
            item_id=call.id,
            output_index=call.index,
            name=call.name,
            arguments="".join(call.texts),
        )
