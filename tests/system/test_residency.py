"""Models that share a real server's memory: they take turns, sleep, wake, and leave nothing."""

import os
import signal
import threading
import time
from pathlib import Path

import httpx
import pytest

from tests.system.conftest import Serve
from tests.system.server import Server, until
from tiffin.control.fleet.status import State

# The goal is 1 s more than the load; the rest is for busy machines.
AFTER_LOAD_S = 4.0
CYCLES = 3

pytestmark = pytest.mark.xdist_group("residency")


def on_demand(*names: str, idle_s: float = 60.0, memory_mb: int = 100) -> str:
    return "".join(
        f'[models.{name}]\nruntime = "echo"\nkeep = "on-demand"\nidle_s = {idle_s}\n'
        f"hold_s = 0.5\nmemory_mb = {memory_mb}\n"
        for name in names
    )


def start(make_server: Serve, models: str, settings: str) -> Server:
    server = make_server(models)
    text = server.config.read_text()
    server.config.write_text(text.replace("[server]\n", f"[server]\n{settings}\n", 1))
    server.start()
    until(lambda: server.http.get("/readyz").is_success, what=server.explain)
    return server


def state(server: Server, model: str) -> State | None:
    found = server.find(model)
    return found.state if found else None


def metric(server: Server, start: str) -> float:
    lines = server.http.get("/metrics").text.splitlines()
    return sum(float(line.split()[-1]) for line in lines if line.startswith(start))


def descriptors(server: Server) -> int:
    pids = [server.status().pid, *(p.pid for p in server.status().processes if not p.model)]
    return sum(len(list(Path(f"/proc/{pid}/fd").iterdir())) for pid in pids)


def files(server: Server) -> set[str]:
    found = {path.name for path in server.folder.run.iterdir() if path.suffix != ".tmp"}
    return found - {"gateway.demand.json"}


def resident(server: Server) -> list[int]:
    """The processes that have a model."""
    return [one.pid for one in server.status().processes if one.model and one.pid]


def things(server: Server) -> tuple[set[str], int, int]:
    """What there is of files, of processes, and of those that wait for a model."""
    return files(server), len(server.children()), server.status().warm


def test_with_memory_for_one_model_requests_for_three_are_all_answered(make_server: Serve) -> None:
    server = start(make_server, on_demand("A", "B", "C"), "memory_mb = 150\nwarm_replicas = 0")
    answers: list[httpx.Response] = []
    clients = []
    for model in "ABAACABC":
        ask = threading.Thread(target=lambda model=model: answers.append(server.chat(model)))
        ask.start()
        clients.append(ask)
        time.sleep(0.02)
    for client in clients:
        client.join()
    assert [answer.status_code for answer in answers] == [200] * 8
    until(lambda: metric(server, "tiffin_model_loads_total") >= 3, what=server.explain)
    assert metric(server, "tiffin_model_loads_total") - 1 <= 3
    until(lambda: len(resident(server)) == 1, what=server.explain)


def test_a_model_sleeps_when_nobody_asks_and_wakes_for_who_does(make_server: Serve) -> None:
    server = start(make_server, on_demand("A", idle_s=1.0), "")
    for _ in range(2):
        until(lambda: state(server, "A") is State.ASLEEP, what=server.explain)
        began = time.monotonic()
        answer = server.chat("A")
        assert answer.status_code == 200, answer.text
        took_s = time.monotonic() - began
        assert took_s <= server.until_ready("A").ready_ms / 1000 + AFTER_LOAD_S
    until(lambda: (p := server.find("A")) and p.first_ms, what=server.explain)
    first = 'tiffin_model_load_seconds{model="A",phase="first_answer"}'
    until(lambda: metric(server, first) > 0, what=server.explain)


def test_a_model_that_is_too_big_says_what_would_help(make_server: Serve) -> None:
    server = start(make_server, on_demand("A", memory_mb=200), "memory_mb = 150")
    until(lambda: state(server, "A") is State.REFUSED, what=server.explain)

    def told() -> dict[str, str] | None:
        [model] = server.http.get("/admin/v1/status").json()["models"]
        return model if model["state"] == "refused" else None

    model = until(told, what=server.explain)
    for part in ("200 MB", "150 MB", "memory_mb"):
        assert part in model["reason"]
    assert server.chat("A").status_code == 503


def test_processes_that_wait_for_a_model_end_with_the_supervisor(make_server: Serve) -> None:
    server = start(make_server, on_demand("A"), "warm_replicas = 2")
    until(lambda: server.status().warm == 2, what=server.explain)
    assert len(server.children()) == 4
    os.kill(server.status().pid, signal.SIGKILL)
    until(lambda: not server.children(), what=lambda: f"{server.children()}")


def test_one_that_waits_takes_a_model_and_is_replaced(make_server: Serve) -> None:
    server = start(make_server, on_demand("A"), "warm_replicas = 1")
    until(lambda: server.status().warm == 1, what=server.explain)
    [waiting] = set(server.children()) - {p.pid for p in server.status().processes}
    assert server.chat("A").status_code == 200
    assert server.until_ready("A").pid == waiting
    until(lambda: things(server)[1:] == (4, 1), what=server.explain)
    assert server.stop() == 0
    assert server.children() == []


def test_loading_and_unloading_again_and_again_leaves_nothing(make_server: Serve) -> None:
    server = start(make_server, '[models.A]\nruntime = "echo"\n', "warm_replicas = 1")
    server.until_answers("A")

    def life() -> None:
        server.http.post("/admin/v1/models/A/unload").raise_for_status()
        until(lambda: server.find("A") is None, what=server.explain)
        server.http.post("/admin/v1/models/A/load").raise_for_status()
        server.until_answers("A")

    life()
    until(lambda: things(server)[1:] == (4, 1), what=server.explain)
    before, open_before = things(server), descriptors(server)
    for _ in range(CYCLES):
        life()
    until(lambda: things(server) == before, what=lambda: f"{before}, not {things(server)}")
    until(lambda: descriptors(server) <= open_before, what=lambda: f"{descriptors(server)}")
