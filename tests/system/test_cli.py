"""The terminal's commands against a running server."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.system.server import KEY, Server, until

pytestmark = pytest.mark.xdist_group("cli")

MODELS = """
[models.chat-tiny]
runtime = "echo"

[models.broken]
runtime = "echo"
fail_load = "for this test"

[routes.best]
models = ["broken", "chat-tiny"]
"""


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    server = Server(tmp_path_factory.mktemp("cli"), MODELS)
    try:
        server.start()
        server.until_answers("chat-tiny")
        yield server
    finally:
        server.close()


def tiffin(server: Server, *words: str, key: str = KEY) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", "from tiffin.cli.main import run; run()", *words],
        cwd=server.folder.root,
        env=os.environ | {"TIFFIN_API_KEY": key, "TIFFIN__SERVER__DATA": str(server.folder.root)},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )


def test_an_answer_is_streamed_to_the_terminal(server: Server) -> None:
    done = tiffin(server, "chat", "hello there")
    assert (done.returncode, done.stdout) == (0, "hello there\n"), done.stderr


def test_the_models_that_a_key_may_use_are_listed(server: Server) -> None:
    listed = tiffin(server, "models", "list").stdout.split()
    assert set(listed) - {"other"} == {"best", "broken", "chat-tiny"}


@pytest.mark.parametrize(
    ("words", "key", "said"),
    [
        pytest.param(("-m", "nothing"), KEY, "nothing", id="unknown model"),
        pytest.param(("-m", "broken"), KEY, "broken", id="failed model"),
        pytest.param((), "sk-nobody-has-this", "API key", id="unknown key"),
    ],
)
def test_a_refusal_is_one_line_that_says_why(
    server: Server, words: tuple[str, ...], key: str, said: str
) -> None:
    done = tiffin(server, "chat", *words, "hello", key=key)
    assert done.returncode == 1
    assert len(done.stderr.splitlines()) == 1
    assert said in done.stderr


def test_status_shows_models_processes_and_accounts(server: Server) -> None:
    tiffin(server, "chat", "hello")
    wanted = (
        server.status().address,
        "chat-tiny",
        "for this test",
        "gateway",
        "tries broken",
        " ok ",
    )

    def missing() -> list[str]:
        shown = tiffin(server, "status").stdout
        return [words for words in wanted if words not in shown]

    until(lambda: not missing(), what=lambda: f"without {missing()}\n{server.explain()}")


def test_status_as_json_and_through_the_public_port(server: Server) -> None:
    address = server.status().address
    here = json.loads(tiffin(server, "status", "--json").stdout)
    there = json.loads(tiffin(server, "status", "--json", "--url", address).stdout)
    assert here["status"]["config_hash"] == there["status"]["config_hash"] != ""


def test_a_configuration_is_applied_and_a_wrong_one_changes_nothing(
    server: Server, tmp_path: Path
) -> None:
    path = tmp_path / "new.toml"
    path.write_text(server.config.read_text() + '\n[routes.other]\nmodels = ["chat-tiny"]\n')
    done = tiffin(server, "apply", str(path))
    assert done.returncode == 0, done.stderr
    assert "changed: routes.other" in done.stdout
    path.write_text("[routes.other]\nmodels = ['nowhere']\n")
    wrong = tiffin(server, "apply", str(path))
    assert wrong.returncode == 1
    assert "routes.other.models" in wrong.stderr
    assert until(lambda: "other" in tiffin(server, "models", "list").stdout, what=server.explain)


def test_status_without_control_says_what_is_known(server: Server) -> None:
    socket = server.folder.run / "control.sock"
    away = socket.rename(socket.with_name("away"))  # as if nobody listened
    try:
        done = tiffin(server, "status")
    finally:
        away.rename(socket)
    assert done.returncode == 0, done.stderr
    assert "control doesn't answer" in done.stdout
    assert "gateway" in done.stdout
