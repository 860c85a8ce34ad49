"""Two replicas of a model: when one dies under load, nobody notices who had no answer yet."""

import os
import signal
import threading
import time

import pytest

from tests.system.conftest import Serve
from tests.system.server import BREATH_S, Server, until
from tiffin.control.fleet.status import ProcessStatus, State

pytestmark = pytest.mark.xdist_group("replicas")

TWO = '[models.m]\nruntime = "echo"\nreplicas = 2\nslots = 8\nprefill_ms = 5\ntoken_ms = 2\n'


def replicas(server: Server) -> list[ProcessStatus]:
    here = [one for one in server.status().processes if one.model == "m"]
    return here if [one.state for one in here] == [State.READY] * 2 else []


def test_one_of_two_is_killed_under_load_and_the_other_takes_over(serve: Serve) -> None:
    server = serve(TWO)
    first, second = until(lambda: replicas(server), what=server.explain)
    server.until_answers("m")
    answers: list[tuple[float, int, str]] = []
    over = threading.Event()

    def ask() -> None:
        while not over.wait(BREATH_S):
            reply = server.chat("m", "one two three four five six")
            answers.append((time.monotonic(), reply.status_code, reply.text))

    clients = [threading.Thread(target=ask) for _ in range(6)]
    for client in clients:
        client.start()
    until(lambda: len(answers) > 60)
    os.kill(first.pid, signal.SIGKILL)
    killed = time.monotonic()
    until(lambda: sum(at > killed for at, *_ in answers) > 60)
    back = until(
        lambda: [one for one in replicas(server) if one.pid not in (first.pid, second.pid)],
        what=server.explain,
    )
    time_back = len(answers)
    until(lambda: len(answers) > time_back + 60)
    over.set()
    for client in clients:
        client.join()
    assert back[0].name == first.name
    assert [text for _, status, text in answers if status != 200] == []
    until(lambda: server.in_flight() == 0)
    metrics = server.http.get("/metrics").text
    assert "tiffin_placements_total{" in metrics
    tries = [len(one["attempts"]) for one in server.accounts()]
    assert max(tries) == 2
    outstanding = [
        float(line.split()[-1])
        for line in metrics.splitlines()
        if line.startswith("tiffin_place_outstanding{")
    ]
    assert len(outstanding) == 2
