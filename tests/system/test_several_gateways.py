"""Two gateways on one port, which count in a real Valkey: together they are as one."""

import os
import signal
import sys
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.system.server import KEY, Server, body, until
from tests.system.upstream_fake import Upstream, serving
from tests.valkey import Valkey, valkey
from tiffin.adapters.stores.shared_limits import LEASE_S
from tiffin.app.upgrade import Request, ask
from tiffin.control.fleet.status import Stage, State

pytestmark = pytest.mark.xdist_group("several_gateways")

WAIT_S = 1.0
MODELS = """
[server.limit_store]
url = "{store}"
timeout_s = {wait}

[[tenants.tests.limits.rules]]
of = "requests"
amount = 11
per = "hour"
models = ["rated"]

[[tenants.tests.limits.rules]]
of = "concurrency"
amount = 2
models = ["slow"]

[[tenants.tests.limits.rules]]
of = "money"
amount = 1000
per = "month"
models = ["theirs"]

[models.echo]
runtime = "echo"
slots = 16

[models.rated]
runtime = "echo"
slots = 16

[models.slow]
runtime = "echo"
slots = 16
token_ms = 200

[models.theirs]
runtime = "remote"
url = "{upstream}/v1"

[[prices.models]]
model = "theirs"
request = "1"
since = "2026-01-01"
"""
LONG = " ".join(["word"] * 200)


@dataclass
class Pair:
    """A server of two gateways, the store that they share, and an upstream."""

    server: Server
    store: Valkey
    upstream: Upstream
    folder: Path
    stack: ExitStack

    def pids(self) -> list[int]:
        """Of both gateways, once both are ready."""

        def found() -> list[int] | None:
            ready = [
                one.pid
                for one in self.server.status().processes
                if one.role == "gateway" and one.state is State.READY
            ]
            return sorted(ready) if len(ready) == 2 else None

        return until(found, what=self.server.explain)

    @contextmanager
    def each(self) -> Iterator[tuple[httpx.Client, httpx.Client]]:
        """A client of either gateway, by the order of their process numbers."""
        first, second = self.pids()
        with self.connected(first, second) as one, self.connected(second, first) as other:
            yield one, other

    @contextmanager
    def connected(self, pid: int, other: int) -> Iterator[httpx.Client]:
        """A client whose connection that gateway took, since the other was held meanwhile. It has
        no other as long as it asks for one thing at a time."""
        key = {"authorization": f"Bearer {KEY}"}
        url = self.server.status().address
        with httpx.Client(base_url=url, headers=key, timeout=30.0) as client:
            os.kill(other, signal.SIGSTOP)
            try:
                assert client.get("/livez").status_code == 200
            finally:
                os.kill(other, signal.SIGCONT)
            yield client

    def health(self) -> str:
        """What both say of themselves, where they agree."""
        with self.each() as clients:
            said = {client.get("/readyz").json()["status"] for client in clients}
        return said.pop() if len(said) == 1 else ""


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pair]:
    folder = tmp_path_factory.mktemp("several")
    with ExitStack() as stack, valkey(folder) as store, serving() as upstream:
        models = MODELS.format(store=store.url, upstream=upstream.address, wait=WAIT_S)
        server = Server(folder, models)
        config = server.config.read_text()
        server.config.write_text(config.replace("[server]", "[server]\ngateways = 2", 1))
        try:
            server.start()
            server.http.headers["connection"] = "close"
            for model in ("echo", "rated", "slow"):
                server.until_ready(model)
            pair = Pair(server, store, upstream, folder, stack)
            until(lambda: pair.health() == "ready", what=server.explain)
            yield pair
        finally:
            server.close()


def chat(client: httpx.Client, model: str, text: str = "hello", **headers: str) -> httpx.Response:
    asked = body(model, text, max_tokens=300)
    return client.post("/v1/chat/completions", json=asked, headers=headers)


def test_a_limit_is_one_for_both(pair: Pair) -> None:
    with pair.each() as clients, ThreadPoolExecutor(2) as pool:
        halves = [pool.submit(lambda c=c: [chat(c, "rated") for _ in range(20)]) for c in clients]  # type: ignore[misc]
        answers = Counter(one.status_code for half in halves for one in half.result())
    assert answers == {200: 11, 429: 29}


