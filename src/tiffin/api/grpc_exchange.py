"""One call over gRPC as an exchange of the site; satisfies `ports.exchange.Exchange`."""

from collections.abc import Mapping

from tiffin.api.wire_exchange import too_large
from tiffin.errors import InvalidRequest
from tiffin.ports.exchange import Headers


class CallExchange:
    """A request that is all there, and its answer as it is collected.

    `fault` is what is wrong with the request itself: it is raised when the body is asked for.
    `broken` is true where the answer was cut.
    """

    def __init__(
        self,
        method: bytes,
        path: bytes,
        headers: Mapping[bytes, bytes],
        body: bytes = b"",
        fault: InvalidRequest | None = None,
    ) -> None:
        self.method = method
        self.path = path
        self.query = b""
        self.gone = False
        self.begun = False
        self.keep_alive = True
        self.broken = False
        self.status = 0
        self.answer: dict[bytes, bytes] = {}
        self._headers = headers
        self._body = body
        self._fault = fault
        self._parts: list[bytes] = []

    @property
    def sent(self) -> bytes:
        """The body of the answer."""
        return self._parts[0] if len(self._parts) == 1 else b"".join(self._parts)

    def header(self, name: bytes) -> bytes | None:
        """The header of this lower-case name."""
        return self._headers.get(name)

    async def body(self, limit: int) -> bytes:
        """The body; raises the request's fault, and `PayloadTooLarge` over `limit` bytes."""
        if self._fault is not None:
            raise self._fault
        if len(self._body) > limit:
            raise too_large(limit)
        return self._body

    def respond(self, status: int, headers: Headers, body: bytes) -> None:
        """Answer whole."""
        self.begin(status, headers)
        self.write(body)

    def begin(self, status: int, headers: Headers) -> None:
        """Begin an answer; it is told when it is whole."""
        self.begun = True
        self.status = status
        self.answer = dict(headers)

    def write(self, data: bytes) -> None:
        """Add a part."""
        self._parts.append(data)

    async def drain(self) -> None:
        """There is always room."""

    def finish(self) -> None:
        """The answer is whole."""

    def abort(self) -> None:
        """The answer can't be ended."""
        self.broken = True
