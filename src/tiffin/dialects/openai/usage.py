"""What a reply says about itself while it is passed on: usage, content, its end, an error.

A stream is read event by event, however its bytes were cut, and every event is decoded, so that
nothing a model writes can pass for usage. (Server-sent events: html.spec.whatwg.org, 9.2.6.)
"""

from collections.abc import Callable
from operator import attrgetter
from typing import Annotated, Any

import msgspec
from msgspec import Meta

from tiffin.dialects.events import MAX_EVENT_BYTES as MAX_EVENT_BYTES
from tiffin.dialects.events import payload_of
from tiffin.dialects.openai.errors import error_from_event
from tiffin.errors import TiffinError, UpstreamFailed
from tiffin.types.usage import Usage

DONE_EVENT = b"data: [DONE]\n\n"

Count = Annotated[int, Meta(ge=0, le=2**53)]
Word = Annotated[str, Meta(max_length=32)]


class _Details(msgspec.Struct, gc=False):
    cached_tokens: Count | None = None


class _Spent(msgspec.Struct, gc=False):
    reasoning_tokens: Count | None = None


class _Times(msgspec.Struct, gc=False):
    queue_ns: Count = 0
    device_ns: Count = 0
    reason: Word = ""


class _Usage(msgspec.Struct, gc=False):
    prompt_tokens: Count | None = None
    completion_tokens: Count | None = None
    prompt_tokens_details: _Details | None = None
    completion_tokens_details: _Spent | None = None
    tiffin: _Times | None = None


class _Delta(msgspec.Struct, gc=False):
    content: Any = None
    tool_calls: Any = None
    reasoning_content: Any = None
    reasoning: Any = None
    refusal: Any = None
    function_call: Any = None
    audio: Any = None


class _Choice(msgspec.Struct, gc=False):
    index: int = 0
    delta: _Delta | None = None
    text: Any = None
    finish_reason: Any = None


class _Chunk(msgspec.Struct, gc=False):
    choices: list[_Choice] | None = None
    usage: _Usage | None = None
    error: Any = None


_NULL = msgspec.Raw(b"null")


class _Whole(msgspec.Struct, gc=False):
    choices: list[msgspec.Raw] | None = None
    usage: msgspec.Raw = _NULL
    error: msgspec.Raw = _NULL


_CHUNKS = msgspec.json.Decoder(_Chunk)
_WHOLES = msgspec.json.Decoder(_Whole)
_USAGES = msgspec.json.Decoder(_Usage | None)
_beside_content = attrgetter(*(name for name in _Delta.__struct_fields__ if name != "content"))


def read_whole(body: bytes, *, chosen: bool, trusted: bool = False) -> Usage:
    """What a whole answer reports; zeros that are not `measured` where it doesn't.

    Raises `UpstreamFailed` where it is no answer, with `chosen` also where nothing was chosen; and
    the error that it says it is, as `StreamScanner` has it.
    """
    try:
        told = _WHOLES.decode(body)
        if not body.isascii():
            body.decode()  # what is passed on unread may be any bytes
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise UpstreamFailed("the answer is none of the dialect's") from error
    if told.error != _NULL:
        raise error_from_event(body, trusted=trusted)
    if chosen and not told.choices:
        raise UpstreamFailed("the answer has no choices")
    try:
        usage = _USAGES.decode(told.usage)
    except msgspec.ValidationError:
        usage = None
    return Usage(measured=False) if usage is None else _usage(usage)


