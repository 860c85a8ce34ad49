"""One request of a client and the way to answer it, whatever the server underneath.

Contract:
- The task that handles the exchange is cancelled when the client goes away; `gone` is then true.
- Exactly one of `respond` or `begin … write* … finish` happens.
- `write` never waits; `drain` waits until the client has taken enough (call it between writes).
"""

from typing import Protocol

Headers = list[tuple[bytes, bytes]]


class Exchange(Protocol):
    """A request being answered. Header names are lower case; `path` has no query."""

    method: bytes
    path: bytes
    query: bytes
    gone: bool
    begun: bool
    keep_alive: bool

    def header(self, name: bytes) -> bytes | None:
        """The first header of this lower-case name."""
        ...

    async def body(self, limit: int) -> bytes:
        """The whole body; raises `PayloadTooLarge` without reading what is over `limit` bytes."""
        ...

    def respond(self, status: int, headers: Headers, body: bytes) -> None:
        """Answer whole."""
        ...

    def begin(self, status: int, headers: Headers) -> None:
        """Begin an answer whose length isn't known."""
        ...

    def write(self, data: bytes) -> None:
        """Send a part of a begun answer."""
        ...

    async def drain(self) -> None:
        """Wait until the client has room for more."""
        ...

    def finish(self) -> None:
        """End a begun answer."""
        ...

    def abort(self) -> None:
        """Cut the connection: an answer that can't be ended must not look whole."""
        ...
