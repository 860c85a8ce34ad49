"""The examples in the pages run: programs and commands, against a server with echo models."""

import os
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.docs.pages import ROOT, Block, blocks
from tests.system.server import KEY, Server
from tiffin.cli.screen import Welcome

pytestmark = pytest.mark.xdist_group("examples")

MODELS = """
[models.chat]
runtime = "echo"

[models.chat-tiny]
runtime = "echo"
"""
# Need a real file or network, or talk to a person.
NOT_RUN = ("tiffin serve", "tiffin --install", "tiffin models pull", "tiffin models show mine")
BIN = Path(sys.executable).parent


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    server = Server(tmp_path_factory.mktemp("examples"), MODELS)
    try:
        server.start()
        server.until_answers("chat")
        server.until_answers("chat-tiny")
        yield server
    finally:
        server.close()


def run(command: list[str], server: Server, cwd: Path) -> subprocess.CompletedProcess[str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith("TIFFIN")}
    ours = {
        "PATH": f"{BIN}:{kept['PATH']}",
        "HOME": str(cwd),
        "TIFFIN_API_KEY": KEY,
        "TIFFIN__SERVER__DATA": str(server.folder.root),
    }
    return subprocess.run(
        command,
        cwd=cwd,
        env=kept | ours,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )


@pytest.mark.parametrize("block", blocks("python"), ids=str)
def test_programs_run(block: Block, server: Server, tmp_path: Path) -> None:
    program = block.text.replace("http://127.0.0.1:8080", server.status().address)
    program = program.replace("sk-tiffin-...", KEY)
    done = run([sys.executable, "-c", program], server, tmp_path)
    assert done.returncode == 0, done.stderr
    assert "Name three colours." in done.stdout


def test_the_curl_that_the_server_prints_streams_an_answer(server: Server, tmp_path: Path) -> None:
    lines = Welcome(key=KEY, model="chat-tiny").lines(server.status().address)
    first = next(i for i, line in enumerate(lines) if line.startswith("curl"))
    done = run(["bash", "-c", "\n".join(lines[first : first + 3])], server, tmp_path)
    assert "data: [DONE]" in done.stdout, done.stderr


@pytest.mark.parametrize("page", ["README.md", "docs/tutorial/first-hour.md"])
def test_commands_run_in_their_order(page: str, server: Server, tmp_path: Path) -> None:
    for block in blocks("console"):
        if block.page != ROOT / page:
            continue
        for line in block.text.splitlines():
            words = shlex.split(line.removeprefix("$ "))
            if words[:2] == ["make", "run"]:
                words = ["tiffin", *shlex.split(words[2].removeprefix("ARGS="))]
            if words[0] != "tiffin" or " ".join(words).startswith(NOT_RUN):
                continue
            done = run(words, server, tmp_path)
            assert done.returncode == 0, f"{block}: {line}\n{done.stderr}"
            if words[1] == "init":  # what it wrote would fetch the real models
                (tmp_path / "tiffin.toml").write_text(server.config.read_text())
