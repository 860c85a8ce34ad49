"""Triton's own client, unmodified, and bare HTTP on the endpoints of the tensor protocol."""

import json
import socket
import subprocess
from collections.abc import Iterator
from contextlib import suppress
from hashlib import sha256
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest
import tritonclient.http as triton  # type: ignore[import-untyped]
from tritonclient.utils import InferenceServerException  # type: ignore[import-untyped]

from tests.system.oip_fake import Fake, fake_server
from tests.system.server import KEY, TIFFIN, Server, until

pytestmark = pytest.mark.xdist_group("tensor clients")

AUTH = {"authorization": f"Bearer {KEY}"}
PLAIN = "sk-tiffin-plain"
MODELS = """
[models.echo]
runtime = "echo"

[models.bad]
runtime = "echo"
fail_load = "it broke"

[models.twice]
runtime = "remote"
protocol = "oip"
url = "{url}"
model = "double"

[models.gone]
runtime = "remote"
protocol = "oip"
url = "{url}"

[routes.best]
models = ["gone", "twice"]

[tenants.others.keys.plain]
key_sha256 = "{digest}"
models = ["twice"]
"""
X = {"name": "x", "shape": [2, 2], "datatype": "FP32", "data": [1, 2, 3, 4]}


@pytest.fixture(scope="module")
def fake() -> Iterator[Fake]:
    with fake_server() as fake:
        yield fake


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory, fake: Fake) -> Iterator[Server]:
    digest = sha256(PLAIN.encode()).hexdigest()
    folder = tmp_path_factory.mktemp("tensor-clients")
    server = Server(folder, MODELS.format(url=fake.url, digest=digest))
    try:
        server.start()
        until(lambda: server.http.get("/v2/health/ready").status_code == 200, what=server.explain)
        yield server
    finally:
        server.close()


@pytest.fixture
def client(server: Server) -> Iterator[triton.InferenceServerClient]:
    with triton.InferenceServerClient(str(server.http.base_url).split("//")[1].strip("/")) as made:
        yield made


def infer(
    client: triton.InferenceServerClient, model: str, *, binary: bool, **more: Any
) -> triton.InferResult:
    numbers = np.array([[1, 2], [3, 4], [5, 6]], np.float32)
    tensor = triton.InferInput("x", [3, 2], "FP32")
    tensor.set_data_from_numpy(numbers, binary_data=binary)
    outputs = None if binary else [triton.InferRequestedOutput("y", binary_data=False)]
    headers = dict(more.pop("headers", AUTH))  # it adds to them
    result = client.infer(model, [tensor], outputs=outputs, headers=headers, **more)
    assert result.as_numpy("y").tolist() == (numbers * 2).tolist()
    return result


def test_tritons_client_works_unmodified(
    client: triton.InferenceServerClient, server: Server, fake: Fake
) -> None:
    before = len(fake.seen)
    assert client.is_server_live()
    assert client.is_server_ready()
    assert client.get_server_metadata(AUTH)["name"] == "tiffin"
    found = client.get_model_metadata("twice", headers=AUTH)
    [version] = found["versions"]
    assert (found["name"], found["inputs"][0]["shape"]) == ("twice", [-1, 2])
    assert client.is_model_ready("twice", headers=AUTH)
    assert client.is_model_ready("twice", version, headers=AUTH)
    assert not client.is_model_ready("twice", "ffffffff", headers=AUTH)
    for binary in (False, True):
        result = infer(client, "twice", binary=binary, request_id="my-7")
        assert result.get_response()["id"] == "my-7"
        infer(client, "twice", binary=binary, model_version=version)
        infer(client, "best", binary=binary)  # the first of its models isn't there
    sent = {path for path, _, _ in fake.seen[before:] if path.endswith("infer")}
    assert sent == {"/base/v2/models/double/infer", "/base/v2/models/gone/infer"}
    with pytest.raises(InferenceServerException, match="has no version '1'") as raised:
        infer(client, "twice", binary=True, model_version="1")
    assert raised.value.status() == "404"


def test_rows_are_accounted(client: triton.InferenceServerClient, server: Server) -> None:
    named = {f"rows-{binary}": binary for binary in (False, True)}
    for name, binary in named.items():
        infer(client, "twice", binary=binary, headers={**AUTH, "x-request-id": name})

    def rows() -> list[int]:
        entries = [one for one in server.accounts() if one["client_id"] in named]
        return [one["rows"] for one in entries if one["outcome"] == "ok"]

    assert until(lambda: rows() if len(rows()) == 2 else None) == [3, 3]


