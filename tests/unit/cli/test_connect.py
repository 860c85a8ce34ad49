"""The terminal's HTTP: calls and streams over TCP and unix sockets, and how they fail."""

import socketserver
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler
from pathlib import Path

import pytest

from tiffin.cli.connect import Address, Refused, Unreachable

EVENT = b'data: {"choices": [{"delta": {"content": "hi"}}]}\n\n'
ANSWERS = {
    "/v1/models": (200, b'{"data": [{"id": "chat"}]}'),
    "/denied": (401, b'{"error": {"message": "no such key", "code": "invalid_api_key"}}'),
    "/broken": (502, b"<html>bad gateway</html>"),
    "/whole": (200, EVENT + b"data: [DONE]\n\n"),
    "/cut": (200, EVENT),
    "/failing": (200, EVENT + b'data: {"error": {"message": "the model stopped"}}\n\n'),
}


class Answering(BaseHTTPRequestHandler):
    """Answers from the table; `/key` gives back the authorization header."""

    def do_GET(self) -> None:
        self.rfile.read(int(self.headers.get("content-length", 0)))
        said = self.headers.get("authorization", "")
        status, body = ANSWERS.get(self.path, (200, f'"{said}"'.encode()))
        self.send_response(status)
        self.end_headers()
        self.wfile.write(body)

    def do_POST(self) -> None:
        self.do_GET()

    def address_string(self) -> str:
        return "a client"

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture(params=["tcp", "unix"])
def address(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Address]:
    server: socketserver.TCPServer
    if request.param == "tcp":
        server = socketserver.ThreadingTCPServer(("127.0.0.1", 0), Answering)
        where = Address(url=f"http://127.0.0.1:{server.server_address[1]}", key="sk-1")
    else:
        path = str(tmp_path / "s.sock")
        server = socketserver.ThreadingUnixStreamServer(path, Answering)
        where = Address(socket=path, key="sk-1")
    with server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield where
        server.shutdown()
        thread.join()


def test_an_answer_is_decoded(address: Address) -> None:
    assert address.call("GET", "/v1/models") == {"data": [{"id": "chat"}]}


def test_the_key_goes_along(address: Address) -> None:
    assert address.call("GET", "/key") == "Bearer sk-1"


def test_an_error_says_what_the_server_said(address: Address) -> None:
    with pytest.raises(Refused, match="no such key") as caught:
        address.call("GET", "/denied")
    assert caught.value.status == 401


def test_an_error_that_is_not_ours_gives_its_status(address: Address) -> None:
    with pytest.raises(Refused, match="HTTP 502"):
        address.call("GET", "/broken")


def test_a_stream_gives_its_events(address: Address) -> None:
    with address.stream("/whole", {}) as events:
        assert [event["choices"][0]["delta"]["content"] for event in events] == ["hi"]


def test_a_cut_stream_is_never_taken_for_whole(address: Address) -> None:
    with address.stream("/cut", {}) as events, pytest.raises(Unreachable, match="ended early"):
        list(events)


def test_an_error_inside_a_stream_is_raised(address: Address) -> None:
    with (
        address.stream("/failing", {}) as events,
        pytest.raises(Refused, match="the model stopped"),
    ):
        list(events)


def test_nobody_there(tmp_path: Path) -> None:
    with pytest.raises(Unreachable, match="nothing answers"):
        Address(socket=str(tmp_path / "none.sock")).call("GET", "/")


@pytest.mark.parametrize("suffix", ["", "/", "/v1", "/v1/"])
def test_the_address_that_openai_clients_take_works_too(suffix: str) -> None:
    with socketserver.ThreadingTCPServer(("127.0.0.1", 0), Answering) as server:
        thread = threading.Thread(target=server.handle_request)
        thread.start()
        url = f"http://127.0.0.1:{server.server_address[1]}{suffix}"
        assert Address(url=url).call("GET", "/v1/models")["data"]
        thread.join()
