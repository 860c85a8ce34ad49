"""From a file of one's own to answers over HTTP, with two commands, on a server that runs."""

import json
import os
import shlex
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import joblib  # type: ignore[import-untyped]
import numpy as np
import pytest
import xgboost
from sklearn.linear_model import LogisticRegression  # type: ignore[import-untyped]
from sklearn.pipeline import make_pipeline  # type: ignore[import-untyped]
from sklearn.preprocessing import StandardScaler  # type: ignore[import-untyped]

from tests.system.server import KEY, TIFFIN, Server, until
from tests.unit.adapters.importers.tables import NAMES, csv_file, rows, truth

pytestmark = pytest.mark.xdist_group("import")

STARTER = """
[models.credit-default]
runtime = "onnx"

[models.credit-default.files."model.onnx"]
sources = ["package:starter/credit-default.onnx"]
sha256 = "e756fb349a25713129e238d88457b6184296b7b048096d9cc39dd0a089c7da1b"

[models.credit-default.decision]
threshold = 0.22
labels = ["pays", "defaults"]
features = ["EDUCATION", "MARRIAGE", "LIMIT_BAL", "BILL_AMT1"]
reference = [2.0, 2.0, 140_000.0, 22_633.5]
"""


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    server = Server(tmp_path_factory.mktemp("import"), STARTER)
    try:
        server.start()
        server.until_ready("credit-default")
        # The gateway learns of it a moment later.
        until(lambda: server.http.get("/v2/models/credit-default/ready").status_code == 200)
        yield server
    finally:
        server.close()


def tiffin(server: Server, *words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [str(TIFFIN), *words],
        cwd=server.config.parent,
        env=os.environ | {"TIFFIN_API_KEY": KEY, "COLUMNS": "200"},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )


def infer(server: Server, model: str, x: Any, *outputs: str) -> dict[str, list[Any]]:
    """The named outputs of rows, or all, as JSON tells them."""
    body = {
        "inputs": [
            {"name": "input", "datatype": "FP32", "shape": list(x.shape), "data": x.tolist()}
        ],
        "outputs": [{"name": name} for name in outputs],
    }
    reply = server.http.post(f"/v2/models/{model}/infer", json=body)
    assert reply.status_code == 200, reply.text
    return {one["name"]: one["data"] for one in reply.json()["outputs"]}


def test_a_model_of_ones_own_is_imported_served_and_equal(server: Server, tmp_path: Path) -> None:
    model = make_pipeline(StandardScaler(), LogisticRegression()).fit(rows(), truth())
    joblib.dump(model, tmp_path / "fraud.joblib")
    sample = str(csv_file(tmp_path))
    features = ",".join(NAMES)
    done = tiffin(
        server, "models", "import", str(tmp_path / "fraud.joblib"), "--name", "fraud", "--trusted",
        "--sample", sample, "--features", features, "--threshold", "0.3", "--labels", "ok,bad",
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert "fraud is ready" in done.stdout

    x = rows(50).astype(np.float32)
    want = model.predict_proba(x.astype(np.float64))
    got = np.array(infer(server, "fraud", x)["probabilities"]).reshape(want.shape)
    assert np.abs(got - want).max() < 1e-5

    told = infer(server, "fraud", x, "decision", "score", "reasons")
    assert np.abs(np.array(told["score"]) - want[:, 1]).max() < 1e-5
    assert told["decision"] == ["bad" if score >= 0.3 else "ok" for score in told["score"]]
    first = json.loads(told["reasons"][0])
    assert {reason["feature"] for reason in first} <= set(NAMES)

    shown = tiffin(server, "infer", "fraud", "--csv", sample, "--explain")
    assert shown.returncode == 0, shown.stderr
    lines = shown.stdout.splitlines()
    assert lines[0].split() == ["decision", "score", "reasons"]
    assert [line.split()[0] for line in lines[1:]] == told["decision"]


def test_the_command_that_it_prints_works_as_it_is(server: Server, tmp_path: Path) -> None:
    data = xgboost.DMatrix(rows(), label=truth(), feature_names=list(NAMES))
    booster = xgboost.train({"objective": "binary:logistic"}, data, 3)
    booster.save_model(tmp_path / "boosted.json")
    done = tiffin(server, "models", "import", str(tmp_path / "boosted.json"), "--name", "boosted")
    assert done.returncode == 0, done.stderr
    command = done.stdout.partition("Try it:\n")[2]
    words = shlex.split(command.replace("$TIFFIN_API_KEY", KEY))
    body = words[words.index("-d") + 1]
    reply = server.http.post(words[1], content=body)
    assert reply.status_code == 200, reply.text
    outputs = {one["name"]: one["data"] for one in reply.json()["outputs"]}
    [row] = [json.loads(body)["inputs"][0]["data"]]
    want = booster.predict(xgboost.DMatrix(np.array([row]), feature_names=list(NAMES)))
    assert abs(outputs["score"][0] - want[0]) < 1e-5


def test_the_starters_model_decides_with_reasons(server: Server) -> None:
    done = tiffin(server, "infer", "credit-default", "--row", "2,1,50000,15000", "--explain")
    assert done.returncode == 0, done.stderr
    assert "defaults" in done.stdout
    assert "LIMIT_BAL +" in done.stdout
    wrong = tiffin(server, "infer", "credit-default", "--row", "2,1")
    assert wrong.returncode == 1
    assert "4 columns, and a row has 2" in wrong.stderr


def test_a_configuration_that_the_server_does_not_have_is_not_forced_on_it(
    server: Server, tmp_path: Path
) -> None:
    other = tmp_path / "other.toml"
    other.write_text(server.config.read_text() + "\n[models.more]\nruntime = 'echo'\n")
    (tmp_path / "mine.py").write_text("class Mine:\n    def predict(self, inputs): ...\n")
    done = tiffin(
        server, "models", "import", str(tmp_path / "mine.py"), "--name", "mine", "--trusted",
        "--config", str(other),
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert "the running server has another configuration" in done.stdout
    assert "mine" not in [model["id"] for model in server.http.get("/v1/models").json()["data"]]


def test_a_model_that_does_not_load_is_told(server: Server, tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(
        "class Mine:\n    def load(self, files): raise OSError('no disk')\n"
        "    def predict(self, inputs): ...\n"
    )
    done = tiffin(
        server, "models", "import", str(tmp_path / "mine.py"), "--name", "broken", "--trusted"
    )
    assert done.returncode == 1
    assert "OSError" in done.stderr
