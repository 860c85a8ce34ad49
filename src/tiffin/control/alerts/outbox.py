"""What is still to be told, and what was: one file, replaced whole, so that both are true together.

Whoever dies after the file was written tells again what it had told and not yet struck out; by its
id the other side knows it. What can't be written isn't told either.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Final

import msgspec
from msgspec.structs import replace

from tiffin.control.alerts.marks import Mark, Marks
from tiffin.errors import Unavailable
from tiffin.telemetry import log
from tiffin.telemetry.metrics import Meter
from tiffin.types.ids import new_id
from tiffin.types.json_file import read_json
from tiffin.types.whole_file import replace_file

MOST: Final = 1000
"""Messages that wait; of more the oldest go."""

KEEP_MESSAGES_NS: Final = 7 * 86_400_000_000_000


class Message(msgspec.Struct, frozen=True, kw_only=True):
    """What `to`, an alert's name, is told; one thing has one `id`, whoever is told."""

    id: str
    to: str
    at_ns: int
    body: str


class Kept(msgspec.Struct, frozen=True, kw_only=True):
    """The file; `origin` is this installation's own, for ids that no other gives."""

    format: int = 1
    origin: str = msgspec.field(default_factory=lambda: new_id("alerts"))
    told: dict[str, Mark] = {}
    waiting: tuple[Message, ...] = ()


class Outbox:
    """One installation's messages. Methods that change it raise `Unavailable`, and nothing has
    changed then."""

    def __init__(self, path: Path, meter: Meter) -> None:
        self._path = path
        self._dropped = meter.counter(
            "tiffin_alerts_dropped_total", "Alerts that nobody took", ("alert", "reason")
        )
        self._waiting = meter.gauge("tiffin_alerts_waiting", "Alerts that wait to be taken")
        self._kept = Kept()

    @property
    def origin(self) -> str:
        """What tells this installation's messages from those of others."""
        return self._kept.origin

    @property
    def told(self) -> Marks:
        """What was told, or waits to be."""
        return self._kept.told

    @property
    def waiting(self) -> tuple[Message, ...]:
        """The messages that nobody has taken yet, the oldest first."""
        return self._kept.waiting

    def open(self) -> None:
        """Read what was left; a file that makes no sense is left behind, and said so."""
        try:
            self._kept = read_json(self._path, Kept)
        except FileNotFoundError:
            return
        except (OSError, msgspec.MsgspecError) as failure:
            log.error("what was alerted of is forgotten", path=str(self._path), error=str(failure))
        self._waiting.set(len(self._kept.waiting))

    def put(self, messages: Sequence[Message], told: Marks) -> None:
        """Keep messages, and what is told by them."""
        if not messages and told == self._kept.told:
            return
        everything = (*self._kept.waiting, *messages)
        gone, left = everything[:-MOST], everything[-MOST:]
        self._write(replace(self._kept, told=dict(told), waiting=left))
        self._drop(gone, "full")

    def strike(self, message: Message) -> None:
        """Somebody has taken it."""
        left = tuple(one for one in self._kept.waiting if one != message)
        self._write(replace(self._kept, waiting=left))

    def tidy(self, receivers: Sequence[str], now_ns: int) -> None:
        """Let go of messages that are too old, and of those for somebody who isn't there."""
        old = tuple(one for one in self.waiting if one.at_ns < now_ns - KEEP_MESSAGES_NS)
        lost = tuple(one for one in self.waiting if one.to not in receivers)
        gone = {*old, *lost}
        if gone:
            left = tuple(one for one in self.waiting if one not in gone)
            self._write(replace(self._kept, waiting=left))
            self._drop(lost, "no such alert")
            self._drop([one for one in old if one not in lost], "too old")

    def _drop(self, messages: Sequence[Message], reason: str) -> None:
        for one in messages:
            self._dropped.add((one.to, reason))
            log.warning("an alert was dropped", alert=one.to, id=one.id, reason=reason)

    def _write(self, kept: Kept) -> None:
        try:
            replace_file(self._path, msgspec.json.encode(kept))
        except OSError as cause:
            raise Unavailable(f"alerts can't be kept: {cause}", retry_after=1.0) from cause
        self._kept = kept
        self._waiting.set(len(kept.waiting))
