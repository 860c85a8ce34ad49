"""What `tiffin serve` shows, in a terminal and elsewhere."""

import io
import json
import shlex

from rich.console import Console

from tiffin.app.console import Download
from tiffin.cli.screen import Lines, Live, Welcome

WELCOME = Welcome(key="sk-shown", model="chat-tiny")
ADDRESS = "http://127.0.0.1:8080"


def test_the_command_to_copy_is_one_that_works_when_pasted() -> None:
    lines = WELCOME.lines(ADDRESS)
    first = next(i for i, line in enumerate(lines) if line.startswith("curl"))
    words = shlex.split("\n".join(lines[first : first + 3]).replace("\\\n", " "))
    assert words[:2] == ["curl", f"{ADDRESS}/v1/chat/completions"]
    assert "Authorization: Bearer sk-shown" in words
    body = json.loads(words[words.index("-d") + 1])
    assert body["model"] == "chat-tiny"
    assert body["stream"] is True


def test_a_key_that_only_its_owner_has_is_taken_from_the_environment() -> None:
    text = "\n".join(Welcome(key="", model="chat").lines(ADDRESS))
    assert '"Authorization: Bearer $TIFFIN_API_KEY"' in text


def test_plain_lines_have_address_and_key_and_no_colours() -> None:
    out = io.StringIO()
    screen = Lines(out, WELCOME)
    screen.serving(ADDRESS)
    screen.line("chat-tiny is ready")
    text = out.getvalue()
    assert ADDRESS in text
    assert "sk-shown" in text
    assert text.endswith("chat-tiny is ready\n")
    assert "\033" not in text


def test_a_terminal_shows_bars_while_files_come_and_none_after() -> None:
    out = io.StringIO()
    terminal = Console(file=out, force_terminal=True, width=120)
    screen = Live(terminal, WELCOME)
    screen.downloads([Download(name="chat", done_bytes=50_000_000, total_bytes=100_000_000)])
    screen.line("[chat-tiny] is ready")
    assert "50.0/100.0 MB" in out.getvalue()
    assert "[chat-tiny] is ready" in out.getvalue()
    screen.downloads([Download(name="other", done_bytes=5)])
    screen.downloads([])
    before = len(out.getvalue())
    screen.line("done")
    assert "MB" not in out.getvalue()[before:]


def test_bars_come_back_for_a_later_download() -> None:
    out = io.StringIO()
    screen = Live(Console(file=out, force_terminal=True, width=120), WELCOME)
    screen.downloads([Download(name="first", done_bytes=1, total_bytes=2)])
    screen.downloads([])
    screen.downloads([Download(name="second", done_bytes=1, total_bytes=2)])
    screen.downloads([])
    assert "second" in out.getvalue()
