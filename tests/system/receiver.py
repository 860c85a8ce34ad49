"""Somebody who is told by webhooks: takes them, or does what else others do."""

import hmac
import json
import threading
from base64 import b64encode
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Self

KEY = "a key that signs"


class Receiver(ThreadingHTTPServer):
    """Answers each POST with the next of `answers`, then with 204; 0 hangs up without a word, and a
    negative number answers nothing until the end. `heard` is what came, `taken` what it took."""

    daemon_threads = True

    def __init__(self, *answers: int) -> None:
        super().__init__(("127.0.0.1", 0), _Exchange)
        self.answers = list(answers)
        self.heard: list[dict[str, Any]] = []
        self.taken: list[dict[str, Any]] = []
        self.paths: list[str] = []
        self.over = threading.Event()
        self.lock = threading.Lock()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}/hook"

    def __enter__(self) -> Self:
        threading.Thread(target=self.serve_forever, args=(0.01,), daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self.over.set()
        self.shutdown()
        self.server_close()

    def events(self, kind: str) -> list[dict[str, Any]]:
        return [one for one in list(self.taken) if one["type"] == kind]


class _Exchange(BaseHTTPRequestHandler):
    server: Receiver

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["content-length"]))
        told = json.loads(body)
        content = f"{self.headers['webhook-id']}.{self.headers['webhook-timestamp']}.".encode()
        mark = b64encode(hmac.digest(KEY.encode(), content + body, "sha256")).decode()
        signed = self.headers["webhook-signature"] == f"v1,{mark}"
        with self.server.lock:
            self.server.paths.append(self.path)
            self.server.heard.append(told)
            answer = self.server.answers.pop(0) if self.server.answers else 204
            if not signed or self.headers["webhook-id"] != told["id"]:
                answer = 401
        if answer < 0:
            self.server.over.wait(30)
        if answer <= 0:
            self.close_connection = True
            return
        if answer < 300:
            self.server.taken.append(told)
        self.send_response(answer)
        if 300 <= answer < 400:
            self.send_header("location", "/elsewhere")
        self.send_header("content-length", "0")
        self.end_headers()

    def log_message(self, *_: Any) -> None:
        pass