def test_the_repository_is_listed_and_models_leave_and_return(
    client: triton.InferenceServerClient, server: Server
) -> None:
    server.until_answers("echo")
    index = {row["name"]: row for row in client.get_model_repository_index(AUTH)}
    states = {name: row["state"] for name, row in index.items() if name != "bad"}
    assert states == dict.fromkeys(("best", "echo", "gone", "twice"), "READY")
    with pytest.raises(InferenceServerException, match=r"'bad' doesn't load: .*it broke") as raised:
        client.load_model("bad", headers=AUTH)
    assert raised.value.status() == "503"
    pid = server.until_ready("echo").pid
    client.unload_model("echo", headers=AUTH)
    assert not client.is_model_ready("echo", headers=AUTH)
    index = {row["name"]: row for row in client.get_model_repository_index(AUTH)}
    assert index["echo"]["state"] == "UNAVAILABLE"
    assert "is unloaded (by tests/main" in index["echo"]["reason"]
    refused = server.chat("echo")
    assert (refused.status_code, "is unloaded" in refused.text) == (503, True)
    until(lambda: pid not in server.children(), what=server.explain)
    server.stop()
    server.start()
    for verb, said in (("load", "is being loaded"), ("unload", "over restarts too")):
        command = [str(TIFFIN), "models", verb, "echo", "--data", str(server.folder.root)]
        done = subprocess.run(command, capture_output=True, text=True, timeout=20, check=False)
        assert said in done.stdout, done.stderr
    # The gateway hears of it a moment after control.
    until(lambda: server.chat("echo").status_code == 503, what=server.explain)
    models = server.http.get("/admin/v1/status").json()["models"]
    assert next(m["state"] for m in models if m["name"] == "echo") == "unloaded"
    reply = server.http.post("/v2/repository/models/echo/load")
    assert (reply.status_code, reply.json()["state"]) == (200, "READY")
    answer = server.chat("echo")
    assert answer.status_code == 200, answer.text


def test_a_key_sees_its_own(server: Server) -> None:
    address = str(server.http.base_url)
    with httpx.Client(base_url=address) as nobody:
        assert nobody.get("/v2/health/live").json() == {"live": True}
        assert nobody.get("/v2/health/ready").json() == {"ready": True}
        for path in ("/v2", "/v2/models/twice", "/v2/models/twice/ready"):
            assert nobody.get(path).status_code == 401
        for path in ("/v2/repository/index", "/v2/repository/models/echo/unload"):
            assert nobody.post(path).status_code == 401
    with httpx.Client(base_url=address, headers={"authorization": f"Bearer {PLAIN}"}) as other:
        assert [row["name"] for row in other.post("/v2/repository/index").json()] == ["twice"]
        assert other.get("/v2/models/twice").status_code == 200
        assert other.get("/v2/models/echo").status_code == 404
        assert other.post("/v2/models/echo/infer", json={"inputs": [X]}).status_code == 404
        refused = other.post("/v2/repository/models/twice/unload")
        assert refused.status_code == 403
        assert refused.json().keys() == {"error"}


def test_what_is_wrong_is_said_in_the_protocols_shape(server: Server, fake: Fake) -> None:
    def post(path: str, body: Any, **headers: str) -> tuple[int, str]:
        content = body if isinstance(body, bytes) else json.dumps(body).encode()
        reply = server.http.post(path, content=content, headers=headers)
        assert reply.headers["content-type"] == "application/json"
        assert reply.headers["x-request-id"]
        assert reply.json().keys() == {"error"}
        return reply.status_code, reply.json()["error"]

    path = "/v2/models/twice/infer"
    status, said = post(path, {"inputs": [{**X, "datatype": "FLOAT"}]})
    assert (status, "given 'FLOAT'" in said) == (400, True)
    status, said = post(path, {"inputs": [{**X, "name": "z"}]})
    assert (status, "the model has 'x'" in said) == (400, True)
    status, said = post(path, b"{" * 100_000)
    assert status == 400
    status, said = post("/v2/models/none/infer", {"inputs": [X]})
    assert (status, "no model 'none'" in said) == (404, True)
    status, said = post("/v2/models/echo/infer", {"inputs": [X]})
    assert (status, "echo" in said, "chat" in said) == (400, True, True)
    assert post("/v2/nothing", {})[0] == 404
    assert post("/v2/repository/models/none/load", {})[0] == 404
    assert post("/v2/repository/models/best/unload", {})[0] == 404
    status, said = post("/v2/repository/models/echo/load", {"parameters": {"config": "{}"}})
    assert (status, "'config'" in said) == (400, True)
    assert post("/v2/repository/index", b"[1]")[0] == 400
    refused = server.http.get(path)
    assert (refused.status_code, refused.json().keys()) == (405, {"error"})
    ready = "/v2/models/twice/ready"  # what is known of it holds for a moment
    fake.ready = False
    try:
        refused = until(lambda: r if not (r := server.http.get(ready)).is_success else None)
    finally:
        fake.ready = True
        until(lambda: server.http.get(ready).is_success, what=server.explain)
    assert (refused.status_code, "at its server" in refused.text) == (503, True)


def memory_of(pid: int) -> int:
    """A process's own bytes in memory."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("RssAnon"))


def test_a_body_over_the_limit_is_refused_without_being_kept(server: Server) -> None:
    pid = server.until_ready("gateway").pid
    server.http.post("/v2/models/twice/infer", json={"inputs": [X]})
    before = memory_of(pid)
    part = b"1," * 500_000

    def large() -> Iterator[bytes]:
        yield b'{"inputs":[{"name":"x","shape":[1],"datatype":"FP32","data":['
        for _ in range(50):
            yield part

    with suppress(httpx.WriteError):  # it may close before all was sent
        reply = server.http.post("/v2/models/twice/infer", content=large())
        assert (reply.status_code, reply.json().keys()) == (413, {"error"})
    head = (
        "POST /v2/models/twice/infer HTTP/1.1\r\nhost: x\r\ncontent-length: 50000000\r\n"
        f"authorization: Bearer {KEY}\r\n\r\n"
    )
    with socket.create_connection(("127.0.0.1", server.http.base_url.port or 0), 5) as raw:
        raw.sendall(head.encode())
        assert raw.recv(65_536).startswith(b"HTTP/1.1 413 ")  # before any of the body
    assert memory_of(pid) - before < 12_000_000
