"""Loopback stand-ins of the protocols that artifacts come by, with faults on demand.

A package index (PEP 503), a hub, Google's and Azure's object stores: each as much of its protocol
as a download needs. S3 has a real server, `seaweed`.
"""

import hashlib
import json
import os
import random
import re
import socket
import ssl
import subprocess
import sys
import threading
import time
import zipfile
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass, field
from http.client import HTTPConnection
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from io import BytesIO
from pathlib import Path
from urllib.parse import unquote

DIE_WITH_PARENT = (
    "import ctypes,os,sys;ctypes.CDLL(None).prctl(1,9);os.execv(sys.argv[1],sys.argv[1:])"
)


@dataclass
class Reply:
    """How one GET is answered; the default is well. `only` is the path that it is for."""

    status: int = 0
    cut_after: int | None = None
    pause_after: int | None = None
    ignore_range: bool = False
    shift_range: int = 0
    extra: bytes = b""
    etag: str | None = None
    encoding: str = ""
    length: bool = True
    only: str = ""


@dataclass
class Asked:
    """One request as it came."""

    method: str
    path: str
    headers: dict[str, str]


@dataclass
class FileServer:
    """Files by path over HTTP/1.1, with ranges; `replies` says how the next GETs are answered.

    A reply with `pause_after` sets `paused` after so many bytes and waits for `go_on`.
    `refuses` may turn a request down with a status.
    """

    files: dict[str, bytes] = field(default_factory=dict)
    redirects: dict[str, str] = field(default_factory=dict)
    replies: deque[Reply] = field(default_factory=deque)
    asked: list[Asked] = field(default_factory=list)
    refuses: Callable[[Asked], int] = lambda _: 0
    paused: threading.Event = field(default_factory=threading.Event)
    go_on: threading.Event = field(default_factory=threading.Event)
    address: str = ""

    def gets(self, path: str) -> list[Asked]:
        """The GETs of a path so far."""
        return [one for one in self.asked if one.method == "GET" and one.path == path]


@contextmanager
def serving(server: FileServer, tls: ssl.SSLContext | None = None) -> Iterator[FileServer]:
    """The server, listening on a port of its own, with TLS where a context is given."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def log_message(self, format: str, *args: object) -> None:
            pass

        def do_HEAD(self) -> None:
            _answer(self, server)

        def do_GET(self) -> None:
            _answer(self, server)

    httpd = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    httpd.daemon_threads = True
    server.address = f"http://127.0.0.1:{httpd.server_address[1]}"
    if tls is not None:
        httpd.socket = tls.wrap_socket(httpd.socket, server_side=True)
        server.address = f"https://localhost:{httpd.server_address[1]}"
    thread = threading.Thread(target=httpd.serve_forever, args=(0.02,))
    thread.start()
    try:
        yield server
    finally:
        server.go_on.set()
        httpd.shutdown()
        thread.join()
        httpd.server_close()


def _answer(handler: BaseHTTPRequestHandler, server: FileServer) -> None:
    headers = {name.lower(): value for name, value in handler.headers.items()}
    path = unquote(handler.path)
    asked = Asked(handler.command, path, headers)
    server.asked.append(asked)
    known = path in server.files
    reply = Reply()
    if known and handler.command == "GET" and server.replies:
        reply = server.replies.popleft() if server.replies[0].only in ("", path) else reply
    if path in server.redirects:
        _send(handler, 302, {"location": server.redirects[path]}, b"", reply, server)
        return
    status = reply.status or server.refuses(asked) or (0 if known else 404)
    if status:
        _send(handler, status, {}, b"no", reply, server)
        return
    content = server.files[path]
    etag = reply.etag if reply.etag is not None else f'"{hashlib.md5(content).hexdigest()}"'
    about = {"last-modified": "Tue, 01 Dec 2026 10:00:00 GMT"}
    about |= {"content-type": "text/html"} if path.startswith("/simple/") else {}
    about |= {"etag": etag} if etag else {}
    about |= {"content-encoding": reply.encoding} if reply.encoding else {}
    if headers.get("if-match", etag) != etag:
        _send(handler, 412, {}, b"", reply, server)
        return
    wanted = re.fullmatch(r"bytes=(\d+)-(\d*)", headers.get("range", ""))
    fresh = headers.get("if-range", etag) in (etag, about["last-modified"])
    if wanted and fresh and not reply.ignore_range:
        start = int(wanted[1]) + reply.shift_range
        end = min(int(wanted[2] or len(content)) + 1, len(content))
        if start >= len(content):
            _send(handler, 416, {"content-range": f"bytes */{len(content)}"}, b"", reply, server)
            return
        about["content-range"] = f"bytes {start}-{end - 1}/{len(content)}"
        _send(handler, 206, about, content[start:end], reply, server)
    else:
        _send(handler, 200, about, content, reply, server)


def _send(
    handler: BaseHTTPRequestHandler,
    status: int,
    headers: dict[str, str],
    body: bytes,
    reply: Reply,
    server: FileServer,
) -> None:
    body += reply.extra
    handler.send_response(status)
    for name, value in headers.items():
        handler.send_header(name, value)
    if reply.length:
        handler.send_header("content-length", str(len(body)))
    else:
        handler.send_header("connection", "close")
        handler.close_connection = True
    handler.end_headers()
    if handler.command == "HEAD":
        return
    try:
        if reply.pause_after is not None:
            handler.wfile.write(body[: reply.pause_after])
            server.paused.set()
            server.go_on.wait(60)
            body = body[reply.pause_after :]
        if reply.cut_after is not None:
            body = body[: reply.cut_after]
            handler.close_connection = True
        handler.wfile.write(body)
    except OSError:
        handler.close_connection = True


def wheel(name: str, version: str, members: dict[str, bytes]) -> tuple[str, bytes]:
    """The file name and the bytes of a wheel with these members."""
    stem = f"{name.replace('-', '_')}-{version}"
    info = f"{stem}.dist-info"
    buffer = BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        for path, content in members.items():
            archive.writestr(path, content)
        archive.writestr(
            f"{info}/METADATA",
            f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n"
            "Requires-Dist: nothing-has-this-name\n",
        )
        archive.writestr(
            f"{info}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
        )
        archive.writestr(f"{info}/RECORD", "")
    return f"{stem}-py3-none-any.whl", buffer.getvalue()


def publish(index: FileServer, name: str, version: str, members: dict[str, bytes]) -> None:
    """Put a wheel on the package index."""
    file, content = wheel(name, version, members)
    digest = hashlib.sha256(content).hexdigest()
    index.files[f"/files/{file}"] = content
    index.files[f"/simple/{name}/"] = (
        f'<!DOCTYPE html><a href="/files/{file}#sha256={digest}">{file}</a>'.encode()
    )


def pip_environ(index: FileServer) -> dict[str, str]:
    """An environment in which pip knows this index alone."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("PIP_")}
    return kept | {
        "PIP_INDEX_URL": f"{index.address}/simple",
        "PIP_CONFIG_FILE": os.devnull,
        "PIP_NO_CACHE_DIR": "1",
    }


