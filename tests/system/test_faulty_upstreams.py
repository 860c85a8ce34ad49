"""Upstreams that fail on real sockets, seen from outside: by clients, and in the ledger."""

import json
import time
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from tests.system.conftest import Serve
from tests.system.server import Server, body, until
from tiffin.testing.faulty import FaultyUpstream
from tiffin.testing.plays import Play

CONFIG = """
[models.a]
runtime = "remote"
url = "{a}"
attempts = 1

[models.b]
runtime = "remote"
url = "{b}"
attempts = 1

[routes.both]
models = ["a", "b"]
attempts = 4

[routes.back]
models = ["b", "a"]
attempts = 4
"""


SORRY = """
[models.sorry]
runtime = "rules"
answer = "We can't answer right now."

[[models.sorry.rules]]
words = ["refund"]
answer = "Refunds take three days."

[routes.never]
models = ["a", "b", "sorry"]
"""


class Street:
    """A server and the two upstreams that it calls."""

    def __init__(self, stack: ExitStack, serve: Serve, more: str = "") -> None:
        self.a, self.b = FaultyUpstream(), FaultyUpstream()
        urls = [stack.enter_context(one.in_thread()) for one in (self.a, self.b)]
        self.server: Server = serve(CONFIG.format(a=urls[0], b=urls[1]) + more)

    def accounts(self, number: int) -> list[dict[str, Any]]:
        """The ledger's entries, once there are so many."""
        server = self.server
        found = until(lambda: e if len(e := server.accounts()) >= number else None)
        for name, upstream in (("a", self.a), ("b", self.b)):
            tries = [one for entry in found for one in entry["attempts"]]
            assert upstream.hits == sum(one["target"] == name for one in tries)
        return found


@pytest.fixture
def street(serve: Serve) -> Any:
    with ExitStack() as stack:
        yield Street(stack, serve)


@pytest.mark.parametrize("streaming", [False, True], ids=["whole", "stream"])
def test_a_silent_upstream_is_given_up_at_the_deadline(street: Street, streaming: bool) -> None:
    street.a.script = [Play(fault="stall")]
    began = time.monotonic()
    reply = street.server.http.post(
        "/v1/chat/completions",
        json=body("a", "hi", stream=streaming),
        headers={"x-request-timeout-ms": "1500"},
    )
    assert 1.4 <= time.monotonic() - began < 5.0
    assert (reply.status_code, reply.json()["error"]["code"]) == (504, "deadline_exceeded")
    [entry] = street.accounts(1)
    assert entry["outcome"] == "failed"


@pytest.mark.parametrize("fault", ["cut", "reset"])
def test_a_stream_that_is_cut_in_the_middle_ends_in_an_error(street: Street, fault: Any) -> None:
    street.a.script = [Play(words=60, word_s=0.01, after=40, fault=fault)]
    events = list(street.server.stream("both", "hi"))
    assert "error" in json.loads(events[-1])
    assert sum("word" in event for event in events) == 40
    assert "[DONE]" not in events
    [entry] = street.accounts(1)
    assert entry["outcome"] == "partial"
    assert street.b.hits == 0


def test_where_everything_fails_tries_are_bounded_and_one_error_lists_them(street: Street) -> None:
    street.a.script, street.b.script = [Play(status=500)], [Play(status=502)]
    for route in ("both", "back"):
        reply = street.server.chat(route)
        assert reply.status_code == 502
        message = reply.json()["error"]["message"]
        assert "a: the upstream failed (status 500)" in message
        assert "b: the upstream failed (status 502)" in message
    assert street.a.hits + street.b.hits == 8
    street.accounts(2)


def test_where_all_others_fail_rules_answer_in_every_protocol(serve: Serve) -> None:
    with ExitStack() as stack:
        street = Street(stack, serve, SORRY)
        street.a.script, street.b.script = [Play(status=500)], [Play(fault="reset")]
        server = street.server
        server.until_ready("sorry")
        reply = server.chat("never", "Where is my refund?")
        assert reply.json()["choices"][0]["message"]["content"] == "Refunds take three days."
        events = list(server.stream("never", "hello"))
        assert events[-1] == "[DONE]"
        words = [json.loads(one)["choices"][0]["delta"].get("content") or "" for one in events[:-1]]
        assert "".join(words) == "We can't answer right now."
        message = {"max_tokens": 9, **body("never", "refund")}
        told = server.http.post("/v1/messages", json=message).json()
        assert (told["content"][0]["text"], told["stop_reason"]) == ("Refunds ", "max_tokens")
        entries = street.accounts(3)
        assert {entry["outcome"] for entry in entries} == {"ok"}
        assert {entry["attempts"][-1]["target"] for entry in entries} == {"sorry"}


def lasting(kept: Path, seconds: float) -> None:
    """As after failing for longer: what is left alone still is for so many seconds from now."""
    told = json.loads(kept.read_text())
    for of in told["held"].values():
        for key, (openings, _, rests_s) in of.items():
            of[key] = [openings, seconds, rests_s]
    kept.write_text(json.dumps({**told, "at_ns": time.time_ns()}))


def test_an_upstream_that_is_left_alone_stays_so_over_a_restart(street: Street) -> None:
    server, kept = street.server, street.server.folder.root / "gateway.upstreams.json"
    street.a.script = [Play(status=503)]

    def left_alone() -> bool:
        server.chat("a")
        return kept.exists()

    until(left_alone, what=server.explain)
    server.stop()
    hits = street.a.hits
    lasting(kept, 8.0)
    server.start()
    refused = server.chat("a")
    assert refused.status_code == 503
    assert "failed again and again" in refused.json()["error"]["message"]
    assert street.a.hits == hits
    street.a.script = [Play()]
    until(lambda: server.chat("a").status_code == 200, 30, server.explain)
    assert street.a.hits <= hits + 2
