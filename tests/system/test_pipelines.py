"""Pipelines through the whole of Tiffin: branch, parallel and merge, deadline, leaving, ready."""

import hashlib
import socket
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import msgspec
import pytest

from tests.onnx_graphs import doubling, scoring, written
from tests.system.server import KEY, Server, until

pytestmark = pytest.mark.xdist_group("pipelines")

FUNCTIONS = """
import numpy as np
from tiffin.errors import InvalidRequest
from tiffin.serving.pipeline.functions import step

@step(takes={"p": "FP32[-1,2]"}, gives={"risk": "FP32[1]"})
def riskiest(p, *, column=1):
    if np.isnan(p).any():
        raise InvalidRequest("no row may lack a value")
    return {"risk": p[:, column].max(keepdims=True)}

@step(takes={"y": "FP32[-1,-1]"}, gives={"rows": "FP32[-1,4]*"})
def apart(y):
    return {"rows": [row[None] for row in y]}

@step(takes={"sums": "FP32[-1]*"}, gives={"total": "FP32[1]"})
def together(sums):
    return {"total": np.concatenate(sums).sum(keepdims=True)}
"""


SLOW = """
import pathlib, time
HERE = pathlib.Path({folder!r})

class Model:
    inputs = [("x", "FP32", [-1, 4])]
    outputs = [("y", "FP32", [-1, 4])]

    def predict(self, inputs):
        value = int(inputs["x"][0, 0])
        (HERE / f"began-{{value}}").touch()
        while value > 0 and not (HERE / f"go-{{value}}").exists():
            time.sleep(0.01)
        return {{"y": inputs["x"]}}
"""

AFTER = """
import pathlib
from tiffin.serving.pipeline.functions import step

@step(takes={{"y": "FP32[-1,-1]"}}, gives={{"y": "FP32[-1,-1]"}})
def after(y):
    (pathlib.Path({folder!r}) / f"after-{{int(y[0, 0])}}").touch()
    return {{"y": y}}
"""

CHAIN = """
[models.slow]
runtime = "python"
trusted = true
[models.slow.files."model.py"]
sources = ["file:{slow}"]
sha256 = "{slow_digest}"

[models.chain]
runtime = "pipeline"
trusted = true
outputs = {{ y = "after.y" }}
[models.chain.files."after.py"]
sources = ["file:{after}"]
sha256 = "{after_digest}"

[[models.chain.steps]]
name = "slow"
model = "slow"
inputs = {{ x = "request.x" }}

[[models.chain.steps]]
name = "after"
function = "after.py:after"
inputs = {{ y = "slow.y" }}
"""

GRAPH = """
[models.review]
runtime = "pipeline"
trusted = true

[models.review.outputs]
risk = "judge.risk"
deep = "deep.y"
both = ["deep.y", "plain.y"]
total = "together.total"

[models.review.files."steps.py"]
sources = ["file:{code}"]
sha256 = "{digest}"

[[models.review.steps]]
name = "score"
model = "score"
inputs = {{ x = "request.x" }}

[[models.review.steps]]
name = "judge"
function = "steps.py:riskiest"
inputs = {{ p = "score.probabilities" }}
options = {{ column = 1 }}

[[models.review.steps]]
name = "deep"
model = "double"
when = "judge.risk >= 0.5"
inputs = {{ x = "request.x" }}

[[models.review.steps]]
name = "plain"
model = "double"
inputs = {{ x = "request.x" }}

[[models.review.steps]]
name = "apart"
function = "steps.py:apart"
inputs = {{ y = "plain.y" }}

[[models.review.steps]]
name = "sum"
model = "double"
inputs = {{ x = "apart.rows" }}

[[models.review.steps]]
name = "together"
function = "steps.py:together"
inputs = {{ sums = "sum.sum" }}

[models.nested]
runtime = "pipeline"
outputs = {{ total = "inner.total" }}

[[models.nested.steps]]
name = "inner"
model = "review"
inputs = {{ x = "request.x" }}

[models.wrong]
runtime = "pipeline"
outputs = {{ y = "double.y" }}

[[models.wrong.steps]]
name = "score"
model = "score"
inputs = {{ x = "request.x" }}

[[models.wrong.steps]]
name = "double"
model = "score"
inputs = {{ x = "score.probabilities" }}
"""

