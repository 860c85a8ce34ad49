"""What `tiffin serve` shows: in a terminal live progress bars, elsewhere plain lines."""

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TextIO

from rich.console import Console as Terminal
from rich.progress import (
    BarColumn,
    DownloadColumn,
    Progress,
    TaskID,
    TextColumn,
    TimeRemainingColumn,
    TransferSpeedColumn,
)

from tiffin.app.console import Console, Download, PlainConsole


@dataclass(frozen=True, slots=True)
class Welcome:
    """What a first request needs; `key` is empty where only its owner has it."""

    key: str
    model: str

    def lines(self, address: str) -> list[str]:
        """The address, the key and a command to copy."""
        body = (
            f'{{"model": "{self.model}", "stream": true, '
            '"messages": [{"role": "user", "content": "Say hello."}]}'
        )
        bearer = self.key or "$TIFFIN_API_KEY"
        return [
            "",
            f"Tiffin is serving on {address}    (OpenAI clients: base_url = {address}/v1)",
            f"Key: {self.key or 'one of the configuration; put yours in TIFFIN_API_KEY'}",
            "",
            "Try it in another terminal:",
            "",
            f"curl {address}/v1/chat/completions \\",
            f'  -H "Authorization: Bearer {bearer}" -H "Content-Type: application/json" \\',
            f"  -d '{body}'",
            "",
            "Stop with Ctrl-C; running answers finish first.",
            "",
        ]


class Lines:
    """Plain lines for pipes and files: no colours, and a tenth of a download at a time."""

    def __init__(self, out: TextIO, welcome: Welcome) -> None:
        self._plain = PlainConsole(out)
        self._welcome = welcome

    def line(self, text: str) -> None:
        """One line, at once."""
        self._plain.line(text)

    def serving(self, address: str) -> None:
        """The address, the key and a command to copy."""
        for text in self._welcome.lines(address):
            self._plain.line(text)

    def downloads(self, items: Sequence[Download]) -> None:
        """Now and then a line."""
        self._plain.downloads(items)


class Live:
    """A terminal: bars at the bottom while files come, the lines above them."""

    def __init__(self, terminal: Terminal, welcome: Welcome) -> None:
        self._terminal = terminal
        self._welcome = welcome
        self._bars: dict[str, TaskID] = {}
        # Drawn when there is news, so that no thread of its own runs beside the supervisor.
        self._progress = Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            DownloadColumn(),
            TransferSpeedColumn(),
            TimeRemainingColumn(),
            console=terminal,
            auto_refresh=False,
            transient=True,
        )

    def line(self, text: str) -> None:
        """One line above the bars."""
        self._terminal.print(text, markup=False, highlight=False, soft_wrap=True)

    def serving(self, address: str) -> None:
        """The address, the key and a command to copy."""
        for text in self._welcome.lines(address):
            bold = text.startswith("Tiffin")
            self._terminal.print(
                text,
                style="bold green" if bold else "",
                markup=False,
                highlight=False,
                soft_wrap=True,
            )

    def downloads(self, items: Sequence[Download]) -> None:
        """A bar for each file; they go when the last file has come."""
        if not items:
            self._progress.stop()
            return
        if not self._progress.live.is_started:
            self._progress.start()
        for item in items:
            if item.name not in self._bars:
                self._bars[item.name] = self._progress.add_task(item.name)
            total = item.total_bytes or None
            self._progress.update(self._bars[item.name], completed=item.done_bytes, total=total)
        for name in self._bars.keys() - {item.name for item in items}:
            self._progress.remove_task(self._bars.pop(name))
        self._progress.refresh()


def screen(welcome: Welcome) -> Console:
    """Bars where a person watches, lines where a program or a file does."""
    if sys.stdout.isatty():
        return Live(Terminal(), welcome)
    return Lines(sys.stdout, welcome)
