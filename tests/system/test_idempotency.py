"""Idempotency keys with real processes: kills, clients that leave, a gateway that takes over."""

import contextlib
import json
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import httpx
import pytest

from tests.system.conftest import Serve
from tests.system.server import Server, body, until

pytestmark = pytest.mark.xdist_group("idempotency")

MODELS = """
[models.echo]
runtime = "echo"
slots = 4

[models.slow]
runtime = "echo"
slots = 4
token_ms = 100
"""
WORDS = " ".join(f"word{n}" for n in range(20))
LONG = " ".join(["word"] * 60)
FINISH = {"x-tiffin-finish": "true"}


class Upstream(ThreadingHTTPServer):
    """Somebody who charges for each request; while `open` isn't set, answers wait."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Upstream)
        self.asked = 0
        self.open = threading.Event()
        self.open.set()


class _Upstream(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: Upstream

    def log_message(self, format: str, *args: Any) -> None:
        pass

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["content-length"]))
        self.server.asked += 1
        self.server.open.wait(20)
        message = {"role": "assistant", "content": f"answer {self.server.asked}"}
        told = {
            "object": "chat.completion",
            "choices": [{"index": 0, "message": message, "finish_reason": "stop"}],
            "usage": {"prompt_tokens": 3, "completion_tokens": 2, "total_tokens": 5},
        }
        content = json.dumps(told).encode()
        self.send_response(200)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """One for all tests that use keys of their own; its gateway may have been killed before."""
    started = Server(tmp_path_factory.mktemp("server"), MODELS)
    try:
        started.start()
        for model in ("echo", "slow"):
            started.until_answers(model)
        yield started
    finally:
        started.close()


@pytest.fixture
def upstream() -> Iterator[Upstream]:
    server = Upstream()
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield server
    server.open.set()
    server.shutdown()
    thread.join()
    server.server_close()


def ask(server: Server, key: str, model: str = "echo", **more: Any) -> httpx.Response:
    headers = {"idempotency-key": key, **more.pop("headers", {})}
    asked = body(model, more.pop("text", WORDS), **more)
    return server.http.post("/v1/chat/completions", json=asked, headers=headers)


def again(server: Server, key: str, model: str = "echo", **more: Any) -> httpx.Response:
    """The same request until it isn't refused for now."""

    def asked() -> httpx.Response | None:
        try:
            reply = ask(server, key, model, **more)
        except httpx.TransportError:
            return None
        return None if "retry-after" in reply.headers else reply

    return until(asked, what=server.explain)


def replayed(reply: httpx.Response) -> bool:
    return bool(reply.headers.get("idempotency-replayed") == "true")


@contextmanager
def running(server: Server, key: str, model: str, **more: Any) -> Iterator[threading.Thread]:
    """A request that runs, and may be cut off."""

    def run() -> None:
        try:
            ask(server, key, model, **more)
        except httpx.TransportError:
            return

    thread = threading.Thread(target=run)
    thread.start()
    until(lambda: server.in_flight() > 0)
    yield thread
    thread.join()


def entry_of(server: Server, request: str) -> dict[str, Any]:
    """A request's account, once control has it."""

    def found() -> dict[str, Any] | None:
        with contextlib.suppress(httpx.HTTPStatusError):  # control may be on its way back
            return next((e for e in server.accounts() if e["id"] == request), None)
        return None

    return until(found, what=server.explain)


def id_of(reply: httpx.Response) -> str:
    return str(reply.headers["x-request-id"])


def readable(server: Server, *secrets: str) -> list[str]:
    """The files of the data folder that have one of these in them."""
    return [
        str(path)
        for path, content in server.written().items()
        if any(secret.encode() in content for secret in secrets)
    ]


def test_an_answer_outlives_gateway_and_control_is_charged_once_and_lies_nowhere_readable(
    server: Server,
) -> None:
    whole, stream = again(server, "whole-key-name"), again(server, "stream", stream=True)
    assert stream.text.endswith("data: [DONE]\n\n")
    for reply in (whole, stream):  # an account is closed a moment after its answer
        assert entry_of(server, id_of(reply))["completion_tokens"] == 20
    for role in ("gateway", "control"):
        pid = server.kill(role)
        server.until_ready(role, after_pid=pid)
        second, third = again(server, "whole-key-name"), again(server, "stream", stream=True)
        assert replayed(second)
        assert replayed(third)
        assert (second.content, third.content) == (whole.content, stream.content)
        assert second.headers["content-type"] == whole.headers["content-type"]
        assert third.headers["content-type"] == stream.headers["content-type"]
        for reply in (second, third):
            entry = entry_of(server, id_of(reply))
            assert (entry["outcome"], entry["cache"]) == ("ok", "replayed")
            assert entry["prompt_tokens"] == entry["completion_tokens"] == 0
    assert ask(server, "whole-key-name", text="something else").status_code == 422
    for reply in (whole, stream):
        assert entry_of(server, id_of(reply))["completion_tokens"] == 20
    assert readable(server, WORDS[:30], "whole-key-name") == []


