"""An engine that Tiffin launches, through the whole of it; a fake is in the engine's place."""

import os
import re
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.contract.launched_engines import script
from tests.system.server import Server, until

pytestmark = pytest.mark.xdist_group("launched engines")


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    folder = tmp_path_factory.mktemp("launched")
    section = (
        '[models.large]\nruntime = "launched"\nengine = "vllm"\nmodel = "some/model"\n'
        f'executable = "{script(folder)}"\ncontext = 512\nslots = 2\nload_timeout_s = 20\n'
        f'args = ["--token-s", "0.01", "--pids", "{folder}/pids"]\n'
        '[models.nowhere]\nruntime = "echo"\ndevices = ["cuda:99"]\n'
    )
    server = Server(folder, section)
    try:
        server.start()
        server.until_ready("large")
        yield server
    finally:
        server.close()
        engine = int((folder / "pids").read_text().split()[0])
        until(lambda: not Path(f"/proc/{engine}").exists(), what=lambda: "the engine ends too")


def test_it_answers_as_any_model_does(server: Server) -> None:
    server.until_answers("large")
    reply = server.chat("large", "one two three").raise_for_status().json()
    assert reply["choices"][0]["message"]["content"] == "one two three"
    assert reply["usage"]["completion_tokens"] == 3
    assert reply["usage"]["prompt_tokens_details"]["cached_tokens"] == 3
    assert len(list(server.stream("large", "one two three"))) > 3


def test_what_its_engine_counts_is_in_the_metrics(server: Server) -> None:
    server.until_answers("large")
    wanted = 'vllm:kv_cache_usage_perc{model_name="large"} 0.25'
    until(lambda: wanted in server.http.get("/metrics").text, what=lambda: wanted)
    assert "tiffin_machine_cores" in server.http.get("/metrics").text


def test_the_machine_is_in_the_status(server: Server) -> None:
    machine = until(lambda: server.http.get("/admin/v1/status").json().get("machine"))
    assert machine["devices"][0]["kind"] == "cpu"
    assert "nvidia" in machine["absent"] or len(machine["devices"]) > 1


def test_a_model_whose_device_is_not_there_says_so(server: Server) -> None:
    def reason() -> str:
        models = server.http.get("/admin/v1/status").json()["models"]
        return next(str(model["reason"]) for model in models if model["name"] == "nowhere")

    # Without the bindings nobody can tell what there is.
    until(lambda: re.search(r"no device cuda:99|cuda:99 can't be seen", reason()), what=reason)


def test_nothing_personal_that_it_prints_is_logged(server: Server) -> None:
    log = (server.folder.logs / "tiffin.jsonl").read_text()
    assert "the engine says" in log
    assert "jane.doe" not in log


def test_an_engine_that_dies_is_started_again(server: Server) -> None:
    server.until_answers("large")
    before = server.until_ready("large").pid
    engine = int((server.config.parent / "pids").read_text().split()[0])
    os.kill(engine, signal.SIGKILL)
    server.until_ready("large", after_pid=before)
    server.until_answers("large")


def test_what_the_client_leaves_ends_in_the_engine(server: Server) -> None:
    server.until_answers("large")
    events = server.stream("large", "word " * 90)
    for _ in range(3):
        next(events)
    events.close()  # type: ignore[attr-defined]
    quiet = 'tiffin_engine_requests_running{model_name="large"} 0'
    until(lambda: quiet in server.http.get("/metrics").text, what=lambda: quiet)
    until(lambda: server.in_flight() == 0, what=server.explain)
