"""What is refused before it has a model is refused in the shape of the endpoint that was asked."""

import json
import socket
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.system.conftest import ECHO
from tests.system.server import KEY, Server, until

pytestmark = pytest.mark.xdist_group("refusals")

INFER = "/v2/models/echo/infer"
CHAT = "/v1/chat/completions"
SLUGS = {
    "malformed_body", "payload_too_large", "invalid_api_key", "endpoint_not_found",
    "method_not_allowed", "request_timeout", "invalid_request", "unsupported_operation",
    "model_not_found", "invalid_value", "unknown_parameter", "permission_denied",
}  # fmt: skip


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    server = Server(tmp_path_factory.mktemp("refusals"), ECHO)
    try:
        server.start()
        server.until_answers("echo")
        yield server
    finally:
        server.close()


@dataclass
class Wire:
    """Requests as bytes, for heads that no client's library writes."""

    host: str
    port: int

    def ask(self, data: bytes) -> tuple[int, dict[str, str], Any]:
        with socket.create_connection((self.host, self.port), timeout=10) as sock:
            sock.sendall(data)
            answer = b""
            while part := sock.recv(65_536):
                answer += part
        head, _, body = answer.partition(b"\r\n\r\n")
        first, *lines = head.decode().split("\r\n")
        headers = dict(line.lower().split(": ", 1) for line in lines)
        return int(first.split()[1]), headers, json.loads(body)


def wire(server: Server) -> Wire:
    url = httpx.URL(server.status().address)
    return Wire(url.host, url.port or 80)


def check_shape(path: str, headers: Any, body: Any) -> None:
    """The protocol's shape: a string for tensors, with its name in a header; else an object."""
    if path.startswith(("/v2", "http://tiffin/v2")):
        assert list(body) == ["error"], body
        assert isinstance(body["error"], str), body
        assert headers["x-tiffin-error"] in SLUGS
    else:
        assert body["error"]["code"] in SLUGS, body


HEADS = {
    "no host": (400, b"POST %b HTTP/1.1\r\n\r\n"),
    "two types": (400, b"GET %b HTTP/1.1\r\nhost: a\r\ncontent-type: a\r\ncontent-type: b\r\n\r\n"),
    "no version of ours": (400, b"POST %b HTTP/3.0\r\nhost: a\r\n\r\n"),
    "not a header": (400, b"POST %b HTTP/1.1\r\nhost: a\r\nno header\r\n\r\n"),
    "too many": (431, b"POST %b HTTP/1.1\r\nhost: a\r\n" + b"a: b\r\n" * 300 + b"\r\n"),
    "too large": (431, b"POST %b HTTP/1.1\r\nhost: a\r\na: " + b"b" * 40_000 + b"\r\n\r\n"),
    "unframed": (400, b"POST %b HTTP/1.1\r\nhost: a\r\ntransfer-encoding: gzip\r\n\r\n"),
    "no key": (401, b"POST %b HTTP/1.1\r\nhost: a\r\nconnection: close\r\n\r\n"),
}  # fmt: skip
PATHS = [INFER, "/v2", "/v2/health/live?x=1", "http://tiffin/v2/models/a", CHAT, "/v1/nothing"]


def test_heads_that_never_become_a_request_are_refused_in_the_shape_of_their_path(
    server: Server,
) -> None:
    edge = wire(server)
    for path in PATHS:
        for name, (status, head) in HEADS.items():
            if name == "no key" and path.startswith(("/v2/health", "/v1/nothing")):
                continue
            got, headers, body = edge.ask(head % path.encode())
            allowed = {status, 405} if name == "no key" else {status}
            assert got in allowed, (path, name, body)
            check_shape(path, headers, body)


REQUESTS: dict[str, tuple[int, dict[str, Any]]] = {
    "unknown key": (401, {"headers": {"authorization": "Bearer sk-nobody"}}),
    "not JSON": (400, {"content": b"{"}),
    "too large": (413, {"content": b" " * 11_000_000}),
    "another method": (405, {"method": "DELETE"}),
}
ELSEWHERE = ["/v2/models/echo/nothing", "/v2/nothing", "/v2/models/nobody", "/v2/", "/v1/nothing"]


def test_requests_without_a_model_are_refused_in_the_shape_of_their_path(server: Server) -> None:
    headers = {"authorization": f"Bearer {KEY}"}
    for path in (INFER, CHAT):
        for name, (status, more) in REQUESTS.items():
            asked = {"method": "POST", "headers": headers, **more}
            reply = server.http.request(asked.pop("method"), path, **asked)
            assert reply.status_code == status, (path, name, reply.text)
            check_shape(path, reply.headers, reply.json())
    for path in ELSEWHERE:
        reply = server.http.get(path)
        assert reply.status_code == 404, (path, reply.text)
        check_shape(path, reply.headers, reply.json())


ENDLESS = {"type": "object", "properties": {"a": {"$ref": "#"}}, "required": ["a"]}


def test_what_two_could_read_differently_and_what_never_ends_is_refused_by_name(
    server: Server,
) -> None:
    twice = b'{"document":"YQ==","document":"Yg=="}'
    kind = {"content-type": "application/json"}
    reply = server.http.post("/v1/documents/any", content=twice, headers=kind)
    assert reply.status_code == 400
    assert "'document' is given twice" in reply.json()["error"]["message"]
    wanted = {"type": "json_schema", "json_schema": {"name": "n", "schema": ENDLESS}}
    reply = server.chat("echo", response_format=wanted)
    assert reply.status_code == 400
    assert "'#/properties/a' leads back to itself" in reply.json()["error"]["message"]
    assert reply.json()["error"]["param"].startswith("response_format")


BROKEN = """
[models.{name}]
runtime = "{runtime}"
{section}
sources = ["file:{path}"]
sha256 = "{digest}"
"""
INFERS = "/v2/models/graph/infer"
TENSOR = {"inputs": [{"name": "x", "shape": [1], "datatype": "FP32", "data": [1]}]}
RUNTIMES = {"graph": ("onnx", '[models.graph.files."model.onnx"]'), "words": ("llamacpp", "")}


def test_why_a_model_does_not_load_is_told_without_folders(
    make_server: Callable[[str], Server], tmp_path: Path
) -> None:
    models = ""
    for name, (runtime, section) in RUNTIMES.items():
        path = tmp_path / name
        path.write_bytes(b"what a customer wrote" * 100)
        digest = sha256(path.read_bytes()).hexdigest()
        models += BROKEN.format(
            name=name, runtime=runtime, section=section, path=path, digest=digest
        )
    server = make_server(models).start()

    def reasons() -> dict[str, str]:
        index = server.http.post("/v2/repository/index")
        if not index.is_success:  # the gateway has no snapshot yet
            return {}
        found = {row["name"]: row["reason"] for row in index.json()}
        # The last word is the supervisor's, once it has given up.
        ended = [server.find(name) for name in RUNTIMES]
        return found if all(one and one.reason for one in ended) and all(found.values()) else {}

    for name, reason in until(reasons, what=server.explain).items():
        reply = server.http.get(f"/v2/models/{name}/ready")
        assert reply.status_code == 503
        asked = server.chat(name) if name == "words" else server.http.post(INFERS, json=TENSOR)
        for told in (reason, reply.text, asked.text):
            assert "load" in told or "read" in told
            assert str(server.folder.root) not in told
            assert "customer" not in told