def test_a_key_at_both_at_once_is_charged_once(pair: Pair) -> None:
    before = len(pair.upstream.seen)
    with pair.each() as clients, ThreadPoolExecutor(2) as pool:
        key = {"idempotency-key": "once"}
        sends = [pool.submit(chat, client, "theirs", **key) for client in clients]
        codes = Counter(send.result().status_code for send in sends)
        assert codes.keys() <= {200, 409}
        assert codes[200] > 0
        for client in clients:
            again = chat(client, "theirs", **key)
            assert again.headers["idempotency-replayed"] == "true"
    assert len(pair.upstream.seen) == before + 1


def test_who_is_killed_gives_back_its_slots_and_the_other_goes_on(pair: Pair) -> None:
    first, second = pair.pids()
    with pair.connected(second, first) as other, ExitStack() as running:
        for _ in range(2):
            one = running.enter_context(pair.connected(first, second))
            request = body("slow", LONG, stream=True)
            running.enter_context(one.stream("POST", "/v1/chat/completions", json=request))
        assert chat(other, "slow").status_code == 429
        os.kill(first, signal.SIGKILL)
        assert chat(other, "echo").status_code == 200
        until(
            lambda: chat(other, "slow").status_code == 200,
            2 * LEASE_S,
            lambda: chat(other, "slow").text + pair.server.explain(),
        )
    assert first not in pair.pids()
    until(lambda: pair.server.in_flight() == 0)


def test_a_response_is_continued_at_either_until_it_is_deleted(pair: Pair) -> None:
    with pair.each() as (one, other):
        for first, second in ((one, other), (other, one)):
            said = first.post("/v1/responses", json={"model": "echo", "input": "namaste"})
            name = said.raise_for_status().json()["id"]
            more = {"model": "echo", "input": "and then", "previous_response_id": name}
            assert second.post("/v1/responses", json=more).status_code == 200
            kept = second.get(f"/v1/responses/{name}/input_items").raise_for_status()
            assert kept.json()["data"]
            assert second.delete(f"/v1/responses/{name}").status_code == 200
            gone = first.post("/v1/responses", json=more)
            assert gone.status_code == 404
            assert gone.json()["error"]["code"] == "previous_response_not_found"
    stored = (pair.server.folder.root / "responses.db").read_bytes()
    assert b"namaste" not in stored


def degraded(pair: Pair) -> list[str]:
    said: list[str] = pair.server.http.get("/admin/v1/status").raise_for_status().json()["degraded"]
    return said


def test_a_frozen_store_costs_one_wait_then_money_is_refused_until_it_is_back(pair: Pair) -> None:
    with pair.each() as clients:
        assert chat(clients[0], "theirs").status_code == 200
        pair.store.freeze()
        for client in clients:
            began = time.monotonic()
            assert chat(client, "theirs").status_code == 503
            assert time.monotonic() - began < WAIT_S + 5.0
        began = time.monotonic()
        for client in clients:
            answers = [chat(client, model) for _ in range(10) for model in ("slow", "theirs")]
            assert Counter(one.status_code for one in answers) == {200: 10, 503: 10}
        assert pair.health() == "degraded"
        until(lambda: any("store of limits" in why for why in degraded(pair)))
        pair.store.thaw()
        until(lambda: pair.health() == "ready", what=pair.server.explain)
        for client in clients:
            assert chat(client, "theirs").status_code == 200
        until(lambda: not degraded(pair), what=lambda: str(degraded(pair)))


def test_it_starts_without_its_store_and_heals_with_another(pair: Pair) -> None:
    assert pair.server.stop() == 0
    pair.store.stop()
    pair.server.start()
    pair.server.until_answers("echo")
    assert pair.health() == "degraded"
    assert chat(pair.server.http, "theirs").status_code == 503
    pair.store = pair.stack.enter_context(valkey(pair.folder))
    until(lambda: pair.health() == "ready", what=pair.server.explain)
    assert chat(pair.server.http, "theirs").status_code == 200


def test_an_upgrade_replaces_both(pair: Pair) -> None:
    before = pair.pids()
    ask(pair.server.folder.run, Request(id="two", python=sys.executable))

    def done() -> bool:
        upgrade = pair.server.status().upgrade
        return upgrade is not None and upgrade.id == "two" and upgrade.stage is Stage.DONE

    until(done, 60, pair.server.explain)
    until(lambda: len(_gateways(pair)) == 2, 60, pair.server.explain)
    assert not set(pair.pids()) & set(before)
    until(lambda: pair.health() == "ready", what=pair.server.explain)


def _gateways(pair: Pair) -> list[Any]:
    return [one for one in pair.server.status().processes if one.role == "gateway"]
