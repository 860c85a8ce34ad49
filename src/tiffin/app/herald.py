"""Tells the console and the log what happens to a supervisor's processes."""

import logging
from collections.abc import Sequence

from tiffin.app.console import Console, Download
from tiffin.app.keeper import News
from tiffin.control.fleet.status import ProcessStatus, State

_LOG = logging.getLogger("tiffin.supervisor")


class Herald:
    """The news of one supervisor; it says once that it serves, unless that was `served` before."""

    def __init__(self, console: Console, address: str, *, served: bool = False) -> None:
        self.address = address
        self._console = console
        self._served = served

    def say(self, line: str) -> None:
        """A line for whoever looks at the console."""
        self._console.line(line)

    def tell(self, news: News, status: ProcessStatus, delay_s: float) -> None:
        """What keepers call."""
        fields = {"child": status.name, "pid": status.pid}
        if news is News.STARTED:
            _LOG.info("process started", extra={"fields": fields})
        elif news is News.READY:
            _LOG.info("process ready", extra={"fields": {**fields, "ready_ms": status.ready_ms}})
            self._ready(status)
        else:
            ended = {**fields, "reason": status.explained, "delay_s": delay_s}
            _LOG.warning("process ended", extra={"fields": ended})
            self._console.line(_obituary(status, delay_s))

    def stopping(self) -> None:
        """The first TERM or INT has come."""
        _LOG.info("stopping")
        text = "stopping: answers that have begun are finished (again: stop at once)"
        self._console.line(text)

    def downloads(self, items: Sequence[Download]) -> None:
        """How far downloads have come."""
        self._console.downloads(items)

    def _ready(self, status: ProcessStatus) -> None:
        took = f"{status.ready_ms / 1000:.1f} s"
        if status.role == "gateway" and not self._served:
            self._served = True
            self._console.serving(self.address)
        elif status.role == "replica":
            self._console.line(f"model {status.model} is ready ({took})")
        elif status.restarts:
            self._console.line(f"{status.name} is back ({took})")


def _obituary(status: ProcessStatus, delay_s: float) -> str:
    what = f"model {status.model}" if status.model else status.name
    when = f"in {delay_s:.1f} s" if delay_s else "now"
    if status.state is State.FAILED:
        return f"{what} failed: {status.explained} (next try {when})"
    return f"{what} ended: {status.explained} (starting again {when})"
