"""The ledger in SQLite: the tables beside the accounts in one file, through a thread of its own."""

from collections.abc import Collection, Sequence
from pathlib import Path
from sqlite3 import Connection

from tiffin.adapters.stores import ledger_rows as rows
from tiffin.adapters.stores.connection import SqliteThread, transaction
from tiffin.ports.ledger import FIELDS, InvoiceLine, Moments, Ran, Span, Sum


class SqliteLedger:
    """`Ledger` in the database file that the accounts are in."""

    def __init__(self, path: Path) -> None:
        self._thread = SqliteThread(path, "ledger")

    async def sums(
        self,
        span: Span,
        *,
        fields: Collection[str] = FIELDS,
        daily: bool = False,
        offset_ns: int = 0,
    ) -> list[Sum]:
        """Everything that closed in a span."""
        offset = offset_ns if daily else None
        return await self._thread.run(lambda db: rows.sums(db, span, fields, offset))

    async def moments(self, span: Span, targets: Collection[str]) -> list[Moments]:
        """What fits of these models need to know."""
        return await self._thread.run(lambda db: rows.moments(db, span, targets))

    async def ran(self, lives: Sequence[Ran]) -> None:
        """Keep stretches of processes' lives."""

        def keep(db: Connection) -> None:
            with transaction(db):
                rows.keep_lives(db, lives)

        await self._thread.run(keep)

    async def lives(self, span: Span) -> list[Ran]:
        """The stretches that touch a span."""
        return await self._thread.run(lambda db: rows.lives(db, span))

    async def take_invoice(self, name: str, lines: Sequence[InvoiceLine]) -> bool:
        """Keep an invoice; false where it was there already."""

        def keep(db: Connection) -> bool:
            with transaction(db):
                return rows.keep_invoice(db, name, lines)

        return await self._thread.run(keep)

    async def invoiced(self, span: Span) -> list[InvoiceLine]:
        """The lines of all invoices that touch a span."""
        return await self._thread.run(lambda db: rows.invoiced(db, span))

    async def trim(self, *, before_ns: int) -> None:
        """Delete sums and lives that ended before a moment."""

        def cut(db: Connection) -> None:
            with transaction(db):
                rows.trim(db, before_ns)

        await self._thread.run(cut)

    def close(self) -> None:
        """Give the connection back, after what it is doing."""
        self._thread.close()
