import io

from tiffin.app.console import Download, PlainConsole


def test_a_download_says_a_line_for_each_tenth() -> None:
    out = io.StringIO()
    console = PlainConsole(out)
    for done in range(0, 100_000_001, 1_000_000):
        console.downloads([Download(name="chat", done_bytes=done, total_bytes=100_000_000)])
    lines = out.getvalue().splitlines()
    assert len(lines) == 11
    assert lines[-1] == "fetching chat: 100 of 100 MB"


def test_a_download_of_unknown_size_is_said_once() -> None:
    out = io.StringIO()
    console = PlainConsole(out)
    for done in range(5):
        console.downloads([Download(name="chat", done_bytes=done)])
    assert out.getvalue() == "fetching chat: 0 MB\n"


def test_lines_are_plain() -> None:
    out = io.StringIO()
    PlainConsole(out).line("a")
    PlainConsole(out).serving("http://127.0.0.1:1")
    assert out.getvalue() == "a\nserving on http://127.0.0.1:1\n"
