"""A replica as a process of its own, over its unix socket, without a supervisor or a gateway."""

import os
import signal
import socket
import stat
import subprocess
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import msgspec
import pytest

from tests.polling import until
from tiffin.app.boot import EXIT_PERMANENT, Boot, command
from tiffin.app.replica import EXIT_MAY_HEAL, State
from tiffin.config.models import GGUF
from tiffin.config.schema import Server, Telemetry
from tiffin.serving.progress import Phase, Progress, read_progress
from tiffin.types.ids import new_id
from tiffin.types.snapshot import Deployment

NAME = "r-echo-00000000"
SAY = {"model": "echo", "messages": [{"role": "user", "content": "one two three"}]}


class Process:
    """A replica that runs below `folder`."""

    def __init__(self, folder: Path, spec: dict[str, Any], **deployment: Any) -> None:
        self.run = folder / "run"
        self.run.mkdir()
        (folder / "metrics").mkdir()
        self.socket = self.run / f"{NAME}.sock"
        boot = Boot(
            role="replica",
            name=NAME,
            data=str(folder),
            parent_pid=os.getpid(),
            epoch=new_id("ep"),
            server=Server(drain_s=5.0),
            telemetry=Telemetry(),
            deployment=Deployment(
                model="echo",
                revision="sha256:" + "0" * 64,
                socket=str(self.socket),
                spec=msgspec.Raw(msgspec.json.encode(spec)),
                **deployment,
            ),
        )
        self.process = subprocess.Popen(
            command(boot), stdin=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        self.client = httpx.Client(
            transport=httpx.HTTPTransport(uds=str(self.socket)),
            base_url="http://replica",
            timeout=20,
        )

    @property
    def state(self) -> State:
        try:
            return msgspec.json.decode((self.run / f"{NAME}.state.json").read_bytes(), type=State)
        except FileNotFoundError:
            return State(phase="")

    @property
    def progress(self) -> Progress:
        return read_progress(self.run / f"{NAME}.progress")

    def ready(self) -> "Process":
        until(lambda: self.state.phase == "ready")
        return self

    def count(self, metric: str) -> dict[tuple[str, ...], float]:
        families = self.client.get("/metrics.json").json()["families"]
        [found] = [family for family in families if family["name"] == metric]
        return {tuple(labels): numbers[0] for labels, numbers in found["series"]}

    def close(self) -> None:
        self.client.close()
        self.process.kill()
        self.process.wait()


Make = Callable[..., Process]


@pytest.fixture
def make(tmp_path: Path) -> Iterator[Make]:
    made: list[Process] = []

    def make(**spec: Any) -> Process:
        deployment = spec.pop("deployment", {})
        made.append(Process(tmp_path, {"runtime": "echo", **spec}, **deployment))
        return made[-1]

    yield make
    for process in made:
        process.close()


def test_it_serves_its_private_socket_when_a_real_inference_has_passed(make: Make) -> None:
    replica = make(token_ms=5).ready()
    assert stat.S_IMODE(replica.socket.stat().st_mode) == 0o600
    assert replica.state.pid == replica.process.pid
    assert replica.state.warm_ms >= 5
    assert replica.progress.phase == Phase.READY
    assert replica.progress.steps > 0
    assert replica.client.get("/v2/health/ready").json() == {"ready": True}
    answer = replica.client.post("/v1/chat/completions", json=SAY).json()
    assert answer["choices"][0]["message"]["content"] == "one two three"


def test_it_is_live_and_not_ready_while_it_loads(make: Make) -> None:
    replica = make(load_ms=60_000)
    until(lambda: accepts(replica.socket))
    assert replica.client.get("/v2/health/live").status_code == 200
    assert replica.client.get("/v2/health/ready").status_code == 503
    refused = replica.client.post("/v1/chat/completions", json=SAY)
    assert (refused.status_code, refused.json()["error"]["code"]) == (503, "model_loading")
    assert "retry-after" in refused.headers


def accepts(path: Path) -> bool:
    """Whether somebody listens there; an HTTP client that is refused would leak its socket."""
    with socket.socket(socket.AF_UNIX) as sock:
        return sock.connect_ex(str(path)) == 0


def test_its_heart_beats(make: Make) -> None:
    replica = make().ready()
    beats = replica.progress.heartbeat
    until(lambda: replica.progress.heartbeat > beats)


@pytest.mark.parametrize(
    ("wrong", "code", "reason"),
    [
        ({"fail_load": "no such tensor"}, EXIT_PERMANENT, "no such tensor"),
        ({"fail_after": 0, "context": 5}, EXIT_MAY_HEAL, "warm-up failed"),
        ({"runtime": "abacus"}, EXIT_MAY_HEAL, "no runtime 'abacus'"),
        (
            {"deployment": {"files": {GGUF: {"path": __file__, "sha256": "f" * 64}}}},
            EXIT_PERMANENT,
            "expected ffff",
        ),
        (
            {"deployment": {"files": {GGUF: {"path": "/nowhere", "sha256": "f" * 64}}}},
            EXIT_MAY_HEAL,
            "can't be read",
        ),
    ],
    ids=["can't load", "fails its warm-up", "unknown runtime", "wrong digest", "no file"],
)
def test_a_failed_start_says_why_and_whether_another_may_help(
    make: Make, wrong: dict[str, Any], code: int, reason: str
) -> None:
    replica = make(**wrong)
    assert replica.process.wait(20) == code
    assert replica.state.phase == "failed"
    assert reason in replica.state.reason
    assert not replica.socket.exists()


def test_on_term_what_runs_finishes_and_nothing_is_left(make: Make) -> None:
    replica = make(slots=1, token_ms=150).ready()
    got: dict[str, str] = {}

    def ask(name: str) -> None:
        got[name] = replica.client.post("/v1/chat/completions", json={**SAY, "stream": True}).text

    running, waiting = (threading.Thread(target=ask, args=[name]) for name in ("runs", "waits"))
    running.start()
    until(lambda: replica.progress.outstanding == 1)
    waiting.start()
    until(lambda: replica.progress.outstanding == 2)
    replica.process.send_signal(signal.SIGTERM)
    running.join()
    waiting.join()
    assert replica.process.wait(20) == 0
    assert "three" in got["runs"]
    assert got["runs"].endswith("data: [DONE]\n\n")
    assert '"draining"' in got["waits"]
    assert [path.name for path in replica.run.iterdir()] == [f"{NAME}.state.json"]


def test_a_client_that_leaves_frees_its_slot(make: Make) -> None:
    replica = make(slots=1, token_ms=1000).ready()
    with replica.client.stream("POST", "/v1/chat/completions", json={**SAY, "stream": True}) as r:
        lines = r.iter_lines()
        assert next(lines).startswith("data: ")
        assert replica.progress.outstanding == 1
    until(lambda: replica.progress.outstanding == 0)
    assert replica.count("vllm:request_success_total")["echo", "abort"] == 1
    until(lambda: replica.count("vllm:num_requests_running") == {("echo",): 0})