LOW, HIGH = [0.0, 0.0, 0.0, 0.0], [3.0, -3.0, 3.0, -3.0]


def digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def onnx_section(name: str, path: Path) -> str:
    return (
        f'[models.{name}]\nruntime = "onnx"\n[models.{name}.files."model.onnx"]\n'
        f'sources = ["file:{path}"]\nsha256 = "{digest(path)}"\n'
    )


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    folder = tmp_path_factory.mktemp("pipelines")
    code = folder / "steps.py"
    code.write_text(FUNCTIONS)
    models = onnx_section("double", written(folder, doubling(), "double.onnx"))
    models += onnx_section("score", written(folder, scoring(), "score.onnx"))
    models += GRAPH.format(code=code, digest=digest(code))
    slow, after = folder / "slow.py", folder / "after.py"
    slow.write_text(SLOW.format(folder=str(folder)))
    after.write_text(AFTER.format(folder=str(folder)))
    models += CHAIN.format(
        slow=slow, slow_digest=digest(slow), after=after, after_digest=digest(after)
    )
    server = Server(folder, models)
    try:
        server.start()
        for name in ("nested", "chain"):
            server.until_ready(name, within_s=30)
        for path in (
            "/v2/models/review/ready",
            "/v2/models/nested/ready",
            "/v2/models/chain/ready",
        ):
            until(partial(knows, server, path), 10, server.explain)
        yield server
    finally:
        server.close()


def knows(server: Server, path: str) -> bool:
    """Whether the gateway knows by now what the supervisor does."""
    return server.http.get(path).is_success


def infer(server: Server, rows: list[list[float]], *outputs: str, model: str = "review") -> Any:
    tensor = {"name": "x", "datatype": "FP32", "shape": [len(rows), 4], "data": rows}
    body = {"inputs": [tensor], "outputs": [{"name": name} for name in outputs]}
    reply = server.http.post(f"/v2/models/{model}/infer", json=body)
    assert reply.status_code == 200, reply.text
    return {one["name"]: one["data"] for one in reply.json()["outputs"]}


def risky(server: Server) -> tuple[list[float], list[float]]:
    """Of two rows that are each other's negative, the one below 0.5 and the one above."""
    rows = [HIGH, [-value for value in HIGH]]
    low, high = sorted(rows, key=lambda row: infer(server, [row], "risk")["risk"][0])
    return low, high


def test_a_branch_runs_where_its_condition_holds(server: Server) -> None:
    low, high = risky(server)
    assert infer(server, [low], "deep", "risk").keys() == {"risk"}
    assert infer(server, [high], "deep")["deep"] == [2 * value for value in high]


def test_sources_that_ran_are_joined(server: Server) -> None:
    low, high = risky(server)
    assert infer(server, [low], "both")["both"] == [2 * value for value in low]
    assert infer(server, [high], "both")["both"] == 2 * [2 * value for value in high]


def test_many_are_taken_one_by_one_and_summed_up(server: Server) -> None:
    rows = [[1.0, 2.0, 3.0, 4.0], [10.0, 0.0, 0.0, 0.0]]
    assert infer(server, rows, "total")["total"] == [40.0]
    assert infer(server, rows, "total", model="nested")["total"] == [40.0]


def test_what_a_function_refuses_is_the_clients_to_mend(server: Server) -> None:
    tensor = {"name": "x", "datatype": "FP32", "shape": [1, 4], "data": [None, 0, 0, 0]}
    reply = server.http.post("/v2/models/review/infer", json={"inputs": [tensor]})
    assert reply.status_code == 400
    assert "no row may lack a value" in reply.json()["error"]
    id_ = reply.headers["x-request-id"]
    [account] = until(lambda: [a for a in server.accounts() if a["id"] == id_])
    assert account["outcome"] == "refused"
    assert account["device_ns"] > 0, "what ran before it was refused is in the account"


