"""Kept answers of a real server: over restarts, sealed on the disk, gone once purged."""

import json
import subprocess
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx
import pytest

from tests.system.server import TIFFIN, Server, until
from tiffin.types.paths import answer_cache

pytestmark = pytest.mark.xdist_group("caches")

MODELS = """
[models.kept]
runtime = "echo"
slots = 8
token_ms = 5.0
cache.ttl_s = 3600.0

[tenants.other.keys.main]
key_file = "{other}"
"""
OTHER = "sk-tiffin-other-tenant"
SECRET = "the quick secret fox jumps over"


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A server whose model keeps answers, and a second tenant."""
    folder = tmp_path_factory.mktemp("caches")
    other = folder / "other.key"
    other.write_text(OTHER)
    server = Server(folder, MODELS.format(other=other))
    try:
        server.start()
        server.until_answers("kept")
        yield server
    finally:
        server.close()


def asked(server: Server, **more: Any) -> str:
    reply = server.chat("kept", SECRET, **more)
    assert reply.status_code == 200, reply.text
    return reply.headers["x-tiffin-cache"]


def on_disk(server: Server) -> bytes:
    path = answer_cache(server.folder)
    return b"".join(file.read_bytes() for file in path.parent.glob(path.name + "*"))


def said(events: list[str]) -> str:
    chunks = [json.loads(event) for event in events if event != "[DONE]"]
    deltas = [choice["delta"] for chunk in chunks for choice in chunk["choices"]]
    return "".join(delta.get("content") or "" for delta in deltas)


def test_answers_outlive_the_gateway_and_a_purge_leaves_nothing(server: Server) -> None:
    first = server.chat("kept", SECRET)
    assert first.headers["x-tiffin-cache"] == "miss"
    until(lambda: asked(server) == "hit")
    content = first.json()["choices"][0]["message"]["content"]
    assert said(list(server.stream("kept", SECRET))) == content
    pid = server.kill("gateway")
    server.until_ready("gateway", after_pid=pid)
    until(lambda: _reachable(server))
    assert asked(server) == "hit"
    other = httpx.post(
        f"{server.http.base_url}/v1/chat/completions".replace("//v1", "/v1"),
        headers={"authorization": f"Bearer {OTHER}"},
        json={"model": "kept", "messages": [{"role": "user", "content": SECRET}]},
    )
    assert other.headers["x-tiffin-cache"] == "miss"

    held = server.http.get("/admin/v1/cache").json()["data"]
    assert {(one["tenant"], one["model"]) for one in held} >= {("tests", "kept")}
    assert b"secret" not in on_disk(server)
    key = bytes.fromhex(first.headers["x-tiffin-cache-key"])
    assert key in on_disk(server)
    assert "1 answers" in tiffin(server, "purge", key.hex())
    assert key not in on_disk(server)
    assert asked(server) == "miss"
    tiffin(server, "purge", "--tenant", "tests")
    left = json.loads(tiffin(server, "list", "--json"))["data"]
    assert {one["tenant"] for one in left} <= {"other"}
    assert asked(server) == "miss"


def test_many_at_once_run_once_and_each_is_accounted(server: Server) -> None:
    text = "only once please " * 20
    with ThreadPoolExecutor(8) as pool:
        replies = list(pool.map(lambda _: server.chat("kept", text), range(8)))
    assert len({reply.text for reply in replies}) == 1
    marks = [reply.headers["x-tiffin-cache"] for reply in replies]
    assert marks.count("miss") == 1

    def accounts() -> list[dict[str, Any]] | None:
        names = {reply.headers["x-request-id"] for reply in replies}
        found = [one for one in server.accounts() if one["id"] in names]
        return found if len(found) == len(replies) else None

    used = [(one["cache"], one["completion_tokens"] > 0) for one in until(accounts)]
    assert used.count(("miss", True)) == 1
    assert all(not tokens for cache, tokens in used if cache != "miss")


def _reachable(server: Server) -> bool:
    try:
        return server.chat("kept", "are you there").status_code == 200
    except httpx.TransportError:
        return False


def tiffin(server: Server, *words: str) -> str:
    done = subprocess.run(
        [str(TIFFIN), "cache", *words, "--data", str(server.folder.root)],
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    return done.stdout
