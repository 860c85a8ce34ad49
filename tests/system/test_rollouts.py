"""What runs is replaced under traffic, and nobody notices."""

import hashlib
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest

from tests.system.conftest import Serve
from tests.system.server import BREATH_S, Server, until
from tiffin.control.fleet.status import State

pytestmark = pytest.mark.xdist_group("rollouts")

ECHO = '[models.m]\nruntime = "echo"\ntoken_ms = 10\n'


CODE = """
class Model:
    inputs = [("x", "FP32", [-1, 1])]
    outputs = [("y", "FP32", [-1, 1])]

    def predict(self, inputs):
        return {"y": inputs["x"] + ADDED}
"""

CHAIN = """
[models.add]
runtime = "python"
trusted = true
[models.add.files."model.py"]
sources = ["file:{one}"]
sha256 = "{one_digest}"
[models.add.revisions.two.files."model.py"]
sources = ["file:{two}"]
sha256 = "{two_digest}"

[models.chain]
runtime = "pipeline"
outputs = {{ y = "add.y" }}
[[models.chain.steps]]
name = "add"
model = "add"
inputs = {{ x = "request.x" }}
"""


class Traffic:
    """Clients that ask all the time; `ask` tells what they get as a word."""

    def __init__(self, ask: Callable[[], str]) -> None:
        self.answers: Counter[str] = Counter()
        self._answer = ask
        self._over = threading.Event()

    @contextmanager
    def flowing(self, clients: int = 4) -> Iterator["Traffic"]:
        threads = [threading.Thread(target=self._ask) for _ in range(clients)]
        for thread in threads:
            thread.start()
        try:
            yield self
        finally:
            self._over.set()
            for thread in threads:
                thread.join()

    def _ask(self) -> None:
        while not self._over.wait(BREATH_S):
            self.answers[self._answer()] += 1


def chats(server: Server) -> Callable[[], str]:
    """Asks a model of texts."""

    def ask() -> str:
        return told(server.chat("m", "one word and another and so on"))

    return ask


def told(reply: httpx.Response) -> str:
    return "ok" if reply.status_code == 200 else f"{reply.status_code} {reply.text[:200]}"


def added(server: Server, path: str = "chain") -> str:
    """What a model of tensors makes of a zero."""
    tensor = {"name": "x", "datatype": "FP32", "shape": [1, 1], "data": [0.0]}
    reply = server.http.post(f"/v2/models/{path}/infer", json={"inputs": [tensor]})
    return str(reply.json()["outputs"][0]["data"][0]) if told(reply) == "ok" else told(reply)


def names(server: Server, model: str = "m") -> set[str]:
    """The replicas of a model that are ready; none where others haven't ended or started yet."""
    here = [one for one in server.status().processes if one.model == model]
    return {one.name for one in here} if all(one.state is State.READY for one in here) else set()


def apply(server: Server, models: str) -> None:
    base = server.config.read_text().partition("[models.")[0]
    reply = server.http.post("/admin/v1/config", json={"toml": base + models})
    assert reply.status_code == 200, reply.text


def test_a_model_is_replaced_again_and_again_without_a_dropped_request(serve: Serve) -> None:
    server = serve(ECHO)
    server.until_answers("m")
    before = names(server)

    def replaced() -> set[str]:
        def done() -> set[str] | None:
            now = names(server)
            return now if len(now) == 1 and not now & before else None

        return until(done, 15, server.explain)

    with Traffic(chats(server)).flowing() as traffic:
        apply(server, ECHO + "slots = 3\n")  # a setting
        before = replaced()
        apply(server, ECHO + "slots = 3\ncontext = 2048\n")  # another revision
        before = replaced()
        server.http.post("/admin/v1/models/m/restart").raise_for_status()
        before = replaced()
        apply(server, ECHO + "slots = 3\ncontext = 2048\nreplicas = 2\n")
        two = until(lambda: now if len(now := names(server)) == 2 else None, 15, server.explain)
        assert before < two, "it has one more, and the other goes on"
        apply(server, ECHO + "slots = 3\ncontext = 2048\n")
        until(lambda: names(server) == before, 15, server.explain)
    assert traffic.answers.keys() == {"ok"}
    assert traffic.answers["ok"] > 100


def test_one_that_fails_leaves_the_old_one_and_tells_why(serve: Serve) -> None:
    server = serve(ECHO)
    server.until_answers("m")
    before = names(server)
    with Traffic(chats(server)).flowing() as traffic:
        apply(server, ECHO + 'fail_load = "it is not edible"\n')
        told = until(lambda: failed(server), 15, server.explain)
        assert "it is not edible" in told
        pid = server.kill("control")  # what is under way is in the snapshot
        server.until_ready("control", after_pid=pid)
        until(lambda: server.http.get("/admin/v1/status").status_code == 200)
        assert server.chat("m").status_code == 200
        apply(server, ECHO)
        until(lambda: names(server) == before, 15, server.explain)
    assert traffic.answers.keys() == {"ok"}


def test_a_pipeline_goes_on_while_its_model_is_replaced(serve: Serve, tmp_path: Path) -> None:
    section = chain(tmp_path, "1.0", "2.0")
    server = serve(section)
    until(lambda: added(server) == "1.0", 20, server.explain)
    until(lambda: added(server, "add/versions/two") == "2.0", 20, server.explain)
    assert added(server, "add%40two") == "2.0"
    listed = [model["id"] for model in server.http.get("/v1/models").json()["data"]]
    assert listed == ["add", "add@two", "chain"]
    versions = server.http.get("/v2/models/add").json()["versions"]
    assert added(server, f"add/versions/{versions[0]}") == "1.0"
    assert versions[1:] == ["two"]

    pipeline = until(lambda: names(server, "chain"), 20, server.explain)
    before = names(server, "add")
    with Traffic(lambda: added(server)).flowing(2) as traffic:
        server.http.post("/admin/v1/models/add/restart").raise_for_status()
        until(lambda: (now := names(server, "add")) and not now & before, 20, server.explain)
        assert traffic.answers.keys() == {"1.0"}
        assert names(server, "chain") == pipeline, "what it calls is of the same revision"
        apply(server, chain(tmp_path, "3.0", "2.0"))
        until(lambda: added(server) == "3.0", 20, server.explain)
    assert traffic.answers.keys() <= {"1.0", "3.0"}


def chain(folder: Path, one: str, two: str) -> str:
    settings: dict[str, object] = {}
    for name, number in (("one", one), ("two", two)):
        path = folder / f"{number}.py"
        path.write_text(CODE.replace("ADDED", number))
        settings |= {name: path, f"{name}_digest": hashlib.sha256(path.read_bytes()).hexdigest()}
    return CHAIN.format(**settings)


def failed(server: Server) -> str:
    """What the status says of the replicas that are to come and don't."""
    report = server.http.get("/admin/v1/status").json()
    [model] = [one for one in report["models"] if one["name"] == "m"]
    coming = model["coming"]
    if not coming or coming["state"] != "failed":
        return ""
    assert model["state"] == "ready"
    return str(coming["reason"])
