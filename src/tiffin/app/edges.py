"""What this installation's servers accept: the public port's, and those between its processes."""

import socket
from dataclasses import replace
from pathlib import Path

from tiffin.api.http import Edge, ErrorAnswer, Handler
from tiffin.config.schema import Server
from tiffin.dialects.openai.errors import error_response
from tiffin.errors import TiffinError
from tiffin.ports.exchange import Headers
from tiffin.ports.outbox import DirectOutbox, Outbox

# The gateway's idle connections are its own to close.
KEEP_ALIVE_S = 86_400.0


def listen(path: Path) -> socket.socket:
    """A listening unix socket that its owner alone may use."""
    path.unlink(missing_ok=True)
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    sock.bind(str(path))
    path.chmod(0o600)
    return sock


def public_edge(
    handler: Handler, server: Server, answer_error: ErrorAnswer, outbox: Outbox | None = None
) -> Edge:
    """The edge of the public port; `answer_error` knows the shapes of its endpoints."""
    return Edge(
        outbox=outbox or DirectOutbox(),
        handler=handler,
        answer_error=answer_error,
        max_body_bytes=server.max_body_bytes,
        max_header_bytes=server.max_header_bytes,
        max_headers=server.max_headers,
        max_connections=server.max_connections,
        header_timeout_s=server.header_timeout_s,
        body_timeout_s=server.body_timeout_s,
        keep_alive_s=server.keep_alive_s,
    )


def private_edge(handler: Handler, server: Server, outbox: Outbox | None = None) -> Edge:
    """The edge of a server that only the gateway and the terminal talk to."""
    return replace(public_edge(handler, server, _told, outbox), keep_alive_s=KEEP_ALIVE_S)


def _told(error: TiffinError, path: bytes) -> tuple[int, Headers, bytes]:
    """Between processes errors have one shape, whatever was asked for."""
    return error_response(error)
