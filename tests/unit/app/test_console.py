import io
import threading
from collections.abc import Sequence

from tiffin.app.console import Download, PatientConsole, PlainConsole


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


class PausedConsole:
    """A terminal that takes nothing until it goes on, and then fails for some lines."""

    def __init__(self) -> None:
        self.goes_on = threading.Event()
        self.seen: list[str] = []

    def line(self, text: str) -> None:
        assert self.goes_on.wait(10)
        if text == "fail":
            raise OSError("hung up")
        self.seen.append(text)

    def serving(self, address: str) -> None:
        self.line(address)

    def downloads(self, items: Sequence[Download]) -> None:
        self.line(items[0].name)


def test_a_paused_terminal_delays_nobody() -> None:
    paused = PausedConsole()
    with PatientConsole(paused) as console:
        console.serving("http://here")
        console.downloads([Download(name="chat", done_bytes=1)])
        console.line("fail")
        for n in range(10_000):
            console.line(str(n))
        assert paused.seen == []
        paused.goes_on.set()
    assert paused.seen[:3] == ["http://here", "chat", "0"]
    assert len(paused.seen) <= PatientConsole.LONGEST_QUEUE + 1
