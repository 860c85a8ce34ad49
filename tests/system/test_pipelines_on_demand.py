"""Pipelines over models that sleep, take turns in memory, and are replaced: no request is lost."""

import threading
import time
from functools import partial
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.onnx_graphs import doubling, written
from tests.system.conftest import Serve
from tests.system.server import BREATH_S, Server, until
from tests.system.test_pipelines import onnx_section
from tests.system.test_residency import start, state
from tiffin.control.fleet.status import State

pytestmark = pytest.mark.xdist_group("pipelines")

PIPELINE = """
[models.twice]
runtime = "pipeline"
outputs = { y = "again.y" }
memory_mb = 100

[[models.twice.steps]]
name = "once"
model = "first"
inputs = { x = "request.x" }

[[models.twice.steps]]
name = "again"
model = "second"
inputs = { x = "once.y" }
"""
ROW = {"inputs": [{"name": "x", "datatype": "FP32", "shape": [1, 4], "data": [1.0, 2.0, 3.0, 4.0]}]}


def models(folder: Path, **settings: Any) -> str:
    """Two models that double and a pipeline of both, which quadruples."""
    graph = written(folder, doubling(), "double.onnx")
    lines = "".join(f"{name} = {value}\n" for name, value in settings.items())
    sections = [onnx_section(name, graph) for name in ("first", "second")]
    return (
        "".join(
            section.replace('runtime = "onnx"\n', f'runtime = "onnx"\n{lines}')
            for section in sections
        )
        + PIPELINE
    )


def ask(server: Server, **headers: str) -> httpx.Response:
    return server.http.post("/v2/models/twice/infer", json=ROW, headers=headers)


def answers(server: Server) -> None:
    reply = ask(server)
    assert reply.status_code == 200, reply.text
    assert reply.json()["outputs"][0]["data"] == [4.0, 8.0, 12.0, 16.0]


def gone(pid: int) -> bool:
    return not Path(f"/proc/{pid}").exists()


def until_knows(server: Server) -> None:
    """Wait until the gateway knows that the pipeline is ready."""
    server.until_ready("twice", within_s=30)
    until(lambda: server.http.get("/v2/models/twice/ready").is_success, what=server.explain)


def test_models_that_sleep_are_woken_by_the_pipeline(make_server: Serve, tmp_path: Path) -> None:
    server = start(make_server, models(tmp_path, keep='"on-demand"', idle_s=1.0, hold_s=0.2), "")
    until_knows(server)
    for _ in range(2):
        until(lambda: state(server, "first") is State.ASLEEP, what=server.explain)
        until(lambda: state(server, "second") is State.ASLEEP, what=server.explain)
        answers(server)
    until(lambda: state(server, "second") is State.ASLEEP, what=server.explain)
    reply = ask(server, **{"x-request-timeout-ms": "1"})
    assert reply.status_code in (503, 504), reply.text


def test_models_of_a_pipeline_take_turns_in_memory_for_one(
    make_server: Serve, tmp_path: Path
) -> None:
    text = models(tmp_path, keep='"on-demand"', idle_s=60.0, hold_s=0.2, memory_mb=100)
    server = start(make_server, text, "memory_mb = 250\nwarm_replicas = 0")
    until_knows(server)
    answers(server)
    answers(server)
    resident = [p for p in server.status().processes if p.model != "twice" and p.model and p.pid]
    assert len(resident) <= 2, "one of them may still be ending"


def test_a_model_that_is_replaced_under_a_pipeline_costs_no_request(
    make_server: Serve, tmp_path: Path
) -> None:
    server = start(make_server, models(tmp_path), "")
    until_knows(server)
    statuses: list[int] = []
    done = threading.Event()

    def ask_on() -> None:
        http = server.http
        with httpx.Client(verify=False, base_url=http.base_url, headers=http.headers) as client:
            while not done.wait(BREATH_S):
                reply = client.post("/v2/models/twice/infer", json=ROW, timeout=30)
                statuses.append(reply.status_code)

    asking = [threading.Thread(target=ask_on) for _ in range(3)]
    for one in asking:
        one.start()
    for model in ("first", "second"):
        before = server.until_ready(model).pid
        server.http.post(f"/admin/v1/models/{model}/restart").raise_for_status()
        server.until_ready(model, after_pid=before)
        until(partial(gone, before), what=server.explain)
    time.sleep(0.2)
    done.set()
    for one in asking:
        one.join()
    assert set(statuses) == {200}
    assert len(statuses) > 20
