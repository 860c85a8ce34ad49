"""How a faulty upstream answers one request: a value that says what goes wrong, and its bytes.

A play is a good answer in which one thing is changed: `Play()` answers with three words,
`Play(fault="cut", after=40, words=60)` breaks off after forty of sixty, `Play(fault="stall")` takes
the request and never says a thing.
"""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Literal

Fault = Literal["cut", "reset", "stall", "bad", "error"]

USAGE: Final[Mapping[str, Any]] = {"prompt_tokens": 7, "completion_tokens": 3, "total_tokens": 10}
STREAM_HEAD: Final = (
    b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"
)
PING: Final = b": ping\n\n"
NOT_JSON: Final = b'data: {"choices": [{"delta"\n\n'
BROKEN: Final = b'data: {"error":{"message":"it broke","type":"server_error"}}\n\n'


@dataclass(frozen=True, slots=True, kw_only=True)
class Play:
    """One answer. Times are seconds.

    It waits `head_s` before its head, `first_s` before its first word and `word_s` before each
    other; while it waits inside a stream it sends a comment every `ping_s` (0: none).

    `fault` happens after so many words, or before the head where `after` is None: `cut` closes the
    connection, `reset` breaks it, `stall` says nothing more and leaves it open, `bad` sends what is
    no JSON (before the head: no HTTP), `error` sends an error event (before the head: status 500).

    An error of `status` says this `code`. `usage` is what it says it took, None says nothing; with
    `usage_early` a stream says it beside a word too. `done` is whether a stream ends in `[DONE]`,
    `length` by how many bytes a whole answer is longer (or shorter) than its head says. Once it is
    over, a connection that is `half_open` swallows further requests as if nobody were there; one
    that isn't `kept` is closed.
    """

    words: int = 3
    status: int = 200
    code: str | None = None
    retry_after: float | None = None
    headers: Mapping[str, str] = field(default_factory=dict)
    head_s: float = 0.0
    first_s: float = 0.0
    word_s: float = 0.0
    ping_s: float = 0.0
    fault: Fault | None = None
    after: int | None = None
    usage: Mapping[str, Any] | None = field(default_factory=lambda: USAGE)
    usage_early: bool = False
    done: bool = True
    length: int = 0
    half_open: bool = False
    kept: bool = True
    body: bytes = b""
    """A whole answer's body, where another one is wanted."""


@dataclass(frozen=True, slots=True)
class Wait:
    """So many seconds pass."""

    seconds: float


@dataclass(frozen=True, slots=True)
class End:
    """How the connection goes on: `kept`, `cut`, `reset` or `stall`."""

    how: str


Step = bytes | Wait | End

KEPT: Final = End("kept")


@dataclass(frozen=True, slots=True)
class Seen:
    """A request as it came. Header names are lower case."""

    method: str
    path: str
    headers: Mapping[str, str]
    body: bytes

    @property
    def key(self) -> str:
        """The bearer token that it came with."""
        return self.headers.get("authorization", "").removeprefix("Bearer ")

    @property
    def json(self) -> dict[str, Any]:
        """Its body; empty where that is no JSON object."""
        try:
            found = json.loads(self.body)
        except ValueError:
            return {}
        return found if isinstance(found, dict) else {}


def steps(play: Play, seen: Seen) -> Iterator[Step]:
    """What goes over the wire for one request, in order; the last is how the connection goes on."""
    yield Wait(play.head_s)
    if play.fault is not None and play.after is None:
        yield from _before_the_head(play.fault)
    elif play.status >= 300:
        yield _whole(play, _error(play.status, play.code))
    elif seen.json.get("stream"):
        yield from _stream(play, seen)
    else:
        yield from _answer(play, seen)
    if play.half_open:
        yield End("stall")
    yield KEPT if play.kept else End("cut")


def _before_the_head(fault: Fault) -> Iterator[Step]:
    if fault == "error":
        yield _head(500, "application/json", len(_error(500))) + _error(500)
    elif fault == "bad":
        yield b"HELO there\r\n\r\n"
        yield End("cut")
    else:
        yield End(fault)


