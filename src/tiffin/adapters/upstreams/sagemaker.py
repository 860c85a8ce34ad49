"""Endpoints of SageMaker as backends of chats: the container speaks OpenAI's protocol, its wrapping
is AWS's. Calls to it are authorised by the backend that it asks through.
"""

from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from dataclasses import replace
from typing import Final

from tiffin.adapters.upstreams.retold import Retold, WholeReply
from tiffin.dialects.aws import sagemaker
from tiffin.ports.backend import Backend, Call, Reply

WHOLE: Final = b"/invocations"
STREAMED: Final = b"/invocations-response-stream"
MAX_ERROR_BYTES: Final = 65_536


class SageMakerBackend:
    """Satisfies `ports.backend.Backend`; `close` closes the backend that it asks through."""

    def __init__(self, inner: Backend, close: Callable[[], None]) -> None:
        self._inner = inner
        self.close = close

    def start(self, call: Call) -> AbstractAsyncContextManager[Reply]:
        """Send `call` on entering the returned context; stop it on leaving."""
        asked = replace(call, path=STREAMED if sagemaker.streams(call.body) else WHOLE)
        return Retold(self._inner.start(asked), _told)


async def _told(reply: Reply) -> Reply:
    if reply.status >= 300:
        body = await reply.read_all(MAX_ERROR_BYTES)
        return WholeReply(*sagemaker.meant(reply.status, body), reply.retry_after)
    streams = reply.content_type[: len(sagemaker.STREAM)].lower() == sagemaker.STREAM
    return _StreamReply(reply) if streams else reply


class _StreamReply:
    """A stream's payload as events; satisfies `ports.backend.Reply`."""

    def __init__(self, reply: Reply) -> None:
        self._reply = reply
        self._lines = sagemaker.Lines()
        self._over = False
        self.status = reply.status
        self.content_type = b"text/event-stream"
        self.streaming = True
        self.retry_after = reply.retry_after
        self.inference_header = b""
        self.usage = b""

    async def read(self) -> bytes:
        """The next events, `b""` at the stream's end."""
        while not self._over:
            data = await self._reply.read()
            self._over = not data
            out = self._lines.feed(data) if data else self._lines.end()
            if out:
                return out
        return b""

    async def read_all(self, limit: int) -> bytes:
        """Nothing reads a stream whole."""
        raise TypeError("a stream isn't read whole")

    def rest(self, seconds: float) -> None:
        """Leave what comes to the system for so long."""
        self._reply.rest(seconds)
