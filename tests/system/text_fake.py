"""Somebody else's server of vectors and rankings, as far as a gateway sees: OpenAI's and Jina's."""

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


class Fake(ThreadingHTTPServer):
    """A vector is a text's length; what was asked is in `seen`; `rows` spoils the next answers."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.seen: list[tuple[str, dict[str, Any]]] = []
        self.rows: int | None = None

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}/v1"


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: Fake

    def log_message(self, format: str, *args: Any) -> None:
        pass

    def do_POST(self) -> None:
        asked = json.loads(self.rfile.read(int(self.headers["content-length"])))
        self.server.seen.append((self.path, asked))
        if self.path == "/v1/embeddings":
            self._answer(self._vectors(asked))
        else:
            self._answer(self._ranking(asked))

    def _vectors(self, asked: dict[str, Any]) -> dict[str, Any]:
        texts = [asked["input"]] if isinstance(asked["input"], str) else asked["input"]
        rows = [
            {"object": "embedding", "index": at, "embedding": [float(len(text)), 0.5]}
            for at, text in enumerate(texts)
        ]
        usage = {"prompt_tokens": 21, "total_tokens": 21}
        data = rows[: self.server.rows]
        return {"object": "list", "model": asked["model"], "data": data, "usage": usage}

    def _ranking(self, asked: dict[str, Any]) -> dict[str, Any]:
        order = sorted(enumerate(asked["documents"]), key=lambda one: -len(one[1]))
        results = [{"index": at, "relevance_score": len(text) / 100} for at, text in order]
        return {"model": asked["model"], "results": results, "usage": {"total_tokens": 12}}

    def _answer(self, told: dict[str, Any]) -> None:
        body = json.dumps(told).encode()
        self.send_response(200)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


@contextmanager
def serving() -> Iterator[Fake]:
    """A fake that answers until this is left."""
    with Fake() as fake:
        thread = threading.Thread(target=fake.serve_forever, args=(0.01,))
        thread.start()
        try:
            yield fake
        finally:
            fake.shutdown()
            thread.join()
