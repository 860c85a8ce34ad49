"""Whatever process dies, is stopped or can't start: the service goes on and nothing is left."""

import contextlib
import json
import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from pathlib import Path

import httpx
import pytest

from tests.system.conftest import Serve
from tests.system.server import BREATH_S, KEY, Server, until
from tiffin.control.fleet.status import State

# The goal is 2 s after a gateway's end; the rest is for busy machines.
GATEWAY_BACK_S = 6.0
REPLICA_BACK_S = 8.0

SLOW = """
[models.slow]
runtime = "echo"
token_ms = 50
"""
TWO = """
[models.echo]
runtime = "echo"

[models.busy]
runtime = "echo"
spin_ms = 7000
"""
BROKEN = """
[models.echo]
runtime = "echo"

[models.broken]
runtime = "echo"
fail_load = "the weights are upside down"
"""
WORDS = "one two three four five six seven eight nine ten "


class Load:
    """Clients that ask again and again from threads, until the context ends."""

    def __init__(self, server: Server, model: str, clients: int = 4) -> None:
        self.answers: list[int] = []
        self.ids: list[str] = []
        self.broken = 0
        self.refused: list[httpx.Response] = []
        self._server = server
        self._model = model
        self._stop = threading.Event()
        self._threads = [threading.Thread(target=self._ask) for _ in range(clients)]

    def __enter__(self) -> "Load":
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        for thread in self._threads:
            thread.join()

    def _ask(self) -> None:
        while not self._stop.wait(BREATH_S):
            try:
                answer = self._server.chat(self._model, WORDS)
                self.answers.append(answer.status_code)
                self.ids.append(answer.headers["x-request-id"])
                if answer.status_code != 200:
                    self.refused.append(answer)
            except httpx.TransportError:
                self.broken += 1
                self._stop.wait(0.05)


def settle_accounts(server: Server, ids: list[str]) -> None:
    """Everything that was answered has exactly one entry, every entry has ended, nothing is held.

    A request that nobody answered has an entry too, `lost` or `failed`, if it had begun.
    """

    entries: Counter[str] = Counter()

    def arrived() -> bool:
        # Control may be on its way back, and then there's nobody to ask.
        with contextlib.suppress(httpx.HTTPStatusError):
            entries.clear()
            entries.update(entry["id"] for entry in server.accounts())
        return set(ids) <= set(entries)

    until(arrived, what=server.explain)
    assert set(entries.values()) == {1}
    assert len(set(ids)) == len(ids)
    until(lambda: server.in_flight() == 0, what=server.explain)


def files(server: Server) -> set[str]:
    return {path.name for path in server.folder.run.iterdir() if path.suffix != ".tmp"}


def open_files(pid: int) -> int:
    return len(list(Path(f"/proc/{pid}/fd").iterdir()))


def test_without_models_it_is_ready_at_once(make_server: Serve) -> None:
    began = time.monotonic()
    server = make_server("").start()
    assert server.http.get("/livez").status_code == 200
    # The bound is 1.5 s on an idle machine.
    assert time.monotonic() - began < 6.0


def test_killing_any_process_again_and_again_leaves_the_service_as_it_was(serve: Serve) -> None:
    server = serve()
    server.until_answers("echo")
    until(lambda: len(server.children()) == 3)
    before, supervisor = files(server), server.status().pid
    descriptors = open_files(supervisor)
    chance = random.Random(7)
    for role in ("gateway", "echo", "control", "gateway", "echo", "control"):
        pid = server.kill(role)
        server.until_answers("echo", REPLICA_BACK_S if role == "echo" else GATEWAY_BACK_S)
        server.until_ready(role, after_pid=pid)
        time.sleep(chance.random() * 0.2)
    until(lambda: files(server) == before, what=lambda: f"{before}, not {files(server)}")
    until(lambda: open_files(supervisor) <= descriptors)
    until(lambda: len(server.children()) == 3, what=server.explain)


