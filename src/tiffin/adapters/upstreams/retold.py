"""Exchanges whose reply is told otherwise than it came, and replies that are there already."""

from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from types import TracebackType

from tiffin.errors import UpstreamFailed
from tiffin.ports.backend import Reply


class Retold:
    """One call, whose reply is what `tell` makes of it."""

    __slots__ = ("_exchange", "_tell")

    def __init__(
        self,
        exchange: AbstractAsyncContextManager[Reply],
        tell: Callable[[Reply], Awaitable[Reply]],
    ) -> None:
        self._exchange = exchange
        self._tell = tell

    async def __aenter__(self) -> Reply:
        reply = await self._exchange.__aenter__()
        try:
            return await self._tell(reply)
        except BaseException as error:
            await self._exchange.__aexit__(type(error), error, error.__traceback__)
            raise

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> bool | None:
        return await self._exchange.__aexit__(kind, error, trace)


class WholeReply:
    """A reply whose body is known; satisfies `ports.backend.Reply`."""

    def __init__(self, status: int, body: bytes, retry_after: float | None = None) -> None:
        self._body = body
        self.status = status
        self.content_type = b"application/json"
        self.streaming = False
        self.retry_after = retry_after
        self.inference_header = b""
        self.usage = b""

    async def read(self) -> bytes:
        """The body, then `b""`."""
        body, self._body = self._body, b""
        return body

    async def read_all(self, limit: int) -> bytes:
        """The whole body; `UpstreamFailed` over `limit` bytes."""
        if len(self._body) > limit:
            raise UpstreamFailed(f"the answer is larger than {limit} bytes")
        return self._body

    def rest(self, seconds: float) -> None:
        """Nothing comes."""