def refuse_without(name: str, value: str) -> Callable[[Asked], int]:
    """403 for requests whose header doesn't begin with the value."""
    return lambda asked: 0 if asked.headers.get(name, "").startswith(value) else 403


@contextmanager
def seaweed(folder: Path) -> Iterator[dict[str, str]]:
    """A real S3-speaking server; yields the settings of a client."""
    keys = {"accessKey": "key", "secretKey": "secret"}
    identity = {"name": "t", "credentials": [keys], "actions": ["Admin", "Read", "Write", "List"]}
    (folder / "s3.json").write_text(json.dumps({"identities": [identity]}))
    ports, process = _seaweed_on_free_ports(folder)
    try:
        yield {
            "endpoint": f"http://127.0.0.1:{ports['s3.port']}",
            "access_key_id": keys["accessKey"],
            "secret_access_key": keys["secretKey"],
            "region": "us-east-1",
        }
    finally:
        _end(process, ports)


def _seaweed_on_free_ports(folder: Path) -> tuple[dict[str, int], subprocess.Popen[bytes]]:
    names = [f"{part}.port" for part in ("master", "volume", "filer", "s3")]
    names += [f"{name}.grpc" for name in names]
    weed = Path(sys.executable).with_name("weed")
    command = [str(weed), "server", f"-dir={folder}", "-ip=127.0.0.1", "-ip.bind=127.0.0.1", "-s3"]
    command += [
        f"-s3.config={folder}/s3.json",
        "-s3.port.iceberg=0",
        "-s3.port.lance=0",
        "-volume.max=20",
    ]
    command += ["-master.volumeSizeLimitMB=64", "-master.telemetry=false"]
    for _ in range(3):
        ports = dict(zip(names, free_ports(len(names)), strict=True))
        asked = [f"-{name}={port}" for name, port in ports.items()]
        with (folder / "log").open("a") as log:
            process = subprocess.Popen(
                [sys.executable, "-S", "-c", DIE_WITH_PARENT, *command, *asked],
                stdout=log,
                stderr=log,
            )
        if _opened(ports["s3.port"], process):
            return ports, process
        _end(process, ports)
    raise AssertionError((folder / "log").read_text()[-3000:])


def _end(process: subprocess.Popen[bytes], ports: dict[str, int]) -> None:
    process.kill()
    process.wait()
    for port in ports.values():
        for left_over in Path("/tmp").glob(f"seaweedfs-*-{port}.sock"):
            left_over.unlink(missing_ok=True)


def free_ports(count: int) -> list[int]:
    """Ports that nobody listens on now, and that no outgoing connection is given meanwhile."""
    free: set[int] = set()
    while len(free) < count:
        port = random.SystemRandom().randrange(10_000, 32_000)
        with suppress(OSError), socket.create_server(("127.0.0.1", port)):
            free.add(port)
    return list(free)


def _opened(port: int, process: subprocess.Popen[bytes]) -> bool:
    """Whether it answers within twenty seconds; false as soon as it has ended."""
    deadline = time.monotonic() + 20
    while time.monotonic() < deadline and process.poll() is None:
        connection = HTTPConnection("127.0.0.1", port, timeout=5)
        with closing(connection), suppress(OSError):
            connection.request("GET", "/")
            connection.getresponse().read()
            return True
        time.sleep(0.05)
    return False