@pytest.mark.parametrize("role", ["gateway", "echo", "control"])
def test_killing_a_process_under_load_costs_at_most_what_it_was_doing(
    serve: Serve, role: str
) -> None:
    server = serve()
    server.until_answers("echo")
    chance = random.Random(role)
    with Load(server, "echo") as load:
        until(lambda: len(load.answers) > 20)
        for _ in range(2):
            time.sleep(chance.random() * 0.3)
            pid = server.kill(role)
            server.until_ready(role, after_pid=pid)
            answered = len(load.answers)
            until(lambda: load.answers[answered:].count(200) > 20)  # noqa: B023 - called here
    if role == "control":
        assert load.broken == 0
        assert set(load.answers) == {200}
    for answer in load.refused:  # in words for people, and worth another try
        assert int(answer.headers["retry-after"]) >= 1, answer.text
        assert "No such file" not in answer.text
        assert "onnect" not in answer.json()["error"]["message"]
    if role == "gateway":
        assert load.broken <= 2 * 4
    server.until_answers("echo")
    until(lambda: len(server.children()) == 3, what=server.explain)
    settle_accounts(server, load.ids)


def test_a_stream_whose_replica_dies_ends_in_an_error_not_as_if_complete(serve: Serve) -> None:
    server = serve(SLOW)
    server.until_answers("slow")
    events = server.stream("slow", WORDS * 10)
    next(events)
    server.kill("slow")
    rest = list(events)
    assert "error" in json.loads(rest[-1])
    assert "[DONE]" not in rest


def test_killing_the_supervisor_leaves_nothing_running_and_the_next_start_goes_on(
    serve: Serve,
) -> None:
    server = serve()
    server.until_answers("echo")
    with Load(server, "echo") as load:
        until(lambda: len(load.answers) > 20)
        assert server.stop(signal.SIGKILL) == -signal.SIGKILL
        until(lambda: not server.children(), within_s=5.0)
    assert files(server)
    server.start()
    server.until_answers("echo")
    settle_accounts(server, load.ids)
    assert server.stop() == 0
    assert files(server) == set()


def test_a_stopped_replica_is_replaced_and_a_busy_one_is_not(serve: Serve) -> None:
    server = serve(TWO)
    busy = server.until_ready("busy")
    server.until_answers("echo")
    answers: list[int] = []

    def ask() -> None:
        # The gateway hears of a ready replica a moment later.
        answers.append(until(lambda: (code := server.chat("busy").status_code) != 503 and code))

    asking = threading.Thread(target=ask)
    asking.start()
    stopped = server.kill("echo", signal.SIGSTOP)
    control = server.kill("control", signal.SIGSTOP)
    began = time.monotonic()
    server.until_ready("echo", after_pid=stopped, within_s=10.0)
    server.until_answers("echo", 12.0 - (time.monotonic() - began))
    server.until_ready("control", after_pid=control)
    asking.join()
    assert answers == [200]
    after = server.find("busy")
    assert after is not None
    assert (after.pid, after.restarts) == (busy.pid, 0)


def test_a_second_start_on_the_same_folder_is_refused_and_harms_nothing(serve: Serve) -> None:
    server = serve()
    second = server.spawn()
    assert second.wait(20) != 0
    assert f"pid {server.status().pid}" in server.output.read_text()
    assert str(server.folder.root) in server.output.read_text()
    server.until_answers("echo")
    assert server.chat("echo").status_code == 200


def test_a_taken_port_is_refused_with_the_mend(serve: Serve, make_server: Serve) -> None:
    taken = serve().status().address.rpartition(":")[2]
    second = make_server()
    text = second.config.read_text().replace("port = 0", f"port = {taken}")
    second.config.write_text(text)
    assert second.spawn().wait(20) != 0
    assert "TIFFIN__SERVER__PORT" in second.output.read_text()
    assert second.children() == []


def test_term_lets_running_streams_finish(serve: Serve) -> None:
    server = serve(SLOW)
    server.until_answers("slow")
    events = server.stream("slow", WORDS)
    next(events)
    assert server.process is not None
    server.process.send_signal(signal.SIGTERM)
    rest = list(events)
    assert rest[-1] == "[DONE]"
    assert server.process.wait(20) == 0
    assert files(server) == set()
    assert server.children() == []


def test_everybody_being_told_to_end_at_once_is_a_drain_too(serve: Serve) -> None:
    server = serve(SLOW)
    server.until_answers("slow")
    events = server.stream("slow", WORDS)
    next(events)
    assert server.process is not None
    for pid in (server.process.pid, *server.children()):
        os.kill(pid, signal.SIGTERM)
    assert list(events)[-1] == "[DONE]"
    assert server.process.wait(20) == 0
    assert "starting again" not in server.output.read_text()
    assert files(server) == set()


