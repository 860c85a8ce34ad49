"""A SQLite connection that lives in a thread of its own, and comes back when the file does."""

import asyncio
import sqlite3
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import TypeVar

from tiffin.adapters.stores.migrations import MIGRATIONS
from tiffin.errors import Unavailable

BUSY_S = 5.0
CHECKPOINT_PAGES = 4000

T = TypeVar("T")


class SqliteThread:
    """Runs work with a connection to one file, one piece after the other, never on the loop."""

    def __init__(
        self,
        path: Path,
        name: str,
        connect: Callable[[Path], sqlite3.Connection] | None = None,
    ) -> None:
        self._path = path
        self._connect = connect or opened
        self._pool = ThreadPoolExecutor(1, thread_name_prefix=name)
        self._db: sqlite3.Connection | None = None

    async def run(self, work: Callable[[sqlite3.Connection], T]) -> T:
        """The result of the work; raises `Unavailable` where the database can't be used."""
        return await asyncio.get_running_loop().run_in_executor(self._pool, self._run, work)

    def close(self) -> None:
        """Close the connection after the work that was given."""
        self._pool.submit(self._drop)
        self._pool.shutdown()

    def _run(self, work: Callable[[sqlite3.Connection], T]) -> T:
        try:
            if self._db is None:
                self._db = self._connect(self._path)
            return work(self._db)
        except (sqlite3.Error, OSError) as cause:
            self._drop()
            message = f"the database {self._path} can't be used: {cause}"
            raise Unavailable(message, retry_after=1.0) from cause

    def _drop(self) -> None:
        if self._db is not None:
            self._db.close()
            self._db = None


def opened(path: Path) -> sqlite3.Connection:
    """A connection to the file, which is made and brought to the newest schema where needed."""
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    db = sqlite3.connect(path, timeout=BUSY_S, isolation_level=None, check_same_thread=False)
    try:
        db.execute("PRAGMA journal_mode = WAL")
        db.execute("PRAGMA synchronous = NORMAL")
        db.execute(f"PRAGMA wal_autocheckpoint = {CHECKPOINT_PAGES}")
        _migrate(db)
    except BaseException:
        db.close()
        raise
    return db


@contextmanager
def transaction(db: sqlite3.Connection) -> Iterator[None]:
    """All of it or nothing."""
    db.execute("BEGIN IMMEDIATE")
    try:
        yield
    except BaseException:
        if db.in_transaction:
            db.execute("ROLLBACK")
        raise
    db.execute("COMMIT")


def _migrate(db: sqlite3.Connection) -> None:
    """Take the steps that the file lacks; raises `sqlite3.DatabaseError` for one of the future."""
    if _version(db) == len(MIGRATIONS):
        return
    with transaction(db):
        version = _version(db)
        if version > len(MIGRATIONS):
            raise sqlite3.DatabaseError(
                f"its schema {version} is of a newer Tiffin; this one knows {len(MIGRATIONS)}"
            )
        for step in MIGRATIONS[version:]:
            for statement in filter(str.strip, step.split(";")):
                db.execute(statement)
        db.execute(f"PRAGMA user_version = {len(MIGRATIONS)}")


def _version(db: sqlite3.Connection) -> int:
    return int(db.execute("PRAGMA user_version").fetchone()[0])
