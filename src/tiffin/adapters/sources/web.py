"""`https:` addresses: a stream that resumes where it broke off, as RFC 9110 §14 has it."""

import http.client
import re
import socket
from base64 import b64encode
from contextlib import suppress
from urllib.parse import SplitResult, quote, unquote, urljoin, urlsplit
from urllib.request import getproxies, proxy_bypass

from tiffin.adapters.sources.interrupt import interrupting
from tiffin.errors import ArtifactError, ConfigInvalid, Draining
from tiffin.ports.artifacts import Landing, shown

CHUNK_BYTES = 1 << 20
MARK_BYTES = 8 << 20
MAX_REDIRECTS = 5
CONNECT_S = 10.0
_REDIRECTS = frozenset({301, 302, 303, 307, 308})
_PASSING = frozenset({408, 425, 429})
_LOOPBACK = frozenset({"localhost", "127.0.0.1", "::1"})
_RANGE = re.compile(r"bytes (?:(\d+)-\d+|\*)/(\d+)")


class WebSource:
    """Files at `https:` addresses, and at `http:` ones on this machine.

    `tries` in a row may bring nothing before it gives up; between them it waits `backoff_s`,
    doubling. A read that brings nothing for `timeout_s` seconds is a failed try.
    """

    def __init__(self, *, tries: int = 4, backoff_s: float = 0.5, timeout_s: float = 30.0) -> None:
        self._tries = tries
        self._backoff_s = backoff_s
        self._timeout_s = timeout_s

    def check(self, uri: str) -> None:
        """Refuse what has no host, plain `http:` to another machine, and passwords."""
        if shown(uri) != uri.partition("?")[0]:
            raise ConfigInvalid("an address can't hold a user, password or #", where=shown(uri))
        if not _trusted(uri):
            raise ConfigInvalid(
                "expected https://host/path (http: is for this machine only)", where=shown(uri)
            )

    def fetch(self, uri: str, landing: Landing) -> None:
        """Download from the landing's offset on, or from the start where that can't be."""
        self.download(uri, landing)

    def download(self, url: str, landing: Landing, *, token: str = "") -> None:
        """Fetch with a bearer token, which is sent to the address's own host alone."""
        farthest, fruitless = landing.offset, 0
        while not (landing.size_bytes and landing.offset == landing.size_bytes):
            try:
                self._follow(url, landing, token)
                return
            except (OSError, http.client.HTTPException) as failure:
                if landing.stop.is_set():
                    raise Draining("stopped while a model was fetched") from failure
                fruitless = 0 if landing.offset > farthest else fruitless + 1
                farthest = max(farthest, landing.offset)
                if fruitless >= self._tries:
                    raise ArtifactError(f"{failure} ({type(failure).__name__})") from failure
                landing.stop.wait(self._backoff_s * 2**fruitless)

    def _follow(self, url: str, landing: Landing, token: str) -> None:
        home = urlsplit(url).netloc
        for _ in range(MAX_REDIRECTS + 1):
            headers = _headers(landing)
            if token and urlsplit(url).netloc == home:
                headers["authorization"] = f"Bearer {token}"
            target = self._exchange(urlsplit(url), landing, headers)
            if target is None:
                return
            url = _join(url, target)
            if not _trusted(url):
                raise ArtifactError("it redirects to an address that isn't https")
        raise ArtifactError(f"it redirects more than {MAX_REDIRECTS} times")

    def _exchange(self, url: SplitResult, landing: Landing, headers: dict[str, str]) -> str | None:
        """One request: takes the body, or returns where a redirect leads."""
        connection = _connection(url)
        try:
            connection.connect()
            wire = connection.sock
            wire.settimeout(self._timeout_s)
            with interrupting(landing.stop, lambda: _cut(wire)):
                connection.request("GET", _target(url), headers=headers)
                response = connection.getresponse()
                with response:
                    if response.status in _REDIRECTS:
                        return response.headers.get("location", "")
                    _take(response, landing)
        finally:
            connection.close()
        return None


class _Broken(http.client.HTTPException):
    """A reply that another try may mend."""