class StreamScanner:
    """Reads a stream of events on its way to the client.

    `content` becomes true with the first content that a client would see (a role alone is none),
    `done` with `[DONE]`, `error` with an event that is an error or is none of the dialect's.
    A `trusted` stream is a replica's, whose errors come through as they were raised. Where `priced`
    is set, the event with the usage tells its cost too, as `usage.tiffin.cost`.
    """

    __slots__ = (
        "_after_cr",
        "_content_events",
        "_finished",
        "_keep_usage",
        "_retold",
        "_seen",
        "_tail",
        "_tail_bytes",
        "_told",
        "_trusted",
        "content",
        "done",
        "error",
        "priced",
    )

    def __init__(self, *, keep_usage: bool = True, trusted: bool = False) -> None:
        self.content = False
        self.done = False
        self.error: TiffinError | None = None
        self.priced: Callable[[Usage], str] | None = None
        self._retold: dict[bytes, bytes] = {}
        self._keep_usage = keep_usage
        self._trusted = trusted
        self._tail: list[bytes] = []
        self._tail_bytes = 0
        self._after_cr = False
        self._told: _Usage | None = None
        self._content_events = 0
        self._seen = 0
        self._finished = 0

    @property
    def usage(self) -> Usage:
        """What the stream reported last, or its content events counted and not `measured`."""
        if self._told is not None:
            return _usage(self._told)
        return Usage(completion_tokens=self._content_events, measured=False)

    def feed(self, data: bytes) -> bytes:
        """Read the next bytes (`b""` at the stream's end) and return those to pass on.

        Only whole events are passed on, so that an error event can always follow; never an error
        event or what comes after the end, and the usage event only with `keep_usage`.
        """
        if not data:
            return self._end()
        if self._after_cr or b"\r" in data:
            data = self._with_lf(data)
        if self._tail:
            if b"\n\n" not in self._tail[-1][-1:] + data:
                return self._hold(data)
            data = self._taken_tail() + data
        cut = data.rfind(b"\n\n") + 2
        if cut == 1:
            return self._hold(data)
        if cut == len(data):
            return self._read(data)
        return self._read(data[:cut]) + self._hold(data[cut:])

    def _hold(self, data: bytes) -> bytes:
        """Keep a part of an event until the rest comes."""
        if data and self.error is None:
            self._tail.append(data)
            self._tail_bytes += len(data)
            if self._tail_bytes > MAX_EVENT_BYTES:
                self._taken_tail()
                self.error = UpstreamFailed(f"the stream has an event over {MAX_EVENT_BYTES} bytes")
        return b""

    def _taken_tail(self) -> bytes:
        tail = b"".join(self._tail)
        self._tail.clear()
        self._tail_bytes = 0
        return tail

    def _end(self) -> bytes:
        out = b""
        tail = self._taken_tail().strip(b"\n")
        if tail:
            out = self._read(tail + b"\n\n")
        if not self.done and self.error is None and 0 < self._seen <= self._finished:
            self.done = True  # it ended well and only didn't say so
            out += DONE_EVENT
        return out

    def _with_lf(self, data: bytes) -> bytes:
        """The same lines ended by LF; JSON can't have a bare CR inside."""
        if self._after_cr and data.startswith(b"\n"):
            data = data[1:]
        self._after_cr = data.endswith(b"\r")
        return data.replace(b"\r\n", b"\n").replace(b"\r", b"\n")

    def _read(self, block: bytes) -> bytes:
        """Take in whole events and return them without those that aren't to be passed on."""
        events = block.split(b"\n\n")
        kept = [event for event in events if event and self._take(event)]
        if self._retold:
            retold, self._retold = self._retold, {}
            return b"".join([retold.get(event, event) + b"\n\n" for event in kept])
        if len(kept) == len(events) - (not events[-1]):
            return block
        return b"\n\n".join(kept) + b"\n\n" if kept else b""

    def _take(self, event: bytes) -> bool:
        """Take one event in; false where it isn't to be passed on."""
        if self.done or self.error is not None:
            return False
        if event.startswith(b"data: ") and b"\n" not in event:
            payload = event[6:]
        else:
            payload = payload_of(event)
        if payload == b"[DONE]":
            self.done = True
        elif payload:
            return self._take_payload(event, payload)
        return True

    def _take_payload(self, event: bytes, payload: bytes) -> bool:
        try:
            chunk = _CHUNKS.decode(payload)
        except msgspec.ValidationError:  # JSON of a shape that we don't know: let the client judge
            self._saw_content()
            return True
        except msgspec.DecodeError:
            self.error = UpstreamFailed("the stream has an event that is not JSON")
            return False
        if chunk.error is not None:
            self.error = error_from_event(payload, trusted=self._trusted)
            return False
        if chunk.choices:
            for choice in chunk.choices:
                self._take_choice(choice)
        if chunk.usage is None:
            return True
        self._told = chunk.usage
        if not (self._keep_usage or chunk.choices):
            return False
        if self.priced is not None:
            self._retold[event] = with_cost(payload, self.priced(self.usage))
        return True

    def _take_choice(self, choice: _Choice) -> None:
        if choice.index >= self._seen:
            self._seen = choice.index + 1
        if choice.finish_reason is not None:
            self._finished += 1
        delta = choice.delta
        if (delta is not None and (delta.content or _says_more(delta))) or choice.text:
            self._saw_content()

    def _saw_content(self) -> None:
        self.content = True
        self._content_events += 1


def _says_more(delta: _Delta) -> bool:
    return any(_beside_content(delta))


def with_cost(payload: bytes, cost: str) -> bytes:
    """An event whose payload has usage, with what that costs as `usage.tiffin.cost`."""
    chunk = msgspec.json.decode(payload)
    ours = chunk["usage"].get("tiffin")
    chunk["usage"]["tiffin"] = {**(ours if isinstance(ours, dict) else {}), "cost": cost}
    return b"data: " + msgspec.json.encode(chunk)


def _usage(told: _Usage) -> Usage:
    details, spent, times = (
        told.prompt_tokens_details,
        told.completion_tokens_details,
        told.tiffin,
    )
    return Usage(
        prompt_tokens=told.prompt_tokens or 0,
        completion_tokens=told.completion_tokens or 0,
        cached_tokens=(details.cached_tokens or 0) if details else 0,
        reasoning_tokens=(spent.reasoning_tokens or 0) if spent else 0,
        queue_ns=times.queue_ns if times else 0,
        device_ns=times.device_ns if times else 0,
        reason=times.reason if times else "",
    )
