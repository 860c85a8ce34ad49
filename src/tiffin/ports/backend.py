"""Where an attempt goes: a replica or an upstream, as one HTTP exchange.

Contract:
- Entering `start` sends the call and waits for the reply's head; it raises `UpstreamUnavailable`
  (nothing of a reply came) or `DeadlineExceeded`.
- `Reply.read` returns the next bytes as they come, `b""` at the reply's true end, and raises
  `UpstreamFailed` when the reply breaks off before it.
- Leaving the context early closes the connection, which is how work is cancelled at the model.
"""

from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from typing import Protocol


@dataclass(slots=True)
class Call:
    """One attempt's request: `deadline` is a moment of the event loop's clock, in seconds.

    `headers` are whole lines, each ended by CRLF, that go beside the connection's own; `content`
    are those that say what the body is.
    """

    path: bytes
    body: bytes
    headers: bytes
    deadline: float
    method: bytes = b"POST"
    content: bytes = b"content-type: application/json\r\n"


class Reply(Protocol):
    """A reply whose head has come: `streaming` is true for server-sent events.

    `inference_header` is the Open Inference Protocol's header length, `usage` a replica's own word
    on what the answer took; both as they came, empty where they didn't.
    """

    status: int
    content_type: bytes
    streaming: bool
    retry_after: float | None
    inference_header: bytes
    usage: bytes

    async def read(self) -> bytes:
        """The next bytes of the body; empty at the end."""
        ...

    async def read_all(self, limit: int) -> bytes:
        """The whole body; raises `UpstreamFailed` over `limit` bytes."""
        ...

    def rest(self, seconds: float) -> None:
        """Leave what comes to the system for so long: the next `read` finds all of it at once."""
        ...


class Backend(Protocol):
    """Something that answers calls."""

    def start(self, call: Call) -> AbstractAsyncContextManager[Reply]:
        """Send the call on entering; stop it on leaving."""
        ...