def _take(response: http.client.HTTPResponse, landing: Landing) -> None:
    total = _begin(response, landing)
    if landing.offset == total:
        return
    validator = _validator(response)
    marked = landing.offset
    try:
        while chunk := response.read1(CHUNK_BYTES):
            landing.write(chunk)
            if landing.offset - marked >= MARK_BYTES:
                landing.mark(validator)
                marked = landing.offset
    finally:
        landing.mark(validator)
    if total is not None and landing.offset != total:
        raise _Broken(f"the reply broke off after {landing.offset} of {total} bytes")


def _begin(response: http.client.HTTPResponse, landing: Landing) -> int | None:
    """Bring the landing to where this reply goes on; returns the length of the whole, if told."""
    status, total = response.status, None
    if status == http.client.OK:
        landing.restart()
        total = response.length
    elif status in (http.client.PARTIAL_CONTENT, http.client.REQUESTED_RANGE_NOT_SATISFIABLE):
        start, total = _range(response)
        if start != landing.offset and not (start is None and total == landing.offset):
            landing.restart()
            raise _Broken("the server sent another range than was asked for")
    elif status in _PASSING or status >= http.client.INTERNAL_SERVER_ERROR:
        raise _Broken(f"the server answered {status} {response.reason}")
    else:
        raise ArtifactError(f"the server answered {status} {response.reason}")
    if response.headers.get("content-encoding", "identity") != "identity":
        raise ArtifactError("the server sends it compressed, though it was asked not to")
    if total is not None:
        landing.expect(total - landing.offset, last=True)
    return total


def _range(response: http.client.HTTPResponse) -> tuple[int | None, int | None]:
    match = _RANGE.fullmatch(response.headers.get("content-range", ""))
    if match is None:
        return -1, None
    return None if match[1] is None else int(match[1]), int(match[2])


def _validator(response: http.client.HTTPResponse) -> str:
    """What `If-Range` may name (RFC 9110 §13.1.5): a strong ETag, else the date, else nothing."""
    etag = response.headers.get("etag", "")
    return etag if etag.startswith('"') else response.headers.get("last-modified", "")


def _headers(landing: Landing) -> dict[str, str]:
    headers = {"accept-encoding": "identity", "user-agent": "tiffin"}
    if landing.offset and landing.note:
        headers |= {"range": f"bytes={landing.offset}-", "if-range": landing.note}
    return headers


def _target(url: SplitResult) -> str:
    path = quote(url.path or "/", safe="/%:@!$&'()*+,;=~")
    return f"{path}?{url.query}" if url.query else path


def _join(url: str, target: str) -> str:
    try:
        return urljoin(url, target)
    except ValueError:
        return ""


def _trusted(address: str) -> bool:
    try:
        url = urlsplit(address)
        if not url.hostname or url.port == 0:
            return False
    except ValueError:
        return False
    return url.scheme == "https" or (url.scheme == "http" and url.hostname in _LOOPBACK)


def _connection(url: SplitResult) -> http.client.HTTPConnection:
    host = url.hostname or ""
    if url.scheme == "http":
        return http.client.HTTPConnection(host, url.port, timeout=CONNECT_S)
    proxy = getproxies().get("https", "")
    if not proxy or proxy_bypass(host):
        return http.client.HTTPSConnection(host, url.port, timeout=CONNECT_S)
    via = urlsplit(proxy if "://" in proxy else f"http://{proxy}")
    tunnel = http.client.HTTPSConnection(via.hostname or "", via.port or 80, timeout=CONNECT_S)
    headers = {}
    if via.username is not None:
        login = f"{unquote(via.username)}:{unquote(via.password or '')}"
        headers["proxy-authorization"] = f"Basic {b64encode(login.encode()).decode()}"
    tunnel.set_tunnel(host, url.port or 443, headers)
    return tunnel


def _cut(wire: socket.socket) -> None:
    # Not SSLSocket.shutdown: that tears down the state which the reading thread is using.
    with suppress(OSError):
        socket.socket.shutdown(wire, socket.SHUT_RDWR)
