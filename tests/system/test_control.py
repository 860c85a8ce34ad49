"""Control as a process: it publishes first, and what it does for requests needs no database."""

import json
import os
import signal
import socket
import stat
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from http.client import HTTPConnection
from pathlib import Path
from typing import Any

import pytest

from tests.polling import until
from tiffin.app.boot import EXIT_PERMANENT, Boot, command
from tiffin.config.schema import Server, Telemetry
from tiffin.telemetry.events import Closed, Opened, Outcome
from tiffin.telemetry.journal import Journal
from tiffin.types.ids import new_id
from tiffin.types.paths import DataFolder

CONFIG = "[models.one]\nruntime = 'echo'\n"


class UnixConnection(HTTPConnection):
    """HTTP to a unix socket."""

    def __init__(self, path: Path) -> None:
        super().__init__("control", timeout=10)
        self._path = path

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.settimeout(10)
        self.sock.connect(str(self._path))


class Site:
    """A data folder and the control processes that come and go over it."""

    def __init__(self, root: Path) -> None:
        self.folder = DataFolder(root / "data")
        self.folder.run.mkdir(parents=True)
        self.config = root / "tiffin.toml"
        self.config.write_text(CONFIG)
        self.sock = self.folder.run / "control.sock"

    def start(self) -> "subprocess.Popen[bytes]":
        boot = Boot(
            role="control",
            name="control",
            data=str(self.folder.root),
            parent_pid=os.getpid(),
            epoch=new_id("ep"),
            server=Server(),
            telemetry=Telemetry(),
            config_path=str(self.config),
        )
        return subprocess.Popen(command(boot), stderr=subprocess.DEVNULL)

    @contextmanager
    def running(self) -> Iterator["subprocess.Popen[bytes]"]:
        self.sock.unlink(missing_ok=True)
        process = self.start()
        try:
            until(lambda: self.answers() or process.poll() is not None, 30)
            yield process
        finally:
            process.kill()
            process.wait()

    def answers(self) -> bool:
        try:
            return self.ask("GET", "/admin/v1/status")[0] == 200
        except OSError:
            return False

    def ask(self, method: str, path: str, body: str = "") -> tuple[int, Any]:
        connection = UnixConnection(self.sock)
        try:
            connection.request(method, path, body)
            reply = connection.getresponse()
            text = reply.read().decode()
            return reply.status, text if path == "/metrics" else json.loads(text)
        finally:
            connection.close()

    def published(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(self.folder.snapshot.read_bytes())
        return found

    def account(self, count: int = 1, *, left_open: int = 0) -> None:
        """A gateway's life: so many accounts, some of which it never closes."""
        journal = Journal(self.folder.journal, new_id("ep"))
        for number in range(count):
            name = new_id("req")
            journal.open(Opened(id=name, at_ns=1, tenant="t", key="k", endpoint="chat"))
            if number >= left_open:
                journal.close(Closed(id=name, at_ns=2, outcome=Outcome.OK, status=200))
        journal.shut()

    def outcomes(self) -> dict[str, int]:
        _, page = self.ask("GET", "/admin/v1/accounts/totals")
        return {total["outcome"]: total["requests"] for total in page.get("data", [])}


@pytest.fixture
def site() -> Iterator[Site]:
    # pytest's own folders have paths that are too long for a socket.
    with tempfile.TemporaryDirectory() as folder:
        yield Site(Path(folder))


def test_it_publishes_answers_and_leaves_nothing_behind(site: Site) -> None:
    with site.running() as process:
        assert list(site.published()["plans"]) == ["one"]
        assert stat.S_IMODE(site.sock.stat().st_mode) == 0o600
        assert stat.S_IMODE(site.folder.snapshot.stat().st_mode) == 0o600
        status, text = site.ask("GET", "/metrics")
        assert status == 200
        assert "tiffin_snapshot_number 1\n" in text
        process.terminate()
        assert process.wait(20) == 0
    # What it saw of the machine stays for whoever starts replicas while control is replaced.
    assert {path.name for path in site.folder.run.iterdir()} <= {"machine.json"}


def test_what_a_gateway_wrote_becomes_entries_even_at_the_end(site: Site) -> None:
    with site.running() as process:
        site.account(5, left_open=2)
        until(lambda: site.outcomes() == {"ok": 3, "lost": 2})
        site.account(4)
        process.terminate()
        process.wait(20)
    with site.running():
        assert site.outcomes() == {"ok": 7, "lost": 2}
    assert list(site.folder.journal.iterdir()) == []


def test_killed_at_any_moment_it_counts_nothing_twice(site: Site) -> None:
    for _ in range(4):
        site.account(500)
        with site.running() as process:
            process.send_signal(signal.SIGKILL)
            process.wait()
    with site.running():
        until(lambda: site.outcomes() == {"ok": 2000})
        assert site.published()["number"] == 1


def test_without_a_database_everything_else_goes_on(site: Site) -> None:
    site.folder.database.write_bytes(b"this has been overwritten by something else" * 100)
    site.account(3)
    with site.running():
        assert list(site.published()["plans"]) == ["one"]
        until(lambda: site.ask("GET", "/admin/v1/status")[1]["degraded"])
        status = site.ask("GET", "/admin/v1/status")[1]
        assert "ingest: the database" in status["degraded"][0]
        assert status["journal"]["bytes"] > 0
        assert site.ask("GET", "/admin/v1/accounts")[0] == 503
        until(lambda: 'tiffin_degraded{part="ingest"} 1' in site.ask("GET", "/metrics")[1])
        code, applied = site.ask("POST", "/admin/v1/config", CONFIG.replace("one", "two"))
        assert (code, applied["number"]) == (200, 2)
        site.folder.database.unlink()
        until(lambda: site.outcomes() == {"ok": 3}, 30)
        until(lambda: site.ask("GET", "/admin/v1/status")[1]["degraded"] == [], 30)


def test_hup_reads_the_file_again(site: Site) -> None:
    with site.running() as process:
        site.config.write_text(CONFIG.replace("one", "two"))
        process.send_signal(signal.SIGHUP)
        until(lambda: list(site.published()["plans"]) == ["two"])
        site.config.write_text("broken")
        process.send_signal(signal.SIGHUP)
        until(lambda: site.ask("GET", "/admin/v1/status")[1]["degraded"])
        assert list(site.published()["plans"]) == ["two"]


def test_a_configuration_that_cannot_be_used_is_no_start(site: Site) -> None:
    site.config.write_text("[models.one]\nruntime = 'eco'\n")
    process = site.start()
    assert process.wait(30) == EXIT_PERMANENT
    told = json.loads((site.folder.run / "control.state.json").read_bytes())
    assert told["phase"] == "failed"
    assert "models.one.runtime" in told["reason"]
