"""Anthropic's Messages API as a backend of chats: asked as it expects, answered as a chat is.

Whatever isn't a chat (a message, a count of tokens) goes there and comes back as it is.
"""

import time
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from dataclasses import replace

from tiffin.adapters.upstreams.retold import Retold
from tiffin.dialects.anthropic.chat_answers import ChunksOfEvents, completion
from tiffin.dialects.anthropic.upstream import message_request
from tiffin.ports.backend import Backend, Call, Reply

CHAT = b"/chat/completions"
MESSAGES = b"/messages"


class MessagesBackend:
    """Satisfies `ports.backend.Backend`; `close` closes the backend that it asks through."""

    def __init__(self, inner: Backend, close: Callable[[], None]) -> None:
        self._inner = inner
        self.close = close

    def start(self, call: Call) -> AbstractAsyncContextManager[Reply]:
        """Send `call` on entering the returned context; stop it on leaving."""
        if call.path != CHAT:
            return self._inner.start(call)
        body, version = message_request(call.body)
        lines = b"%banthropic-version: %b\r\n" % (call.content, version)
        asked = replace(call, path=MESSAGES, body=body, content=lines)
        return Retold(self._inner.start(asked), _told)


async def _told(reply: Reply) -> Reply:
    return reply if reply.status >= 300 else _ChatReply(reply)


class _ChatReply:
    """A reply with the bytes of a chat's; satisfies `ports.backend.Reply`."""

    def __init__(self, reply: Reply) -> None:
        self._reply = reply
        self._created = int(time.time())
        self._chunks = ChunksOfEvents(self._created)
        self.status = reply.status
        self.content_type = reply.content_type
        self.streaming = reply.streaming
        self.retry_after = reply.retry_after
        self.inference_header = b""
        self.usage = b""

    async def read(self) -> bytes:
        """The next chunks, `b""` at the stream's end."""
        while True:
            data = await self._reply.read()
            out = self._chunks.feed(data)
            if out or not data:
                return out

    async def read_all(self, limit: int) -> bytes:
        """The whole completion."""
        return completion(await self._reply.read_all(limit), self._created)

    def rest(self, seconds: float) -> None:
        """Leave what comes to the system for so long."""
        self._reply.rest(seconds)
