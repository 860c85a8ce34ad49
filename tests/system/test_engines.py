"""Which engine runs a model is measured, kept with its revision and shown; kills leave nothing."""

import os
import signal
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.system.conftest import Serve
from tests.system.server import TIFFIN, Server, until
from tests.system.test_clients import section
from tiffin.config.load import load_text
from tiffin.config.models import LlamacppModel
from tiffin.control.engines.calibrations import (
    Calibrations,
    engine_versions,
    machine_id,
    measured_as,
)
from tiffin.types.calibration import Calibration, Measured

pytestmark = [pytest.mark.models, pytest.mark.xdist_group("real models")]


def command(server: Server, *words: str) -> list[str]:
    return [str(TIFFIN), "models", *words, "--config", str(server.config)]


def run(server: Server, *words: str) -> str:
    done = subprocess.run(
        command(server, *words), capture_output=True, text=True, timeout=110, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def standing(server: Server) -> dict[str, Any]:
    """What the status says of the model."""
    [model] = server.http.get("/admin/v1/status").json()["models"]
    return dict(model)


def children(pid: int) -> list[int]:
    """The processes that a process has started."""
    return [int(one) for one in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def runs(pid: int) -> bool:
    return Path(f"/proc/{pid}").exists()


def test_what_was_measured_decides_is_shown_and_outlives_restarts(make_server: Serve) -> None:
    server = make_server(section("chat-tiny") + 'engine = "auto"\n')
    server.start()
    server.until_answers("chat-tiny", within_s=60)
    assert standing(server)["engine_why"] == "nothing has been measured yet"

    command_line = command(server, "calibrate", "--quick", "chat-tiny")
    with subprocess.Popen(command_line, stdout=subprocess.PIPE) as killed:
        measuring = until(lambda: children(killed.pid), 30)
        os.kill(killed.pid, signal.SIGKILL)
    until(lambda: not any(map(runs, measuring)), what=lambda: f"{measuring}")
    kept = server.folder.root / "calibrations"
    assert not kept.exists() or not list(kept.iterdir())

    # What a whole one keeps; measuring takes a minute and is tried by its parts.
    model = load_text(server.config.read_bytes(), {}).config.models["chat-tiny"]
    assert isinstance(model, LlamacppModel)
    Calibrations(kept).keep(
        Calibration(
            revision=measured_as(model),
            machine=machine_id(),
            taken_ns=1,
            versions=engine_versions(),
            measured=[Measured(engine="llamacpp", tokens_per_s={1: 50.0})],
            engine="llamacpp",
            why="openvino answers differently",
        )
    )
    until(lambda: standing(server)["engine_why"].startswith("chosen: "), 20, server.explain)
    first = standing(server)
    assert first["engine"] == "llamacpp"
    server.until_answers("chat-tiny", within_s=60)
    assert f"measured         {first['engine']} is the one" in run(server, "show", "chat-tiny")

    assert server.stop() == 0
    server.start()
    server.until_answers("chat-tiny", within_s=60)
    kept_over = ("engine", "engine_why", "revision")

    def again() -> bool:
        now = standing(server)
        return all(now[name] == first[name] for name in kept_over)

    until(again, 20, lambda: f"{standing(server)}\n{server.explain()}")
