"""What the pages show is true: configuration is valid, commands exist, links lead somewhere."""

import re
import shlex
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest
import typer.main

from tests.docs.pages import ROOT, Block, blocks, commands, pages
from tiffin.cli import reference
from tiffin.cli.main import app
from tiffin.config.load import load_text

LANGUAGES = {"console", "toml", "python"}
ELSEWHERE = {"source", "sha256sum", "python3", "python", "pip", "printf", "git", "curl", "kill"}


def ids(items: Iterable[Any]) -> list[str]:
    return [str(item[0] if isinstance(item, tuple) else item) for item in items]


@pytest.mark.parametrize("block", blocks("toml"), ids=str)
def test_configuration_in_the_pages_is_valid(block: Block) -> None:
    load_text(block.text.encode(), {})


def command_at(words: list[str]) -> tuple[Any, list[str]]:
    """The command that words lead to, and the words that are left for it."""
    command: Any = typer.main.get_command(app)
    while words and words[0] in getattr(command, "commands", {}):
        command = command.commands[words[0]]
        words = words[1:]
    return command, words


@pytest.mark.parametrize(("block", "line"), commands(), ids=ids(commands()))
def test_commands_in_the_pages_exist(block: Block, line: str) -> None:
    words = shlex.split(line.rpartition("|")[2] if "| tiffin" in line else line, comments=True)
    if words[0] == "make":
        targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
        assert {word for word in words[1:] if "=" not in word} <= targets
        words = next((shlex.split(w[5:]) for w in words if w.startswith("ARGS=")), [])
        words = ["tiffin", *words] if words else ["make"]
    words[0] = words[0].rpartition("/bin/")[2]  # of an environment that a page makes
    if words[0] == "tiffin":
        command, rest = command_at(words[1:])
        known = {name for item in command.params for name in (*item.opts, *item.secondary_opts)}
        known |= {"--help", "-h"}
        assert {word for word in rest if word.startswith("-")} <= known
        assert not hasattr(command, "commands") or {"--help", "--install-completion"} & set(rest)
    else:
        assert words[0] in ELSEWHERE | {"make"}


def test_every_decision_has_a_number_of_its_own_and_says_it() -> None:
    files = sorted((ROOT / "docs/decisions").glob("[0-9]*.md"))
    numbers = [int(path.name[:4]) for path in files]
    assert len(set(numbers)) == len(numbers)
    for number, path in zip(numbers, files, strict=True):
        assert path.read_text().startswith(f"# {number}. "), path.name


def test_code_blocks_are_of_a_kind_that_is_checked() -> None:
    fences = {
        f for page in pages() for f in re.findall(r"^```(\w+)\n", page.read_text(), re.MULTILINE)
    }
    assert fences <= LANGUAGES


@pytest.mark.parametrize("page", pages(), ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_somewhere(page: Path) -> None:
    for target in re.findall(r"\]\(([^)#]+)(?:#[^)]*)?\)", page.read_text()):
        if "://" not in target:
            assert (page.parent / target).exists(), target


@pytest.mark.parametrize("name", reference.PAGES)
def test_the_reference_is_fresh(name: str) -> None:
    written = (ROOT / "docs/reference" / name).read_text()
    assert written == reference.PAGES[name](), f"docs/reference/{name} is stale: run `make docs`"


def test_nothing_in_the_reference_is_left_over() -> None:
    there = {path.name for path in (ROOT / "docs/reference").iterdir()}
    assert there == set(reference.PAGES)