def test_a_second_interrupt_ends_everything_at_once(serve: Serve) -> None:
    server = serve(SLOW)
    server.until_answers("slow")
    events = server.stream("slow", WORDS * 30)
    next(events)
    assert server.process is not None
    server.process.send_signal(signal.SIGINT)
    until(lambda: "stopping" in server.output.read_text())
    with pytest.raises(subprocess.TimeoutExpired):
        server.process.wait(0.2)
    began = time.monotonic()
    server.process.send_signal(signal.SIGINT)
    with contextlib.suppress(httpx.TransportError):
        assert "[DONE]" not in list(events)
    server.process.wait(20)
    assert time.monotonic() - began < 5.0
    assert server.children() == []


def test_a_model_that_cant_load_harms_no_other(serve: Serve) -> None:
    server = serve(BROKEN)
    server.until_answers("echo")
    until(lambda: (found := server.find("broken")) and found.state is State.FAILED)
    broken = server.find("broken")
    assert broken is not None
    assert "upside down" in broken.reason
    until(lambda: "upside down" in server.chat("broken").text, what=server.explain)
    answer = server.chat("broken")
    assert answer.status_code == 503
    assert "upside down" in answer.json()["error"]["message"]
    assert server.chat("echo").status_code == 200


def test_requests_need_no_control_and_their_accounts_arrive_when_it_is_back(serve: Serve) -> None:
    server = serve()
    server.until_answers("echo")
    database = server.folder.database
    aside = database.with_name("aside")
    control = server.kill("control", signal.SIGSTOP)
    with Load(server, "echo") as load:
        until(lambda: len(load.answers) > 50)
        database.rename(aside)
        database.mkdir()
        server.kill("control")
        server.until_ready("control", after_pid=control)
        answered = len(load.answers)
        until(lambda: len(load.answers) > answered + 50)
    assert set(load.answers) == {200}
    assert load.broken == 0
    assert server.http.get("/admin/v1/accounts").status_code == 503
    database.rmdir()
    aside.rename(database)
    settle_accounts(server, load.ids)


def test_a_model_that_left_the_configuration_is_unloaded(serve: Serve) -> None:
    server = serve()
    server.until_answers("echo")
    server.config.write_text(server.config.read_text().replace("models.echo", "models.other"))
    assert server.process is not None
    server.process.send_signal(signal.SIGHUP)
    server.until_answers("other")
    until(lambda: server.find("echo") is None)
    until(lambda: not [name for name in files(server) if name.startswith("r-echo")])
    until(lambda: len(server.children()) == 3, what=server.explain)
    assert server.chat("echo").status_code == 404


def test_the_log_is_json_and_has_nothing_personal_in_it(serve: Serve) -> None:
    server = serve(BROKEN)
    server.until_answers("echo")
    personal = ["asha@example.com", "+91 98765 43210", "4111 1111 1111 1111"]
    for text in personal:
        server.chat("echo", text)
        server.chat("broken", text)
        server.chat(text)
        server.http.post("/v1/chat/completions", content=f"{{{text}".encode())
        server.http.get(f"/v1/models/{text}")
        server.http.get("/v1/models", headers={"authorization": f"Bearer {text}"})
    assert server.stop() == 0
    log = (server.folder.logs / "tiffin.jsonl").read_text()
    events = [json.loads(line) for line in log.splitlines()]
    assert {event["process"].partition("-")[0] for event in events} >= {"supervisor", "r"}
    assert [text for text in personal if text in log or text in server.output.read_text()] == []
    assert KEY not in log


def test_a_lost_terminal_stops_the_server(make_server: Serve) -> None:
    server = make_server()
    leader, follower = os.openpty()
    program = (
        "import fcntl, os, sys, termios; os.setsid(); fcntl.ioctl(0, termios.TIOCSCTTY, 0);"
        "os.execv(sys.argv[1], sys.argv[1:])"
    )
    server.process = subprocess.Popen(
        [sys.executable, "-c", program, *server.command()],
        stdin=follower,
        stdout=follower,
        stderr=follower,
    )
    os.close(follower)
    server.until_ready("gateway")
    os.close(leader)
    assert server.process.wait(20) == 0
    assert server.children() == []
