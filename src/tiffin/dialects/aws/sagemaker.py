"""Chats as SageMaker's endpoints take and tell them: the container's own words, in AWS's wrapping.

A stream's payload is what the container sent: server-sent events, or JSON a line.
"""

import re
from typing import Final

import msgspec

from tiffin.dialects.aws.events import Messages
from tiffin.errors import TiffinError, UpstreamFailed, UpstreamRefused

STREAM: Final = b"application/vnd.amazon.eventstream"
MAX_LINE: Final = 1_048_576
DONE: Final = b"data: [DONE]\n\n"
THROTTLED: Final = 429
MODEL_ERROR: Final = 424
_MAX_SAID: Final = 300


class _Asked(msgspec.Struct):
    stream: bool | None = None


_ASKED = msgspec.json.Decoder(_Asked)


class _Choice(msgspec.Struct):
    finish_reason: str | None = None


class _Chunk(msgspec.Struct):
    choices: list[_Choice] = []


_CHUNK = msgspec.json.Decoder(_Chunk)


class _Fault(msgspec.Struct):
    """What the service says of itself, or of the container's own words."""

    message: str = ""
    spelled: str = msgspec.field(name="Message", default="")
    status: int = msgspec.field(name="OriginalStatusCode", default=0)
    original: str = msgspec.field(name="OriginalMessage", default="")


_FAULT = msgspec.json.Decoder(_Fault)


def streams(body: bytes) -> bool:
    """Whether a chat asks for a stream, which has a path of its own."""
    return bool(_ASKED.decode(body).stream)


def meant(status: int, body: bytes) -> tuple[int, bytes]:
    """What an error of the service means: the container's own, or its status and words.

    Raises `UpstreamRefused` where the reason is the operator's to mend.
    """
    try:
        fault = _FAULT.decode(body)
    except msgspec.DecodeError:
        return status, body
    if status == MODEL_ERROR:
        own = fault.status if 400 <= fault.status <= 599 else 502
        return own, fault.original.encode()
    said = fault.message or fault.spelled
    if said == "Rate exceeded":
        return THROTTLED, body
    if reason := _reason(said):
        error = UpstreamRefused(f"the upstream refused the request (status {status}): {reason}")
        error.status = status
        raise error
    return status, body


def _reason(said: str) -> str:
    if re.search(r"Signature (expired|not yet current)", said):
        return "by its clock the signature is of another time; set this machine's"
    if "security token" in said and "expired" in said:
        return "the session that its keys are of is over; give others"
    return ""


class Lines:
    """Payloads of a stream as events: those that are pass as they are, JSON lines become some."""

    def __init__(self) -> None:
        self._messages = Messages()
        self._rest = b""
        self._begun = False
        self._json = False
        self._finished = False

    def feed(self, data: bytes) -> bytes:
        """The events that are whole with this; raises `UpstreamFailed`."""
        out = b""
        for message in self._messages.feed(data):
            kind = message.headers.get(":message-type", "event")
            if kind != "event":
                raise _broken(message.headers, message.payload)
            if message.headers.get(":event-type", "PayloadPart") == "PayloadPart":
                out += self._events(message.payload)
        return out

    def end(self) -> bytes:
        """What is still to be told at the stream's true end; raises `UpstreamFailed`."""
        if self._messages.inside:
            raise UpstreamFailed("the answer's event stream broke off inside a message")
        out = self._line(self._rest) if self._json else b""
        self._rest = b""
        return out + DONE if self._json and self._finished else out

    def _events(self, payload: bytes) -> bytes:
        if not self._begun:
            self._rest = payload = (self._rest + payload).lstrip()
            self._begun, self._json = bool(payload), payload.startswith(b"{")
            self._rest = b""
        if not self._json:
            return payload
        *lines, self._rest = (self._rest + payload).split(b"\n")
        if len(self._rest) > MAX_LINE:
            raise UpstreamFailed(f"the answer has a line of more than {MAX_LINE} bytes")
        return b"".join(map(self._line, lines))

    def _line(self, line: bytes) -> bytes:
        line = line.strip()
        if not line:
            return b""
        try:
            chunk = _CHUNK.decode(line)
        except msgspec.DecodeError:
            return b"data: %b\n\n" % line  # an error, or nothing: whoever reads events says which
        self._finished = self._finished or any(one.finish_reason for one in chunk.choices)
        return b"data: %b\n\n" % line


def _broken(headers: dict[str, str], payload: bytes) -> TiffinError:
    kind = headers.get(":exception-type") or headers.get(":error-code") or "no reason"
    try:
        fault = _FAULT.decode(payload)
        said = fault.message or fault.spelled
    except msgspec.DecodeError:
        said = ""
    told = f": {said[:_MAX_SAID]}" if said else ""
    return UpstreamFailed(f"the upstream broke off ({kind[:64]}){told}")
