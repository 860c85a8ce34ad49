"""What an answer of Anthropic's own says about itself while it is passed on as it came."""

from collections.abc import Callable
from typing import Annotated, Any

import msgspec
from msgspec import Meta

from tiffin.dialects.events import Events, payload_of
from tiffin.errors import TiffinError, UpstreamFailed
from tiffin.types.usage import Usage

MAX_SAID = 300

Count = Annotated[int, Meta(ge=0, le=2**53)]


class _Details(msgspec.Struct, gc=False):
    thinking_tokens: Count | None = None


class Used(msgspec.Struct, gc=False):
    """Anthropic's counts; what was read from or written to a cache isn't in `input_tokens`."""

    input_tokens: Count | None = None
    output_tokens: Count | None = None
    cache_read_input_tokens: Count | None = None
    cache_creation_input_tokens: Count | None = None
    output_tokens_details: _Details | None = None

    def over(self, before: "Used") -> "Used":
        """These counts, and those before where these don't say: all are sums until now."""
        told = {
            name: mine if (mine := getattr(self, name)) is not None else getattr(before, name)
            for name in self.__struct_fields__
        }
        return Used(**told)

    def usage(self) -> Usage:
        """As everybody else counts: the whole input, and what of it was cached."""
        read, written = self.cache_read_input_tokens or 0, self.cache_creation_input_tokens or 0
        details = self.output_tokens_details
        return Usage(
            prompt_tokens=(self.input_tokens or 0) + read + written,
            completion_tokens=self.output_tokens or 0,
            cached_tokens=read,
            reasoning_tokens=(details.thinking_tokens or 0) if details else 0,
        )


class _Message(msgspec.Struct):
    type: str = ""
    usage: Used | None = None
    content: list[Any] | None = None


class _Event(msgspec.Struct):
    type: str = ""
    message: _Message | None = None
    usage: Used | None = None
    error: Any = None


MESSAGES = msgspec.json.Decoder(_Message)
_EVENTS = msgspec.json.Decoder(_Event)


def read_message(body: bytes) -> Usage:
    """The usage of a whole message; raises `UpstreamFailed` where it is none."""
    try:
        told = MESSAGES.decode(body)
    except msgspec.DecodeError as error:
        raise UpstreamFailed("the answer is no message") from error
    if told.type != "message" or told.content is None:
        raise UpstreamFailed("the answer is no message")
    return told.usage.usage() if told.usage else Usage(measured=False)


def broken_off(error: Any) -> UpstreamFailed:
    """What an error inside a stream means to our client."""
    said = str(error.get("message", "")) if isinstance(error, dict) else ""
    return UpstreamFailed(f"the upstream broke off: {said[:MAX_SAID] or 'it gave no reason'}")


class NativeReading:
    """Passes a stream of events on; satisfies `dialects.dialect.Reading`."""

    def __init__(self) -> None:
        self._events = Events()
        self._used = Used()
        self._told = False
        self._deltas = 0
        self.content = False
        self.done = False
        self.error: TiffinError | None = None
        self.priced: Callable[[Usage], str] | None = None

    @property
    def usage(self) -> Usage:
        """What the stream reported last, or its content events counted and not `measured`."""
        used = self._used.usage()
        if self._told:
            return used
        return msgspec.structs.replace(used, completion_tokens=self._deltas, measured=False)

    def feed(self, data: bytes) -> bytes:
        """Read the next bytes and return whole events to pass on, never one that is an error."""
        try:
            events = self._events.feed(data)
        except ValueError as error:
            self.error = UpstreamFailed(f"the stream has an event that is too large: {error}")
            return b""
        return b"".join([self._pass(event) + b"\n\n" for event in events if self._take(event)])

    def _take(self, event: bytes) -> bool:
        if self.done or self.error is not None:
            return False
        payload = payload_of(event)
        if not payload:
            return True
        try:
            told = _EVENTS.decode(payload)
        except msgspec.DecodeError:
            self.error = UpstreamFailed("the stream has an event that is none of a message's")
            return False
        if told.type == "error":
            self.error = broken_off(told.error)
            return False
        used = told.message.usage if told.message is not None else told.usage
        if used is not None:
            self._used = used.over(self._used)
            self._told = told.type == "message_delta"
        if told.type in ("content_block_start", "content_block_delta"):
            self.content = True
            self._deltas += told.type == "content_block_delta"
        self.done = told.type == "message_stop"
        return True

    def _pass(self, event: bytes) -> bytes:
        """The event, with what the message costs where it tells the use."""
        if self.priced is None or b"message_delta" not in event:
            return event
        told = msgspec.json.decode(payload_of(event))
        if told.get("type") != "message_delta" or not isinstance(told.get("usage"), dict):
            return event
        told["usage"]["tiffin"] = {"cost": self.priced(self.usage)}
        return b"event: message_delta\ndata: " + msgspec.json.encode(told)
