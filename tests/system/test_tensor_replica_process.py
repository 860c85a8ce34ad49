"""Tensor models in processes of their own: onnxruntime and a user's class, over a unix socket."""

import hashlib
import json
import os
import signal
import socket
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import msgspec
import numpy as np
import pytest
from onnxruntime import InferenceSession  # type: ignore[import-untyped]

from tests.onnx_graphs import scoring, written
from tests.polling import until
from tiffin.app.boot import EXIT_PERMANENT, Boot, command
from tiffin.app.replica import State
from tiffin.config.schema import Server, Telemetry
from tiffin.serving.progress import Phase, read_progress
from tiffin.types.ids import new_id
from tiffin.types.snapshot import Deployment, PlacedFile

pytestmark = pytest.mark.xdist_group("tensor replicas")

INFER = "/v2/models/tabular/infer"
NAME = "r-tabular-01234567"
CODE = b"""
class Model:
    inputs = [("x", "FP32", [-1, 2])]
    outputs = [("y", "FP32", [-1])]

    def predict(self, inputs):
        if (inputs["x"] < 0).any():
            raise ValueError("negative amounts")
        return {"y": inputs["x"].sum(axis=1)}
"""


GATED = b"""
import pathlib, time

class Model:
    inputs = [("x", "FP32", [-1, 1])]
    outputs = [("y", "FP32", [-1, 1])]

    def predict(self, inputs):
        folder = pathlib.Path(FOLDER)
        with (folder / "rows").open("a") as rows:
            rows.write("1" * len(inputs["x"]))
        while (folder / "shut").exists():
            time.sleep(0.005)
        return {"y": inputs["x"] * 2}
"""


class Process:
    """A replica that runs below `folder` with one file."""

    def __init__(self, folder: Path, file: Path, spec: dict[str, Any]) -> None:
        self.run = folder / "run"
        self.run.mkdir()
        (folder / "metrics").mkdir()
        self.socket = self.run / f"{NAME}.sock"
        self.log = folder / "log"
        digest = hashlib.sha256(file.read_bytes()).hexdigest()
        spec = {**spec, "files": {file.name: {"sources": [f"file:{file}"], "sha256": digest}}}
        deployment = Deployment(
            model="tabular",
            revision="sha256:" + "0123456789abcdef" * 4,
            socket=str(self.socket),
            spec=msgspec.Raw(msgspec.json.encode(spec)),
            files={file.name: PlacedFile(path=str(file), sha256=digest)},
        )
        boot = Boot(
            role="replica",
            name=NAME,
            data=str(folder),
            parent_pid=os.getpid(),
            epoch=new_id("ep"),
            server=Server(drain_s=5.0),
            telemetry=Telemetry(),
            deployment=deployment,
        )
        with self.log.open("wb") as log:
            self.process = subprocess.Popen(command(boot), stdin=subprocess.DEVNULL, stderr=log)
        transport = httpx.HTTPTransport(uds=str(self.socket))
        self.client = httpx.Client(transport=transport, base_url="http://replica", timeout=20)

    @property
    def state(self) -> State:
        try:
            return msgspec.json.decode((self.run / f"{NAME}.state.json").read_bytes(), type=State)
        except FileNotFoundError:
            return State(phase="")

    def ready(self) -> "Process":
        until(lambda: self.state.phase in ("ready", "failed"))
        assert self.state.phase == "ready", self.state.reason
        return self

    def infer(self, x: Any) -> httpx.Response:
        return self.client.post(INFER, content=body(x))

    def asking(self, x: Any) -> socket.socket:
        """A connection on which a request was sent, and nobody reads."""
        client = socket.socket(socket.AF_UNIX)
        client.connect(str(self.socket))
        sent = body(x)
        client.sendall(
            b"POST %b HTTP/1.1\r\nhost: replica\r\ncontent-length: %d\r\n\r\n%b"
            % (INFER.encode(), len(sent), sent)
        )
        return client

    def waiting(self) -> float:
        families = self.client.get("/metrics.json").json()["families"]
        names = {family["name"]: family for family in families}
        series = names["nv_inference_pending_request_count"]["series"]
        return float(series[0][1][0])

    def close(self) -> None:
        self.client.close()
        self.process.kill()
        self.process.wait()


