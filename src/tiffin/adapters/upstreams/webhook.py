"""Webhooks over HTTP/1.1: a connection of its own for each message."""

import asyncio
import ssl
from urllib.parse import urlsplit

from tiffin.adapters.upstreams.endpoint import Endpoint, Timeouts
from tiffin.adapters.upstreams.http1 import Http1Backend
from tiffin.ports.backend import Call
from tiffin.ports.webhooks import Lines

CONNECT_S = 5.0


class HttpWebhooks:
    """Satisfies `ports.webhooks.Webhooks`."""

    async def post(self, url: str, headers: Lines, body: bytes, *, within_s: float) -> int:
        """POST JSON to an address."""
        parts = urlsplit(url)
        secure = parts.scheme == "https"
        endpoint = Endpoint(
            authority=parts.netloc.encode(),
            host=parts.hostname or "",
            port=parts.port or (443 if secure else 80),
            tls=await asyncio.to_thread(ssl.create_default_context) if secure else None,
            headers=b"user-agent: tiffin\r\nconnection: close\r\n",
        )
        backend = Http1Backend(endpoint, Timeouts(CONNECT_S, within_s, within_s), max_idle=0)
        call = Call(
            path=(parts.path or "/").encode(),
            body=body,
            headers=b"".join(b"%b: %b\r\n" % line for line in headers),
            deadline=asyncio.get_running_loop().time() + within_s,
        )
        try:
            async with backend.start(call) as reply:
                return reply.status
        finally:
            backend.close()