def test_inputs_are_checked_before_any_step(server: Server) -> None:
    tensor = {"name": "x", "datatype": "FP32", "shape": [1, 3], "data": [0, 0, 0]}
    reply = server.http.post("/v2/models/review/infer", json={"inputs": [tensor]})
    assert reply.status_code == 400
    assert "FP32 [-1, 4]" in reply.json()["error"]


def test_the_metadata_tell_what_the_steps_need(server: Server) -> None:
    told = server.http.get("/v2/models/review").json()
    assert told["inputs"] == [{"name": "x", "datatype": "FP32", "shape": [-1, 4]}]
    assert {one["name"] for one in told["outputs"]} == {"risk", "deep", "both", "total"}
    assert told["platform"] == "tiffin_pipeline"


def test_edges_that_do_not_fit_keep_it_from_loading_and_are_named(server: Server) -> None:
    def told() -> str:
        process = server.find("wrong")
        return process.reason if process else ""

    until(lambda: "score.probabilities -> double.x: it is FP32[-1,2]" in told(), 20, told)
    reply = server.http.post(
        "/v2/models/wrong/infer",
        json={"inputs": [{"name": "x", "datatype": "FP32", "shape": [1, 4], "data": LOW}]},
    )
    assert reply.status_code == 503


def test_all_steps_are_one_account(server: Server) -> None:
    id_ = server.http.post("/v2/models/review/infer", json=row(HIGH[0])).headers["x-request-id"]
    [account] = until(lambda: [a for a in server.accounts() if a["id"] == id_])
    assert account["outcome"] == "ok"
    assert account["device_ns"] > 0
    assert account["prepare_ns"] > 0


def test_a_model_that_dies_costs_only_a_retry(server: Server) -> None:
    killed = server.kill("double")
    server.until_ready("double", after_pid=killed)

    def answers() -> bool:
        tensor = {"name": "x", "datatype": "FP32", "shape": [1, 4], "data": LOW}
        reply = server.http.post("/v2/models/review/infer", json={"inputs": [tensor]})
        assert reply.status_code in (200, 502, 503)
        return reply.status_code == 200

    until(answers, 20, server.explain)


def row(value: float) -> dict[str, Any]:
    tensor = {"name": "x", "datatype": "FP32", "shape": [1, 4], "data": [value, 0, 0, 0]}
    return {"inputs": [tensor]}


def files(server: Server, name: str) -> Path:
    return server.config.with_name(name)


def test_a_client_that_leaves_stops_what_would_come_next(server: Server) -> None:
    address = urlsplit(str(server.http.base_url))
    body = msgspec.json.encode(row(7))
    head = f"POST /v2/models/chain/infer HTTP/1.1\r\nhost: x\r\nauthorization: Bearer {KEY}\r\n"
    with socket.create_connection((address.hostname, address.port or 80)) as client:
        client.sendall(f"{head}content-length: {len(body)}\r\n\r\n".encode() + body)
        until(files(server, "began-7").exists, 10, server.explain)
    until(lambda: server.in_flight() == 0, 10, server.explain)
    files(server, "go-7").touch()
    reply = server.http.post("/v2/models/chain/infer", json=row(-1))
    assert reply.status_code == 200, reply.text
    assert files(server, "after--1").exists()
    assert not files(server, "after-7").exists()


def test_the_deadline_is_one_for_all_steps(server: Server) -> None:
    began = time.monotonic()
    reply = server.http.post(
        "/v2/models/chain/infer", json=row(8), headers={"x-request-timeout-ms": "400"}
    )
    took = time.monotonic() - began
    files(server, "go-8").touch()
    assert reply.status_code == 504
    assert took < 5
    assert not files(server, "after-8").exists()
