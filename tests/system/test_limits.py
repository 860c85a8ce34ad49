"""Limits through the whole of Tiffin: what clients see, and what `kill -9` doesn't forget."""

import asyncio
import contextlib
import json
import subprocess
from collections import Counter
from typing import Any

import httpx

from tests.system.conftest import Serve
from tests.system.server import KEY, TIFFIN, Server, until

MODELS = """
[models.echo]
runtime = "echo"
slots = 16
token_ms = 20

[[prices.models]]
model = "echo"
request = "1"
since = "2026-01-01"

[[tenants.tests.limits.rules]]
of = "concurrency"
amount = 8
"""


def rule(**says: Any) -> str:
    lines = [f"{name} = {json.dumps(value)}" for name, value in says.items()]
    return "\n".join(["[[tenants.tests.limits.rules]]", *lines, ""])


async def at_once(server: Server, many: int) -> list[httpx.Response]:
    async with httpx.AsyncClient(
        base_url=server.http.base_url, headers=dict(server.http.headers), timeout=30.0
    ) as client:
        body = {"model": "echo", "messages": [{"role": "user", "content": "word " * 10}]}
        sends = [client.post("/v1/chat/completions", json=body) for _ in range(many)]
        return list(await asyncio.gather(*sends))


def limits(server: Server) -> dict[str, dict[str, Any]]:
    data = ["--data", str(server.folder.root)]
    done = subprocess.run(
        [str(TIFFIN), "limits", "tests", "--json", *data], capture_output=True, check=True
    )
    return {one["rule"]["of"]: one for one in json.loads(done.stdout)["data"]}


def knows(server: Server) -> bool:
    """Whether the gateway knows its model; asking that costs nothing."""
    try:
        return server.http.get("/v2/models/echo/ready").status_code == 200
    except httpx.TransportError:
        return False


def test_a_budget_for_two_pays_for_two_of_eight_and_outlives_kill_9(serve: Serve) -> None:
    server = serve(MODELS + rule(of="money", amount=4, per="month"))
    server.until_answers("echo")  # the first is paid for here
    with contextlib.suppress(httpx.TransportError):
        body = {"model": "echo", "messages": [{"role": "user", "content": "word " * 60}]}
        with server.http.stream("POST", "/v1/chat/completions", json={**body, "stream": True}):
            pid = server.kill("gateway")  # with one in work
    server.until_ready("gateway", after_pid=pid)
    until(lambda: limits(server)["money"]["left"] == 2 * 10**12)
    until(lambda: knows(server), what=server.explain)
    answers = asyncio.run(at_once(server, 8))
    assert Counter(answer.status_code for answer in answers) == {200: 2, 429: 6}
    refused = next(answer for answer in answers if answer.status_code == 429)
    assert refused.json()["error"]["type"] == "insufficient_quota"
    assert "retry-after" not in refused.headers
    pid = server.kill("gateway")
    server.until_ready("gateway", after_pid=pid)
    until(lambda: knows(server), what=server.explain)
    again = server.chat("echo")
    assert again.json()["error"]["code"] == "insufficient_quota"
    until(lambda: limits(server)["money"]["left"] == 0)


def test_tokens_are_settled_when_a_stream_ends_and_when_its_client_goes(serve: Serve) -> None:
    server = serve(
        MODELS
        + rule(of="tokens", amount=1_500, per="hour")
        + rule(of="output_tokens", amount=1, per="hour", shadow=True)
        + rule(of="requests", amount=60, per="minute")
    )
    server.until_answers("echo")
    body = {
        "model": "echo",
        "messages": [{"role": "user", "content": "word " * 60}],
        "max_tokens": 1_000,
        "stream": True,
    }
    with server.http.stream("POST", "/v1/chat/completions", json=body) as answer:
        told = answer.headers
        assert int(told["x-ratelimit-remaining-tokens"]) < 500
        assert told["x-ratelimit-limit-requests"] == "60"
        assert told["x-tiffin-limit-shadow"] == "output tokens an hour of tenant 'tests'"
        refused = server.http.post("/v1/chat/completions", json=body)
        assert refused.status_code == 429, refused.text
        assert refused.json()["error"]["code"] == "rate_limit_exceeded"
        assert float(refused.headers["retry-after"]) >= 1
        assert refused.headers["x-ratelimit-limit-tokens"] == "1500"
        next(answer.iter_lines())
    # The client has gone: what wasn't used is there again.
    until(lambda: limits(server)["tokens"]["left"] > 1_000)
    until(lambda: limits(server)["concurrency"]["left"] == 8)
    whole = server.http.post("/v1/chat/completions", json={**body, "stream": False})
    assert whole.status_code == 200
    used = whole.json()["usage"]["total_tokens"]
    assert used < 500
    until(lambda: limits(server)["tokens"]["left"] > 1_300 - 2 * used)


def test_the_effective_limits_are_told_to_people_too(serve: Serve) -> None:
    server = serve(MODELS + rule(of="pages", amount=5, per="day", each="end_user"))
    server.until_answers("echo")
    command = [str(TIFFIN), "limits", "--data", str(server.folder.root)]
    shown = subprocess.run(command, capture_output=True, check=True, text=True).stdout
    assert "tenant 'tests'" in shown
    assert "each end user of tenant 'tests'  pages per day  5 of 5 left" in shown
    assert KEY not in shown
