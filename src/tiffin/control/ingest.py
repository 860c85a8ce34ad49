"""From journals to entries: every line once, whatever dies in between; lost where nobody closed.

An epoch whose lock is held is read up to its last whole line. One whose lock is free has ended: it
is read to the end, what it left open is lost, its files go. A segment that is read and not the
newest goes at once.
"""

import asyncio
from collections.abc import Sequence
from pathlib import Path

import msgspec

from tiffin.errors import Unavailable
from tiffin.ports.accounts import Accounts, Batch, Closing, Opening, Position
from tiffin.ports.clock import Clock
from tiffin.telemetry import epochs, journal
from tiffin.telemetry.metrics import Meter

CHUNK_BYTES = 1 << 20


class Ingest:
    """Reads all journals of a folder into a store; one task calls it.

    `behind_s` is for how long, in seconds, not everything that was written has been in the store.
    """

    def __init__(self, folder: Path, accounts: Accounts, meter: Meter, clock: Clock) -> None:
        self._folder = folder
        self._accounts = accounts
        self._clock = clock
        self._caught_up_ns = clock.now_ns()
        self._lines = meter.counter("tiffin_journal_lines_total", "Journal lines read")
        self._torn = meter.counter(
            "tiffin_journal_torn_lines_total", "Journal lines that made no sense"
        )
        self._lost = meter.counter("tiffin_journal_lost_total", "Accounts that nobody closed")
        self._lag = meter.gauge(
            "tiffin_ingest_lag_seconds", "Since everything written was in the store"
        )
        self._decode = msgspec.json.Decoder(Opening | Closing).decode

    @property
    def behind_s(self) -> float:
        """Seconds since everything that was written then was in the store."""
        return (self._clock.now_ns() - self._caught_up_ns) / 1e9

    async def catch_up(self) -> int:
        """Take in everything written until now; returns how many lines that was.

        Raises `Unavailable` where the store or the folder can't be used; what was taken in before
        stays, and the next call goes on from there.
        """
        began_ns = self._clock.now_ns()
        try:
            count = await self._every_epoch()
        except OSError as cause:
            raise Unavailable(f"the journals can't be read: {cause}", retry_after=1.0) from cause
        finally:
            self._lag.set(self.behind_s)
        self._caught_up_ns = began_ns
        self._lag.set(0)
        return count

    async def _every_epoch(self) -> int:
        self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        positions = await self._accounts.positions()
        found = journal.segments(self._folder)
        count = 0
        failure: OSError | None = None
        for epoch in found:
            try:
                with epochs.seize(self._folder / (epoch + journal.LOCK_SUFFIX)) as ended:
                    count += await self._epoch(epoch, positions.get(epoch, Position()), ended)
            except OSError as cause:
                # One file that can't be read must not hold up all that came after it.
                failure = failure or cause
        for epoch in positions.keys() - found.keys():
            await self._end(epoch)
        if failure is not None:
            raise failure
        return count

    async def _epoch(self, epoch: str, position: Position, ended: bool) -> int:
        # Listed only now that the lock is held, where it is: the writer may just have ended.
        numbers = journal.segments(self._folder).get(epoch, [])
        count = 0
        for number in numbers:
            path = journal.segment_path(self._folder, epoch, number)
            whole = ended or number < numbers[-1]
            if number >= position.segment:
                offset = position.offset if number == position.segment else 0
                count += await self._segment(epoch, number, offset, whole)
            if whole:
                path.unlink(missing_ok=True)
        if ended:
            await self._end(epoch)
        return count

    async def _segment(self, epoch: str, number: int, offset: int, whole: bool) -> int:
        """Take in a segment's lines from an offset on; `whole` says that no more will come."""
        path = journal.segment_path(self._folder, epoch, number)
        count = 0
        while True:
            stretch = await asyncio.to_thread(journal.read, path, offset, self._decode, CHUNK_BYTES)
            self._torn.add((), stretch.torn)
            if stretch.offset == offset:
                break
            offset = stretch.offset
            position = Position(segment=number, offset=offset)
            await self._accounts.absorb(paired(Batch(epoch, position), stretch.events))
            self._lines.add((), len(stretch.events))
            count += len(stretch.events)
        if whole and journal.rest(path, offset):
            self._torn.add()
        return count

    async def _end(self, epoch: str) -> None:
        """Whoever wrote this epoch is dead, and every line of it was taken in."""
        lost = await self._accounts.abandon(epoch, self._clock.now_ns())
        self._lost.add((), lost)
        (self._folder / (epoch + journal.LOCK_SUFFIX)).unlink(missing_ok=True)
        await self._accounts.forget(epoch)


def paired(batch: Batch, events: Sequence[Opening | Closing]) -> Batch:
    """The batch with these events, openings and closings of one account together."""
    opened: dict[str, Opening] = {}
    for event in events:
        if type(event) is Opening:
            opened[event.id] = event
        elif type(event) is Closing:
            opening = opened.pop(event.id, None)
            if opening is None:
                batch.closed.append(event)
            else:
                batch.settled.append((opening, event))
    batch.opened.extend(opened.values())
    return batch
