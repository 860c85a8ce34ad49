"""The running server becomes another program, under traffic, and nobody notices."""

import contextlib
import json
import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import msgspec
import pytest

from tests.system.conftest import Serve
from tests.system.server import BREATH_S, TIFFIN, Server, body, until
from tiffin.app.upgrade import REQUEST, Request, ask
from tiffin.control.fleet.status import Stage, State, Status

pytestmark = pytest.mark.xdist_group("upgrade")

ECHO = '[models.m]\nruntime = "echo"\ntoken_ms = 15\nslots = 16\n'
WORDS = "one and two and three and four"


class Traffic:
    """Clients that ask all the time: on connections that they keep and on new ones, for whole
    answers and for streams. `longest_s` is the longest time in which none was answered."""

    def __init__(self, server: Server) -> None:
        self.answers: Counter[str] = Counter()
        self.longest_s = 0.0
        self._server = server
        self._over = threading.Event()
        self._lock = threading.Lock()
        self._last = time.monotonic()

    @contextmanager
    def flowing(self) -> Iterator["Traffic"]:
        ways = [(kept, stream) for kept in (True, False) for stream in (True, False)]
        threads = [threading.Thread(target=self._ask, args=way) for way in ways]
        self._last = time.monotonic()
        for thread in threads:
            thread.start()
        try:
            yield self
        finally:
            self._over.set()
            for thread in threads:
                thread.join()

    def _ask(self, kept: bool, stream: bool) -> None:
        client = self._client()
        while not self._over.wait(BREATH_S):
            if not kept:
                client.close()
                client = self._client()
            answer = self._told(client, stream)
            with self._lock:
                self.answers[answer] += 1
                now = time.monotonic()
                self.longest_s, self._last = max(self.longest_s, now - self._last), now
        client.close()

    def _client(self) -> httpx.Client:
        http = self._server.http
        return httpx.Client(
            verify=False, base_url=http.base_url, headers=http.headers, timeout=20.0
        )

    def _told(self, client: httpx.Client, stream: bool) -> str:
        asked = body("m", WORDS, stream=stream)
        try:
            reply = client.post("/v1/chat/completions", json=asked)
        except httpx.TransportError as failure:
            return repr(failure)
        if reply.status_code != 200:
            return f"{reply.status_code} {reply.text[:200]}"
        if stream:
            return "ok" if reply.text.endswith("data: [DONE]\n\n") else f"cut: {reply.text[-100:]}"
        content = json.loads(reply.text)["choices"][0]["message"]["content"]
        return "ok" if content == WORDS else f"another answer: {content}"


def upgrade(server: Server, *arguments: str) -> "subprocess.CompletedProcess[str]":
    command = [str(TIFFIN), "upgrade", "--data", str(server.folder.root), *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)


def upgraded(server: Server) -> None:
    done = upgrade(server)
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}\n{server.explain()}"


def python_of(folder: Path, version: str) -> Path:
    """An interpreter beside which the same Tiffin is installed as another version."""
    metadata = folder / f"tiffin-{version}.dist-info" / "METADATA"
    metadata.parent.mkdir()
    metadata.write_text(f"Metadata-Version: 2.1\nName: tiffin\nVersion: {version}\n")
    python = folder / "python"
    path = f"{folder}${{PYTHONPATH:+:$PYTHONPATH}}"
    python.write_text(f'#!/bin/sh\nPYTHONPATH={path} exec {sys.executable} "$@"\n')
    python.chmod(0o700)
    return python


def alone(server: Server) -> Status | None:
    """The status, once the gateways that were replaced have ended."""
    status = server.status()
    gateways = [one for one in status.processes if one.role == "gateway"]
    return status if len(gateways) == 1 and gateways[0].state is State.READY else None


def left(server: Server) -> tuple[int, list[str], list[str]]:
    """How many descriptors the supervisor has, and the files of what runs and of what ended."""
    assert server.process is not None
    server.http.get("/metrics")  # gathers what ended
    fds = len(list(Path(f"/proc/{server.process.pid}/fd").iterdir()))
    run = sorted(re.sub(r"gateway-\d+", "gateway", p.name) for p in server.folder.run.iterdir())
    return fds, run, sorted(path.suffix for path in server.folder.metrics.glob("*.*"))


def test_upgrades_drop_no_request(serve: Serve) -> None:
    server = serve(ECHO)
    server.http.headers["connection"] = "close"
    server.until_answers("m")
    before = server.status()
    assert server.process is not None
    with Traffic(server).flowing() as traffic:
        for _ in range(2):
            count = traffic.answers.total()
            upgraded(server)
            until(lambda count=count: traffic.answers.total() > count + 20)  # type: ignore[misc]
    assert traffic.answers.keys() == {"ok"}, traffic.answers
    assert traffic.longest_s < 3.0

    after = until(lambda: alone(server), 20, server.explain)
    assert after.pid == before.pid == server.process.pid
    assert after.address == before.address
    assert after.started_ns == before.started_ns
    assert after.upgrade is not None
    assert after.upgrade.stage is Stage.DONE
    replicas = [
        [p.pid for p in status.processes if p.role == "replica"] for status in (before, after)
    ]
    assert replicas[0] == replicas[1], "of the same version they aren't replaced"
    pids = {process.pid for process in after.processes}
    until(lambda: set(server.children()) == pids, 20, server.explain)

    asked = traffic.answers.total() + 1  # the one that was answered first

    def completed() -> list[str]:
        return [e["id"] for e in server.accounts() if e["outcome"] == "ok"]

    until(lambda: len(completed()) >= asked, 20, server.explain)
    assert len(set(completed())) == len(completed()) == asked
    others = Counter(e["outcome"] for e in server.accounts()) - Counter(ok=asked)
    assert others.keys() <= {"failed"}, "before the model was ready"


