"""What a person who runs `tiffin serve` gets to see, and its plain form for pipes and files."""

import contextlib
import queue
import threading
from collections.abc import Callable, Sequence
from functools import partial
from typing import Protocol, Self, TextIO

import msgspec


class Download(msgspec.Struct, frozen=True, kw_only=True):
    """One file on its way: bytes had and bytes in all (0 where unknown)."""

    name: str
    done_bytes: int
    total_bytes: int = 0


class Console(Protocol):
    """Takes the news of a running server."""

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


class PatientConsole:
    """Hands everything on to another console from a thread of its own.

    So a terminal that is paused or a pipe that nobody reads delays nobody: at most `LONGEST_QUEUE`
    calls wait, later ones are dropped; a console that fails is left alone. As a context it gives
    what waits a second to be seen.
    """

    LONGEST_QUEUE = 256

    def __init__(self, console: Console) -> None:
        self._console = console
        self._waiting: queue.Queue[Callable[[], None] | None] = queue.Queue(self.LONGEST_QUEUE)
        self._thread = threading.Thread(target=self._work, name="console", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        with contextlib.suppress(queue.Full):
            self._waiting.put(None, timeout=0.5)
        self._thread.join(0.5)

    def settle(self, within_s: float = 0.5) -> None:
        """Wait until what was said so far is shown, no longer than that."""
        shown = threading.Event()
        self._put(shown.set)
        shown.wait(within_s)

    def line(self, text: str) -> None:
        """See `Console.line`."""
        self._put(partial(self._console.line, text))

    def serving(self, address: str) -> None:
        """See `Console.serving`."""
        self._put(partial(self._console.serving, address))

    def downloads(self, items: Sequence[Download]) -> None:
        """See `Console.downloads`."""
        self._put(partial(self._console.downloads, items))

    def _put(self, call: Callable[[], None]) -> None:
        with contextlib.suppress(queue.Full):
            self._waiting.put_nowait(call)

    def _work(self) -> None:
        while (call := self._waiting.get()) is not None:
            # The terminal or pipe has gone away.
            with contextlib.suppress(OSError, ValueError):
                call()
