"""Somebody else's server, as a script: what it is asked is in `seen`, what it answers is set."""

import json
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

EVENTS = "text/event-stream"
WHOLE: dict[str, Any] = {
    "id": "chatcmpl-1",
    "object": "chat.completion",
    "created": 1,
    "model": "theirs",
    "choices": [
        {
            "index": 0,
            "message": {"role": "assistant", "content": "Namaste."},
            "finish_reason": "stop",
        }
    ],
    "usage": {"prompt_tokens": 9, "completion_tokens": 3, "total_tokens": 12},
}


@dataclass(slots=True)
class Answer:
    """What it answers: JSON, or the events of a stream as they go on the wire, of this `kind`."""

    status: int = 200
    told: Any = None
    events: Sequence[bytes] = ()
    headers: dict[str, str] = field(default_factory=dict)
    kind: str = EVENTS


@dataclass(slots=True)
class Asked:
    """What it was asked; header names are lower case."""

    path: str
    headers: dict[str, str]
    body: bytes

    @property
    def told(self) -> dict[str, Any]:
        """The body as JSON."""
        found: dict[str, Any] = json.loads(self.body)
        return found


class Upstream(ThreadingHTTPServer):
    """Answers `whole`, or `stream` where one is asked for; `answers` come before, by path, and
    those of `once` before these."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.seen: list[Asked] = []
        self.whole = Answer(told=WHOLE)
        self.stream = Answer(events=chunks("Namaste", "."))
        self.answers: dict[str, Answer] = {}
        self.once: dict[str, Answer] = {}

    @property
    def address(self) -> str:
        """Where it is, without a path."""
        return f"http://127.0.0.1:{self.server_port}"


def chunks(*words: str, usage: bool = True) -> list[bytes]:
    """A chat's stream that says these words."""
    deltas: list[dict[str, Any]] = [{"role": "assistant", "content": ""}]
    deltas += [{"content": word} for word in words]
    choices: list[dict[str, Any]] = [
        {"index": 0, "delta": delta, "finish_reason": None} for delta in deltas
    ]
    choices.append({"index": 0, "delta": {}, "finish_reason": "stop"})
    told = [{**_CHUNK, "choices": [choice]} for choice in choices]
    if usage:
        told.append({**_CHUNK, "choices": [], "usage": WHOLE["usage"]})
    return [*(event(chunk) for chunk in told), b"data: [DONE]\n\n"]


_CHUNK = {"id": "chatcmpl-1", "object": "chat.completion.chunk", "created": 1, "model": "theirs"}


def event(told: Any, name: str = "") -> bytes:
    """One event on the wire."""
    head = f"event: {name}\n" if name else ""
    return f"{head}data: {json.dumps(told)}\n\n".encode()


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: Upstream

    def log_message(self, format: str, *args: Any) -> None:
        pass

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["content-length"]))
        headers = {name.lower(): value for name, value in self.headers.items()}
        asked = Asked(self.path, headers, body)
        self.server.seen.append(asked)
        streams = body[:1] == b"{" and asked.told.get("stream", False)
        usual = self.server.stream if streams else self.server.whole
        usual = self.server.answers.get(self.path, usual)
        self._answer(self.server.once.pop(self.path, usual))

    def _answer(self, answer: Answer) -> None:
        body = b"".join(answer.events) or json.dumps(answer.told).encode()
        self.send_response(answer.status)
        self.send_header("content-type", answer.kind if answer.events else "application/json")
        self.send_header("content-length", str(len(body)))
        for name, value in answer.headers.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)


@contextmanager
def serving() -> Iterator[Upstream]:
    """One that answers until this is left."""
    with Upstream() as upstream:
        thread = threading.Thread(target=upstream.serve_forever, args=(0.01,))
        thread.start()
        try:
            yield upstream
        finally:
            upstream.shutdown()
            thread.join()