def test_after_an_upgrade_term_drains_and_nothing_is_left(serve: Serve) -> None:
    server = serve(ECHO + '[models.slow]\nruntime = "echo"\ntoken_ms = 100\n')
    server.until_answers("slow")
    old = server.stream("slow", WORDS + " and " + WORDS)
    next(old)
    upgraded(server)
    new = server.stream("slow", WORDS + " and " + WORDS)
    next(new)
    assert server.process is not None
    server.process.send_signal(signal.SIGTERM)
    assert list(old)[-1] == "[DONE]", "the old gateway's answer"
    assert list(new)[-1] == "[DONE]", "the new gateway's answer"
    assert server.process.wait(20) == 0
    assert server.children() == []
    assert list(server.folder.run.iterdir()) == []


def test_another_version_takes_over_and_its_replicas_follow(serve: Serve, tmp_path: Path) -> None:
    server = serve(ECHO)
    server.http.headers["connection"] = "close"
    server.until_answers("m")
    before = server.until_ready("m")
    with Traffic(server).flowing() as traffic:
        done = upgrade(server, "--python", str(python_of(tmp_path, "99.0")))
        assert done.returncode == 0, f"{done.stderr}\n{server.explain()}"
        after = server.until_ready("m", after_pid=before.pid)
        until(lambda: len(server.children()) == 3, 20, server.explain)
    assert traffic.answers.keys() == {"ok"}, traffic.answers
    assert after.generation != before.generation
    assert server.status().version == "99.0"
    assert "takes over from" in done.stdout


def test_nothing_piles_up(serve: Serve) -> None:
    server = serve(ECHO)
    server.http.headers["connection"] = "close"
    server.until_answers("m")

    def settled() -> tuple[int, list[str], list[str]]:
        until(lambda: alone(server), 20, server.explain)
        # A supervisor, control, a gateway and a replica count, and there are the totals.
        counting = [".json"] * 5 + [".lock"] * 4
        return until(lambda: all_ if (all_ := left(server))[2] == counting else None, 10)

    upgraded(server)
    first = settled()
    upgraded(server)
    assert settled() == first


def test_a_new_gateway_that_is_killed_comes_again(serve: Serve) -> None:
    server = serve(ECHO)
    server.http.headers["connection"] = "close"
    server.until_answers("m")
    killed = threading.Event()

    def kill() -> None:
        def starting() -> int:
            with contextlib.suppress(OSError, msgspec.MsgspecError):
                for process in server.status().processes:
                    if process.name == "gateway-2" and process.state is State.STARTING:
                        return process.pid
            return 0

        os.kill(until(starting), signal.SIGKILL)
        killed.set()

    killer = threading.Thread(target=kill)
    with Traffic(server).flowing() as traffic:
        killer.start()
        upgraded(server)
        killer.join()
    assert killed.is_set()
    assert traffic.answers.keys() == {"ok"}, traffic.answers
    pid = server.kill("gateway")
    server.until_ready("gateway", after_pid=pid)
    server.until_answers("m")


def test_what_cant_run_changes_nothing(serve: Serve, tmp_path: Path) -> None:
    server = serve(ECHO)
    server.until_answers("m")
    before = {process.name: process.pid for process in server.status().processes}

    bare = tmp_path / "python"
    bare.write_text(f'#!/bin/sh\nexec {sys.executable} -S -I "$@"\n')
    bare.chmod(0o700)
    refused = upgrade(server, "--python", str(bare))
    assert refused.returncode == 1
    assert "what served goes on" in refused.stderr
    assert "tiffin" in refused.stderr

    missing = upgrade(server, "--python", str(tmp_path / "nothing"))
    assert missing.returncode == 1
    assert "can't be started" in missing.stderr

    text = server.config.read_text()
    server.config.write_text(text.replace("slots = 16", "slots = 0"))
    mistaken = upgrade(server)
    assert mistaken.returncode == 1
    assert "slots" in mistaken.stderr
    server.config.write_text(text)

    assert {process.name: process.pid for process in server.status().processes} == before
    assert server.chat("m").status_code == 200
    upgraded(server)


def test_there_is_one_at_a_time(serve: Serve) -> None:
    server = serve(ECHO)
    server.until_answers("m")
    ask(server.folder.run, Request(id="up-first", python=sys.executable))
    second = upgrade(server)
    assert second.returncode == 1
    assert "another upgrade is under way" in second.stderr

    def done() -> bool:
        with contextlib.suppress(OSError, msgspec.MsgspecError):
            upgrade = server.status().upgrade
            return upgrade is not None and upgrade.stage is Stage.DONE
        return False

    until(done, 20, server.explain)
    assert not (server.folder.run / REQUEST).exists()


def test_what_isnt_understood_starts_everything_anew(serve: Serve) -> None:
    """As the program would that became another one with a format of its own."""
    server = serve(ECHO)
    server.until_answers("m")
    server.stop(signal.SIGKILL)
    handover = os.memfd_create("unreadable", 0)
    os.write(handover, b'{"format": 99}')
    with server.output.open("ab") as output:
        server.process = subprocess.Popen(
            [*server.command(), "--handover", str(handover)],
            pass_fds=(handover,),
            stdout=output,
            stderr=output,
        )
    os.close(handover)
    process = server.process
    until(lambda: server.status().pid == process.pid if server.find("gateway") else None)
    server.until_ready("gateway")
    server.http.base_url = httpx.URL(server.status().address)
    server.until_answers("m")
    assert "format 99" in server.explain()
