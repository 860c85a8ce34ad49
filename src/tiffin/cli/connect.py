"""HTTP for the terminal: one call or one stream, over TCP, TLS or a unix socket, stdlib only."""

import contextlib
import http.client
import json
import socket
import ssl
from collections.abc import Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Self
from urllib.parse import urlsplit


class Unreachable(Exception):
    """Nobody answers at the address."""


class Refused(Exception):
    """The server answered with an error; the message is its own."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


@dataclass(frozen=True, slots=True)
class Address:
    """Where a server listens: a `url`, or a unix `socket`'s path; `key` goes along as a bearer.

    Over TLS the server is known by `shown`, a file of the very certificate that it shows, else by
    the authorities of `ca`, a file of certificates, else by this machine's. `cert` is a file of our
    own certificate and its key, where the server asks for one.
    """

    url: str = ""
    socket: str = ""
    key: str = ""
    shown: str = ""
    ca: str = ""
    cert: str = ""

    def call(self, method: str, path: str, body: Any = None, *, timeout_s: float = 10.0) -> Any:
        """The decoded JSON of an answer; raises `Unreachable` or `Refused`."""
        with _Exchange(self, timeout_s) as exchange:
            return json.loads(exchange.send(method, path, body).read() or b"null")

    def send(
        self, path: str, content: bytes, headers: dict[str, str], *, timeout_s: float = 10.0
    ) -> Any:
        """The decoded JSON of the answer to bytes of any kind; raises as `call` does."""
        with _Exchange(self, timeout_s) as exchange:
            reply = exchange.send_bytes("POST", path, content, headers)
            return json.loads(reply.read() or b"null")

    def stream(
        self, path: str, body: Any, *, timeout_s: float = 300.0
    ) -> AbstractContextManager[Iterator[Any]]:
        """The server-sent events that answer a POST; raises `Unreachable` or `Refused`."""
        return _Events(_Exchange(self, timeout_s), path, body)


class _Events:
    """Decoded events of one stream, as they come; leaving closes the connection, which cancels."""

    def __init__(self, exchange: "_Exchange", path: str, body: Any) -> None:
        self._exchange = exchange
        self._path = path
        self._body = body

    def __enter__(self) -> Iterator[Any]:
        self._exchange.__enter__()
        try:
            return self._read(self._exchange.send("POST", self._path, self._body))
        except BaseException:
            self._exchange.close()
            raise

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._exchange.close()

    def _read(self, reply: http.client.HTTPResponse) -> Iterator[Any]:
        try:
            for line in reply:
                if not line.startswith(b"data:"):
                    continue
                text = line[5:].strip()
                if text == b"[DONE]":
                    return
                event = json.loads(text)
                if isinstance(event, dict) and "error" in event:
                    raise Refused(reply.status, _message(event, "the answer broke off"))
                yield event
        except (OSError, http.client.HTTPException) as cause:
            raise Unreachable("the connection broke in the middle of the answer") from cause
        raise Unreachable("the answer ended early: the server or the model stopped")


class _Exchange:
    """One connection for one request."""

    def __init__(self, address: Address, timeout_s: float) -> None:
        self._address = address
        self._connection = _connection(address, timeout_s)
        self._reply: http.client.HTTPResponse | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        if self._reply is not None:
            self._reply.close()
        self._connection.close()

    def send(self, method: str, path: str, body: Any) -> http.client.HTTPResponse:
        if body is None:
            return self.send_bytes(method, path, None, {})
        content = json.dumps(body).encode()
        return self.send_bytes(method, path, content, {"Content-Type": "application/json"})

    def send_bytes(
        self, method: str, path: str, content: bytes | None, headers: dict[str, str]
    ) -> http.client.HTTPResponse:
        if self._address.key:
            headers = headers | {"Authorization": f"Bearer {self._address.key}"}
        where = self._address.socket or self._address.url
        try:
            with contextlib.suppress(BrokenPipeError):  # it may answer before it read everything
                self._connection.request(method, _prefix(self._address) + path, content, headers)
            reply = self._reply = self._connection.getresponse()
            if reply.status >= 400:
                raise Refused(reply.status, _reason(reply))
        except ssl.SSLError as cause:
            reason = f"{_untrusted(cause)}{self._hint(cause)}"
            raise Unreachable(f"no TLS with {where}: {reason}") from cause
        except (OSError, http.client.HTTPException) as cause:
            reason = f"{cause or type(cause).__name__}{self._hint(cause)}"
            raise Unreachable(f"nothing answers at {where} ({reason})") from cause
        return reply

    def _hint(self, cause: Exception) -> str:
        """A server that wants a certificate may just hang up on who shows none."""
        secure = isinstance(self._connection, _SecureConnection) and not self._address.cert
        hung_up = isinstance(cause, ConnectionResetError | ssl.SSLEOFError)
        return f"; {_WANTS_ONE}" if secure and hung_up else ""


class _UnixConnection(http.client.HTTPConnection):
    def __init__(self, path: str, timeout_s: float) -> None:
        super().__init__("localhost", timeout=timeout_s)
        self._path = path

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.settimeout(self.timeout)
        self.sock.connect(self._path)


class _SecureConnection(http.client.HTTPSConnection):
    def __init__(self, host: str, port: int | None, address: Address, timeout_s: float) -> None:
        super().__init__(host, port, timeout=timeout_s, context=_context(address))
        self._shown = _leaf(address.shown) if address.shown else b""

    def connect(self) -> None:
        super().connect()
        if self._shown and self.sock.getpeercert(binary_form=True) != self._shown:
            self.close()
            raise ssl.SSLError("the server there shows another certificate than the one here")


def _context(address: Address) -> ssl.SSLContext:
    """Raises `Unreachable` where a file of it can't be used."""
    try:
        context = ssl.create_default_context(cafile=address.ca or None)
        if address.cert:
            context.load_cert_chain(address.cert, password=lambda: b"")
    except OSError as cause:  # as all of TLS's errors are
        files = " and ".join(filter(None, (address.ca, address.cert)))
        raise Unreachable(f"no certificates can be read from {files}: {cause}") from cause
    if address.shown:
        # Known by the certificate itself; it needn't have the name of this machine's own address.
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    return context


