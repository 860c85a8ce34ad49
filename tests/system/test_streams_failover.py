"""Many streams over two replicas, one of which is killed: each ends, and says truly how."""

import asyncio
import json
import os
import signal
from collections import Counter

import httpx
import pytest

from tests.polling import eventually
from tests.system.conftest import Serve
from tests.system.server import KEY, Server, body, until
from tiffin.serving.progress import read_progress

pytestmark = pytest.mark.xdist_group("streams")

STREAMS, WORDS = 30, 20
MODELS = """
[models.echo]
runtime = "echo"
replicas = 2
slots = 32
prefill_ms = 1200
token_ms = 40
"""
TEXT = " ".join(f"word{number}" for number in range(WORDS))


class Crowd:
    """Streams that run at once; `ended` counts how they did, `whole` what the whole ones said."""

    def __init__(self, server: Server) -> None:
        self.server = server
        self.ended: Counter[str] = Counter()
        self.begun = 0

    async def one(self, client: httpx.AsyncClient) -> None:
        """One stream, to its end."""
        said, ended = "", "cut"
        request = body("echo", TEXT, stream=True)
        async with client.stream("POST", "/v1/chat/completions", json=request) as reply:
            if reply.status_code != 200:
                self.ended[f"refused {reply.status_code}"] += 1
                return
            async for line in reply.aiter_lines():
                if not line.startswith("data: "):
                    continue
                data = line.removeprefix("data: ")
                if data == "[DONE]":
                    ended = "whole"
                elif "error" in (event := json.loads(data)):
                    ended = "error"
                elif event["choices"] and (word := event["choices"][0]["delta"].get("content")):
                    self.begun += not said
                    said += word
        assert TEXT.startswith(said.strip()), "whatever was said was said once, by one replica"
        assert ended != "whole" or said.strip() == TEXT
        self.ended[ended] += 1

    async def run(self, kill_when_begun: int) -> None:
        """All at once; a replica is killed when so many answers have begun, all are waited for."""
        address = self.server.http.base_url
        headers = {"authorization": f"Bearer {KEY}"}
        limits = httpx.Limits(max_connections=STREAMS)
        async with (
            httpx.AsyncClient(
                base_url=address, headers=headers, timeout=30.0, limits=limits
            ) as client,
            asyncio.timeout(30),
            asyncio.TaskGroup() as group,
        ):
            for _ in range(STREAMS):
                group.create_task(self.one(client))
            await eventually(lambda: self.begun or self.outstanding() == STREAMS)
            await eventually(lambda: self.begun >= kill_when_begun)
            self.kill()

    def kill(self) -> None:
        """End the first of the replicas that are ready."""
        pid = next(p.pid for p in self.server.status().processes if p.model == "echo" and p.pid)
        os.kill(pid, signal.SIGKILL)

    def outstanding(self) -> int:
        """How many of them the replicas have."""
        files = self.server.folder.run.glob("r-echo-*.progress")
        return sum(read_progress(path).outstanding for path in files)


def both_ready(server: Server) -> bool:
    lines = server.http.get("/metrics").text.splitlines()
    ready = [line for line in lines if line.startswith('tiffin_place_ready{model="echo"')]
    return len(ready) == 2 and all(line.endswith(" 1") for line in ready)


@pytest.fixture
def crowd(serve: Serve) -> Crowd:
    server = serve(MODELS)
    until(lambda: both_ready(server), what=server.explain)
    return Crowd(server)


def conserved(crowd: Crowd) -> None:
    """L1: an entry each, closed as its client saw it, and nothing is held."""
    server = crowd.server
    assert sum(crowd.ended.values()) == STREAMS
    until(lambda: server.in_flight() == 0, what=server.explain)
    entries = until(lambda: e if len(e := server.accounts()) >= STREAMS else None)
    assert len(entries) == STREAMS
    outcomes = Counter(entry["outcome"] for entry in entries)
    assert outcomes["ok"] == crowd.ended["whole"]
    assert outcomes["partial"] == crowd.ended["error"]


def test_killed_before_the_first_byte_every_stream_is_answered_by_the_other(crowd: Crowd) -> None:
    asyncio.run(crowd.run(kill_when_begun=0))
    assert crowd.ended == {"whole": STREAMS}
    conserved(crowd)
    attempts = Counter(len(entry["attempts"]) for entry in crowd.server.accounts())
    assert attempts[2] >= STREAMS // 4, "the killed one had its part of them"


def test_killed_in_the_middle_a_stream_ends_in_an_error_never_as_if_whole(crowd: Crowd) -> None:
    asyncio.run(crowd.run(kill_when_begun=STREAMS))
    assert set(crowd.ended) == {"whole", "error"}
    conserved(crowd)
