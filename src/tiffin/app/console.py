"""What a person who runs `tiffin serve` gets to see, and its plain form for pipes and files."""

from collections.abc import Sequence
from typing import Protocol, TextIO

import msgspec


class Download(msgspec.Struct, frozen=True, kw_only=True):
    """One file on its way: bytes had and bytes in all (0 where unknown)."""

    name: str
    done_bytes: int
    total_bytes: int = 0


class Console(Protocol):
    """Takes the news of a running server; its calls never wait for long."""

    def line(self, text: str) -> None:
        """A friendly line."""
        ...

    def serving(self, address: str) -> None:
        """The gateway answers now at this URL; said once."""
        ...

    def downloads(self, items: Sequence[Download]) -> None:
        """How far the files that are being fetched have come; empty when none is left."""
        ...


class PlainConsole:
    """Lines as they are; of a download only every tenth part."""

    def __init__(self, out: TextIO) -> None:
        self._out = out
        self._tenths: dict[str, int] = {}

    def line(self, text: str) -> None:
        """Write the line and let it be seen."""
        self._out.write(text + "\n")
        self._out.flush()

    def serving(self, address: str) -> None:
        """One line with the address."""
        self.line(f"serving on {address}")

    def downloads(self, items: Sequence[Download]) -> None:
        """A line for each tenth of a file."""
        for item in items:
            tenth = 10 * item.done_bytes // item.total_bytes if item.total_bytes else 0
            if self._tenths.get(item.name, -1) < tenth:
                self._tenths[item.name] = tenth
                total = f" of {item.total_bytes / 1e6:.0f}" if item.total_bytes else ""
                self.line(f"fetching {item.name}: {item.done_bytes / 1e6:.0f}{total} MB")