def _answer(play: Play, seen: Seen) -> Iterator[Step]:
    yield Wait(play.first_s + play.word_s * max(0, play.words - 1))
    body = play.body or json.dumps(_object(play, seen)).encode()
    whole = _whole(play, body)
    if play.fault is None:
        yield whole
        return
    if play.fault in ("bad", "error"):
        yield _whole(play, NOT_JSON if play.fault == "bad" else _error(500))
        return
    yield whole[: len(whole) - len(body) // 2]
    yield End(play.fault)


def _stream(play: Play, seen: Seen) -> Iterator[Step]:
    yield STREAM_HEAD + _chunk(_event(seen, None))
    for number in range(play.words):
        if play.fault is not None and number == play.after:
            yield from _inside(play)
            return
        yield from _waiting(play.word_s if number else play.first_s, play.ping_s)
        yield _chunk(_event(seen, f"word{number} ", play.usage if play.usage_early else None))
    if play.fault is not None:
        yield from _inside(play)
        return
    yield _chunk(_event(seen, "", finish="stop"))
    if play.usage is not None:
        yield _chunk(b"data: %b\n\n" % json.dumps({"choices": [], "usage": play.usage}).encode())
    if play.done:
        yield _chunk(b"data: [DONE]\n\n")
    yield b"0\r\n\r\n"


def _inside(play: Play) -> Iterator[Step]:
    """The fault in the middle of a stream."""
    if play.fault in ("bad", "error"):
        yield _chunk(NOT_JSON if play.fault == "bad" else BROKEN)
        yield b"0\r\n\r\n"
    elif play.fault == "stall" and play.ping_s:
        while True:
            yield from _waiting(play.ping_s, play.ping_s)
            yield _chunk(PING)
    elif play.fault is not None:
        yield End(play.fault)


def _waiting(seconds: float, ping_s: float) -> Iterator[Step]:
    while ping_s and seconds > ping_s:
        yield Wait(ping_s)
        yield _chunk(PING)
        seconds -= ping_s
    yield Wait(seconds)


def _whole(play: Play, body: bytes) -> bytes:
    lines = dict(play.headers)
    if play.retry_after is not None:
        lines["retry-after"] = f"{play.retry_after:g}"
    if not play.kept:
        lines["connection"] = "close"
    return _head(play.status, "application/json", len(body) - play.length, lines) + body


def _head(status: int, kind: str, length: int, lines: Mapping[str, str] | None = None) -> bytes:
    more = "".join(f"{name}: {value}\r\n" for name, value in (lines or {}).items())
    head = f"HTTP/1.1 {status} X\r\ncontent-type: {kind}\r\ncontent-length: {length}\r\n{more}\r\n"
    return head.encode()


def _chunk(data: bytes) -> bytes:
    return b"%x\r\n%b\r\n" % (len(data), data)


def _error(status: int, code: str | None = None) -> bytes:
    told = {"message": f"status {status}", "type": "server_error", "param": None, "code": code}
    return json.dumps({"error": told}).encode()


def _is_chat(seen: Seen) -> bool:
    return "prompt" not in seen.json


def _event(
    seen: Seen, text: str | None, usage: Mapping[str, Any] | None = None, finish: str | None = None
) -> bytes:
    """One event of a stream; its first, without text, says the role."""
    choice: dict[str, Any] = {"index": 0, "finish_reason": finish}
    if _is_chat(seen):
        said = {"role": "assistant", "content": ""} if text is None else {"content": text}
        choice["delta"] = {} if finish else said
    else:
        choice["text"] = text or ""
    event: dict[str, Any] = {"id": "faulty", "model": seen.json.get("model"), "choices": [choice]}
    if usage is not None:
        event["usage"] = usage
    return b"data: %b\n\n" % json.dumps(event).encode()


def _object(play: Play, seen: Seen) -> dict[str, Any]:
    text = "".join(f"word{number} " for number in range(play.words))
    choice: dict[str, Any] = {"index": 0, "finish_reason": "stop"}
    if _is_chat(seen):
        choice["message"] = {"role": "assistant", "content": text}
    else:
        choice["text"] = text
    answer: dict[str, Any] = {"id": "faulty", "model": seen.json.get("model"), "choices": [choice]}
    if play.usage is not None:
        answer["usage"] = play.usage
    return answer