_WANTS_ONE = "if it asks for a certificate, `tiffin --cert FILE …` gives it one with its key"


def _untrusted(cause: ssl.SSLError) -> str:
    """What is wrong, and what would mend it."""
    if isinstance(cause, ssl.SSLCertVerificationError):
        return (
            f"{cause.verify_message}; `tiffin --ca FILE …` names the authority of its certificate"
        )
    reason = cause.reason or str(cause)
    if "CERTIFICATE_REQUIRED" in reason or "HANDSHAKE_FAILURE" in reason:
        return _WANTS_ONE
    return reason


def _leaf(path: str) -> bytes:
    """The first certificate of a file in PEM, as it is sent."""
    try:
        text = Path(path).read_text(encoding="ascii")
        end = "-----END CERTIFICATE-----"
        return ssl.PEM_cert_to_DER_cert(text.partition(end)[0] + end)
    except (OSError, ValueError) as cause:
        raise Unreachable(f"the server's certificate can't be read from {path}") from cause


def _connection(address: Address, timeout_s: float) -> http.client.HTTPConnection:
    if address.socket:
        return _UnixConnection(address.socket, timeout_s)
    parts = urlsplit(address.url)
    host, port = parts.hostname or "127.0.0.1", parts.port
    if parts.scheme == "https":
        return _SecureConnection(host, port, address, timeout_s)
    return http.client.HTTPConnection(host, port, timeout=timeout_s)


def _prefix(address: Address) -> str:
    """The path of the address itself; a trailing `/v1`, as OpenAI clients want it, is dropped."""
    return urlsplit(address.url).path.rstrip("/").removesuffix("/v1")


def _reason(reply: http.client.HTTPResponse) -> str:
    text = reply.read(65_536)
    try:
        return _message(json.loads(text), f"HTTP {reply.status}")
    except ValueError:
        return f"HTTP {reply.status} {reply.reason}"


def _message(body: Any, otherwise: str) -> str:
    error = body.get("error") if isinstance(body, dict) else None
    if isinstance(error, dict):
        return str(error.get("message") or otherwise)
    return str(error or otherwise)