def test_what_ran_on_a_replica_of_ours_when_the_gateway_died_may_run_again(
    server: Server,
) -> None:
    with running(server, "killed", "slow"):
        assert ask(server, "killed", "slow").status_code == 409
        pid = server.kill("gateway")
        server.until_ready("gateway", after_pid=pid)
        reply = again(server, "killed", "slow")
        assert (reply.status_code, replayed(reply)) == (200, False)
    assert replayed(again(server, "killed", "slow"))


def race(server: Server, key: str, model: str) -> list[int]:
    """What eight who ask at once with one key are answered."""
    codes: list[int] = []
    gate = threading.Barrier(8)

    def run() -> None:
        gate.wait()
        reply = ask(server, key, model)
        codes.append(200 if replayed(reply) is False and reply.status_code == 200 else 409)

    threads = [threading.Thread(target=run) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return codes


def test_what_ran_at_somebody_who_charges_isnt_run_again(serve: Serve, upstream: Upstream) -> None:
    server = serve(
        f'[models.paid]\nruntime = "remote"\nurl = "http://127.0.0.1:{upstream.server_port}/v1"\n'
    )
    until(lambda: race(server, "first", "paid").count(200) == 1)
    assert upstream.asked == 1
    upstream.open.clear()
    with running(server, "cut", "paid"):
        until(lambda: upstream.asked == 2)
        pid = server.kill("gateway")
        server.until_ready("gateway", after_pid=pid)
        for _ in range(2):
            reply = again(server, "cut", "paid")
            assert (reply.status_code, reply.json()["error"]["code"]) == (409, "indeterminate")
            pid = server.kill("gateway")
            server.until_ready("gateway", after_pid=pid)
        upstream.open.set()
    assert replayed(again(server, "first", "paid"))
    assert upstream.asked == 2
    assert again(server, "another", "paid").json()["choices"][0]["message"]["content"] == "answer 3"


def leave(server: Server, key: str, headers: dict[str, str]) -> bytes:
    """Ask for a stream, and leave after its first bytes; those."""
    asked = body("slow", WORDS, stream=True)
    headers = {"idempotency-key": key, **headers}
    with server.http.stream(
        "POST", "/v1/chat/completions", json=asked, headers=headers
    ) as response:
        return next(response.iter_raw())


def test_a_client_that_leaves_frees_its_key_unless_it_asked_to_finish(
    server: Server,
) -> None:
    leave(server, "left", {})
    begun = leave(server, "finished", FINISH)
    until(lambda: server.in_flight() == 1)
    assert ask(server, "finished", "slow", stream=True).status_code == 409
    kept = again(server, "finished", "slow", stream=True)
    assert replayed(kept)
    assert kept.content.startswith(begun)
    assert kept.text.endswith("data: [DONE]\n\n")
    fresh = again(server, "left", "slow", stream=True)
    assert not replayed(fresh)
    finished = entry_of(server, kept.headers["x-tiffin-original-request"])
    assert (finished["outcome"], finished["completion_tokens"]) == ("ok", 20)


def test_what_an_old_gateway_finishes_a_new_one_doesnt_begin(serve: Serve) -> None:
    server = serve(MODELS)
    server.until_answers("slow")
    from tests.system.test_upgrade import upgraded

    with running(server, "k", "slow", text=LONG) as thread:
        upgraded(server)
        began = time.monotonic()
        with httpx.Client(base_url=server.http.base_url, headers=server.http.headers) as http:
            asked = body("slow", LONG)
            refused = http.post(
                "/v1/chat/completions", json=asked, headers={"idempotency-key": "k"}
            )
        if thread.is_alive():
            assert refused.status_code == 409, time.monotonic() - began
    assert replayed(again(server, "k", "slow", text=LONG))
