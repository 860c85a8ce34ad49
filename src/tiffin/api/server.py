"""Running an `Edge` on a socket: uvicorn's server, with our timers and the caller's signals."""

import asyncio
import contextlib
import socket
import ssl
from collections.abc import Generator
from typing import Any

import uvicorn

from tiffin.api.http import Edge, HttpProtocol, protocol_for

SWEEP_S = 0.25
BACKLOG = 2048
# How long the other side may take to agree that a connection over TLS ends.
TLS_END_S = 5.0


class EdgeServer(uvicorn.Server):
    """A server for one listening socket. `run` returns once `stop` was called and all is closed."""

    def __init__(
        self, edge: Edge, *, tls: ssl.SSLContext | None = None, close_within_s: float = 5.0
    ) -> None:
        self._protocol = protocol_for(edge)
        config = uvicorn.Config(
            no_application,
            http=self._protocol,
            loop="none",
            lifespan="off",
            ws="none",
            access_log=False,
            log_config=None,
            server_header=False,
            timeout_graceful_shutdown=int(close_within_s),
        )
        super().__init__(config)
        self._stopping = asyncio.Event()
        self._leaving = False
        self._handshake_s = edge.header_timeout_s
        self._tls = tls
        self._socket: socket.socket | None = None
        self.servers = []
        config.load()

    async def run_on(self, sock: socket.socket) -> None:
        """Serve until `stop`."""
        await self.serve(sockets=[sock])

    def running(self) -> list[asyncio.Task[None]]:
        """The tasks of all exchanges that are being answered."""
        found = []
        for connection in self.server_state.connections:
            if isinstance(connection, HttpProtocol) and connection.exchange is not None:
                task = connection.exchange.task
                if task is not None:
                    found.append(task)
        return found

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Listen, as uvicorn does, but give a client no more time for TLS than for its head."""
        for sock in sockets or ():
            self._socket = sock
            self.servers = [await self._listen(sock, self._tls)]
        self.started = True

    async def renew(self, tls: ssl.SSLContext, *, others: bool) -> None:
        """Use this context for connections from now on; those that are here keep theirs.

        The new one listens before the old one ceases to, so that no client is turned away. Where
        it is for `others`, who is connected gets one more answer, which tells that it is the last.
        """
        if self._socket is None or self._leaving or self.should_exit:
            return
        fresh = await self._listen(self._socket, tls)
        before, self.servers = self.servers, [fresh]
        if self._leaving or self.should_exit:  # while it was made
            fresh.close()
        for server in before:
            server.close()
        if others:
            self._tell()

    def leave(self) -> None:
        """Let another process have the socket: take no more connections from it.

        Those that are here get one more answer, which tells their client that it is the last; so
        none is closed while a request may be on its way. When none is left, `run_on` returns.
        """
        self._leaving = True
        for server in self.servers:
            server.close()
        if self._socket is not None:
            self._socket.close()
        self._tell()

    def stop(self) -> None:
        """Stop taking connections, close the idle ones, and let `run_on` return."""
        self.should_exit = True
        self._stopping.set()

    @contextlib.contextmanager
    def capture_signals(self) -> Generator[None, None, None]:
        """Signals belong to the process's own composition root."""
        yield

    async def main_loop(self) -> None:
        """Apply every connection's timers until `stop`; uvicorn's own loop wakes far more often."""
        alone = 0
        # What was accepted last may not count as a connection yet.
        while not self.should_exit and alone < 2:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(SWEEP_S):
                    await self._stopping.wait()
            now = asyncio.get_running_loop().time()
            for connection in list(self.server_state.connections):
                if isinstance(connection, HttpProtocol):
                    connection.sweep(now)
            if self._leaving:
                self._tell()
                alone = 0 if self.server_state.connections else alone + 1

    async def _listen(self, sock: socket.socket, tls: ssl.SSLContext | None) -> asyncio.Server:
        """Take connections from a socket, by a descriptor that is closed with what this gives."""
        return await asyncio.get_running_loop().create_server(
            self._connection,
            sock=sock.dup(),
            backlog=BACKLOG,
            ssl=tls,
            ssl_handshake_timeout=self._handshake_s if tls else None,
            ssl_shutdown_timeout=TLS_END_S if tls else None,
        )

    def _connection(self) -> HttpProtocol:
        return self._protocol(self.config, self.server_state, self.lifespan.state)

    def _tell(self) -> None:
        for connection in self.server_state.connections:
            if isinstance(connection, HttpProtocol):
                connection.leaving = True


async def no_application(scope: Any, receive: Any, send: Any) -> None:
    """Nothing reaches ASGI: the protocol hands every request to the edge's handler."""
    raise RuntimeError("the edge's protocol answers every request itself")
