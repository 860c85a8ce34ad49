"""Somebody else's server that speaks the Open Inference Protocol, as far as a gateway sees."""

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import numpy as np

LENGTH = "inference-header-content-length"
METADATA = {
    "name": "double",
    "versions": ["1"],
    "platform": "fake",
    "inputs": [{"name": "x", "datatype": "FP32", "shape": [-1, 2]}],
    "outputs": [{"name": "y", "datatype": "FP32", "shape": [-1, 2]}],
}


class Fake(ThreadingHTTPServer):
    """Has one model, `double`; what was asked is in `seen`, and `ready` may be changed."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.seen: list[tuple[str, dict[str, str], bytes]] = []
        self.ready = True

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}/base"


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: Fake

    def log_message(self, format: str, *args: Any) -> None:
        pass

    def do_GET(self) -> None:
        self._note(b"")
        if self.path == "/base/v2/models/double":
            self._answer(200, json.dumps(METADATA).encode())
        elif self.path == "/base/v2/models/double/ready" and self.server.ready:
            self._answer(200, b'{"name":"double","ready":true}')
        else:
            self._answer(404, b'{"error":"no such model, or not ready"}')

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["content-length"]))
        self._note(body)
        if self.path != "/base/v2/models/double/infer":
            self._answer(404, b'{"error":"no such model"}')
            return
        length = int(self.headers.get(LENGTH) or len(body))
        asked = json.loads(body[:length])
        tensor = asked["inputs"][0]
        if tensor["name"] != "x":
            self._answer(400, b'{"error":"unexpected input, the model has \'x\'"}')
            return
        if "data" in tensor:
            numbers = np.array(tensor["data"], np.float32)
        else:
            numbers = np.frombuffer(body[length:], np.float32)
        self._infer(asked, numbers.reshape(tensor["shape"]) * 2)

    def _infer(self, asked: dict[str, Any], doubled: Any) -> None:
        output: dict[str, Any] = {"name": "y", "datatype": "FP32", "shape": list(doubled.shape)}
        reply: dict[str, Any] = {"model_name": "double", "model_version": "1", "outputs": [output]}
        if "id" in asked:
            reply["id"] = asked["id"]
        if asked.get("parameters", {}).get("binary_data_output"):
            output["parameters"] = {"binary_data_size": doubled.nbytes}
            header = json.dumps(reply).encode()
            self._answer(200, header + doubled.tobytes(), length=len(header))
        else:
            output["data"] = doubled.ravel().tolist()
            self._answer(200, json.dumps(reply).encode())

    def _note(self, body: bytes) -> None:
        self.server.seen.append((self.path, {k.lower(): v for k, v in self.headers.items()}, body))

    def _answer(self, status: int, body: bytes, length: int | None = None) -> None:
        self.send_response(status)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(body)))
        if length is not None:
            self.send_header(LENGTH, str(length))
        self.end_headers()
        self.wfile.write(body)


@contextmanager
def fake_server() -> Iterator[Fake]:
    """One that runs."""
    with Fake() as fake:
        thread = threading.Thread(target=fake.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield fake
        finally:
            fake.shutdown()
            thread.join()