def body(x: Any) -> bytes:
    array = np.asarray(x, np.float32)
    tensor = {"name": "x", "datatype": "FP32", "shape": list(array.shape)}
    return json.dumps({"inputs": [{**tensor, "data": array.ravel().tolist()}]}).encode()


Make = Callable[[Path, dict[str, Any]], Process]


@pytest.fixture
def make(tmp_path: Path) -> Iterator[Make]:
    made: list[Process] = []

    def make(file: Path, spec: dict[str, Any]) -> Process:
        made.append(Process(tmp_path, file, spec))
        return made[-1]

    yield make
    for process in made:
        process.close()


def test_a_graph_is_served_with_onnxruntimes_own_numbers(make: Make, tmp_path: Path) -> None:
    replica = make(written(tmp_path, scoring()), {"runtime": "onnx"}).ready()
    x = np.random.default_rng(3).normal(size=(5, 4)).astype(np.float32)
    (expected,) = InferenceSession(scoring()).run(None, {"x": x})
    answer = replica.infer(x)
    [output] = answer.json()["outputs"]
    assert np.abs(np.reshape(output["data"], output["shape"]) - expected).max() <= 1e-5
    assert json.loads(answer.headers["x-tiffin-usage"])["rows"] == 5
    progress = read_progress(replica.run / f"{NAME}.progress")
    assert (progress.phase, progress.outstanding) == (Phase.READY, 0)
    assert progress.steps > 0
    replica.process.send_signal(signal.SIGTERM)
    assert replica.process.wait(10) == 0
    assert [path.name for path in replica.run.iterdir()] == [f"{NAME}.state.json"]


def test_a_crash_in_a_users_code_stays_in_the_log(make: Make, tmp_path: Path) -> None:
    replica = make(written(tmp_path, CODE, "model.py"), {"runtime": "python", "trusted": True})
    replica.ready()
    bad = replica.infer([[-1, 2]])
    assert bad.status_code == 500
    assert "ValueError" in bad.json()["error"]["message"]
    assert "negative amounts" not in bad.text
    log = replica.log.read_text()
    assert "negative amounts" in log
    assert "in predict" in log
    assert replica.infer([[1, 2]]).json()["outputs"][0]["data"] == [3]


def test_160_clients_that_vanish_cost_no_more_than_the_running_batch(
    make: Make, tmp_path: Path
) -> None:
    code = GATED.replace(b"FOLDER", repr(str(tmp_path)).encode())
    replica = make(written(tmp_path, code, "model.py"), {"runtime": "python", "trusted": True})
    replica.ready()
    rows = tmp_path / "rows"
    rows.unlink()
    (tmp_path / "shut").touch()
    clients = [replica.asking([[number]]) for number in range(160)]
    until(lambda: rows.exists() and replica.waiting() >= 160 - 32)
    for client in clients:
        client.close()
    until(lambda: replica.waiting() == 0)
    (tmp_path / "shut").unlink()
    assert replica.infer([[21]]).json()["outputs"][0]["data"] == [42]
    assert len(rows.read_text()) <= 32 + 1


@pytest.mark.parametrize(
    ("content", "name", "spec", "reason"),
    [
        pytest.param(scoring()[:-50], "model.onnx", {"runtime": "onnx"}, "graph", id="corrupt"),
        pytest.param(CODE, "model.py", {"runtime": "python"}, "trusted", id="not trusted"),
        pytest.param(
            scoring(),
            "model.onnx",
            {"runtime": "onnx", "providers": ["cuda"]},
            "providers cuda",
            id="no such provider",
        ),
    ],
)
def test_what_cant_load_ends_for_good_and_says_why(
    content: bytes, name: str, spec: dict[str, Any], reason: str, make: Make, tmp_path: Path
) -> None:
    replica = make(written(tmp_path, content, name), spec)
    assert replica.process.wait(15) == EXIT_PERMANENT
    assert replica.state.phase == "failed"
    assert reason in replica.state.reason
