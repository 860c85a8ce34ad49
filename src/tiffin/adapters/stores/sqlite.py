"""Accounts in SQLite: one file, one thread that writes and one that reads."""

from collections.abc import Callable, Mapping
from pathlib import Path
from sqlite3 import Connection
from typing import TypeVar

from tiffin.adapters.stores import account_rows as rows
from tiffin.adapters.stores.connection import SqliteThread, transaction
from tiffin.ports.accounts import Batch, Entry, Position, Query, Total

T = TypeVar("T")


class SqliteAccounts:
    """`Accounts` in one database file, which is made and migrated when it is first needed."""

    def __init__(self, path: Path) -> None:
        self._writer = SqliteThread(path, "accounts-write")
        self._reader = SqliteThread(path, "accounts-read")
        self._headings = rows.Headings()

    async def positions(self) -> Mapping[str, Position]:
        """How far every epoch has been read."""
        return await self._writer.run(rows.positions)

    async def absorb(self, batch: Batch) -> None:
        """Make entries of a batch and move its epoch's position, in one step."""
        try:
            await self._write(lambda db: rows.absorb(db, batch, self._headings))
        except OverflowError:
            await self._write(lambda db: rows.absorb(db, rows.sane(batch), self._headings))

    async def abandon(self, epoch: str, at_ns: int) -> int:
        """End what an epoch left open as lost."""
        return await self._write(lambda db: rows.abandon(db, epoch, at_ns, self._headings))

    async def forget(self, epoch: str) -> None:
        """Drop the position of an epoch."""
        await self._write(lambda db: db.execute("DELETE FROM position WHERE epoch = ?", (epoch,)))

    async def trim(self, *, before_ns: int, keep: int, at_most: int) -> int:
        """Delete the oldest entries."""
        return await self._write(lambda db: rows.trim(db, before_ns, keep, at_most))

    async def entries(self, query: Query) -> list[Entry]:
        """The entries that a query asks for."""
        return await self._reader.run(lambda db: rows.entries(db, query))

    async def totals(self) -> list[Total]:
        """Sums over all accounts since the beginning."""
        return await self._reader.run(rows.totals)

    def close(self) -> None:
        """Give both connections back, after what they are doing."""
        self._reader.close()
        self._writer.close()

    async def _write(self, work: Callable[[Connection], T]) -> T:
        def whole(db: Connection) -> T:
            try:
                with transaction(db):
                    return work(db)
            except BaseException:
                # Headings that this transaction added are gone with it.
                self._headings.clear()
                raise

        return await self._writer.run(whole)
