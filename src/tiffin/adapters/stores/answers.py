"""Answers that may be given again, in a SQLite file of their own; satisfies
`ports.cache.CacheStore`.

Several processes share it. It may be deleted while none of them runs.
"""

import contextlib
import os
import sqlite3
import time
from collections.abc import Sequence
from hashlib import sha256
from pathlib import Path
from sqlite3 import Connection
from typing import Any

from tiffin.adapters.stores.connection import BUSY_S, SqliteThread, transaction
from tiffin.ports.cache import PURGED_NS, Holding, Near, Room, Stored, Which

VERSION = 3
EXPIRE_AT_ONCE = 1000
CHECKPOINT_TRIES = 50
FIND_AT_ONCE = 500

_COLUMNS = "tenant, key, model, begun_ns, fresh_ns, gone_ns, content, scope, asked"
# `held` is what `entry` comes to by tenant, in the same step as every change.
_SCHEMA = """
    CREATE TABLE entry (
        seq INTEGER PRIMARY KEY AUTOINCREMENT, tenant TEXT NOT NULL, key BLOB NOT NULL,
        model TEXT NOT NULL, begun_ns INTEGER NOT NULL, fresh_ns INTEGER NOT NULL,
        gone_ns INTEGER NOT NULL, content BLOB NOT NULL, scope BLOB NOT NULL, asked BLOB NOT NULL,
        bytes INTEGER NOT NULL
    );
    CREATE UNIQUE INDEX entry_key ON entry (tenant, key);
    CREATE INDEX entry_age ON entry (tenant, seq);
    CREATE INDEX entry_scope ON entry (tenant, scope, seq) WHERE scope != x'';
    CREATE INDEX entry_gone ON entry (gone_ns);
    CREATE TABLE purged (
        at_ns INTEGER NOT NULL, tenant TEXT NOT NULL, model TEXT NOT NULL, key BLOB NOT NULL
    );
    CREATE INDEX purged_at ON purged (at_ns);
    CREATE TABLE held (tenant TEXT PRIMARY KEY, entries INTEGER NOT NULL, bytes INTEGER NOT NULL);
    CREATE TRIGGER entry_came AFTER INSERT ON entry BEGIN
        INSERT INTO held VALUES (new.tenant, 1, new.bytes) ON CONFLICT (tenant)
            DO UPDATE SET entries = entries + 1, bytes = bytes + excluded.bytes;
    END;
    CREATE TRIGGER entry_went AFTER DELETE ON entry BEGIN
        UPDATE held SET entries = entries - 1, bytes = bytes - old.bytes
            WHERE tenant = old.tenant;
        DELETE FROM held WHERE tenant = old.tenant AND entries = 0;
    END;
"""


class SqliteCacheStore:
    """The store in one file, which is made when something is first kept or looked for."""

    def __init__(self, path: Path, room: Room) -> None:
        self._path = path
        self._room = room
        self._writer = SqliteThread(path, "cache-write", connect)
        self._reader = SqliteThread(path, "cache-read", connect)

    async def find(self, tenant: str, keys: Sequence[bytes]) -> list[Stored]:
        """What is kept there, however old."""

        def read(db: Connection) -> list[Stored]:
            found: list[Stored] = []
            for start in range(0, len(keys), FIND_AT_ONCE):
                some = keys[start : start + FIND_AT_ONCE]
                marks = ", ".join("?" * len(some))
                text = f"SELECT {_COLUMNS} FROM entry WHERE tenant = ? AND key IN ({marks})"  # noqa: S608
                found += map(_entry, db.execute(text, (tenant, *some)))
            return found

        return await self._reader.run(read)

    async def near(self, tenant: str, scope: bytes, at_most: int) -> list[Near]:
        """Entries of a scope."""

        def read(db: Connection) -> list[Near]:
            rows = db.execute(
                "SELECT key, asked FROM entry WHERE tenant = ? AND scope = ? AND scope != x''"
                " ORDER BY seq DESC LIMIT ?",
                (tenant, scope, at_most),
            )
            return [Near(key, asked) for key, asked in rows]

        return await self._reader.run(read)

    async def keep(self, entries: Sequence[Stored]) -> None:
        """Keep these."""

        def write(db: Connection) -> None:
            with transaction(db):
                for entry in entries:
                    self._keep(db, entry)

        await self._writer.run(write)

    async def purge(self, which: Which, now_ns: int) -> int:
        """Remove these, and those that are being made."""
        wanted = {"tenant": which.tenant, "model": which.model, "key": which.key}
        given = {name: value for name, value in wanted.items() if value}
        where = " AND ".join(f"{name} = :{name}" for name in given) or "true"

        def delete(db: Connection) -> int:
            with transaction(db):
                mark = (now_ns, which.tenant, which.model, _marked(which.key))
                db.execute("INSERT INTO purged VALUES (?, ?, ?, ?)", mark)
                count = db.execute(f"DELETE FROM entry WHERE {where}", given).rowcount  # noqa: S608
            _leave_nothing(db)
            return count

        return await self._writer.run(delete)

    async def expire(self, now_ns: int) -> int:
        """Remove what is gone by now."""

        def delete(db: Connection) -> int:
            total = 0
            db.execute("DELETE FROM purged WHERE at_ns <= ?", (now_ns - PURGED_NS,))
            text = f"SELECT seq FROM entry WHERE gone_ns <= ? LIMIT {EXPIRE_AT_ONCE}"  # noqa: S608
            while gone := db.execute(text, (now_ns,)).fetchall():
                with transaction(db):
                    db.executemany("DELETE FROM entry WHERE seq = ?", gone)
                total += len(gone)
            if total:
                _leave_nothing(db)
            return total

        return await self._writer.run(delete) if self._path.exists() else 0

    async def holdings(self) -> list[Holding]:
        """Who has how much."""

        def read(db: Connection) -> list[Holding]:
            rows = db.execute(
                "SELECT tenant, model, count(*), sum(bytes) FROM entry"
                " GROUP BY tenant, model ORDER BY tenant, model"
            )
            return [Holding(tenant=t, model=m, entries=n, bytes=size) for t, m, n, size in rows]

        return await self._reader.run(read) if self._path.exists() else []

    def close(self) -> None:
        """Give both connections back, after what they are doing."""
        self._reader.close()
        self._writer.close()

    def _keep(self, db: Connection, entry: Stored) -> None:
        db.execute("DELETE FROM entry WHERE tenant = ? AND key = ?", (entry.tenant, entry.key))
        if entry.size > self._room.bytes or _is_purged(db, entry):
            return
        values = (*(getattr(entry, name) for name in Stored.__struct_fields__), entry.size)
        marks = ", ".join("?" * len(values))
        db.execute(
            f"INSERT INTO entry ({_COLUMNS}, bytes) VALUES ({marks})",  # noqa: S608
            values,
        )
        while self._is_over(db):
            db.execute(
                "DELETE FROM entry WHERE seq IN (SELECT seq FROM entry WHERE tenant ="
                " (SELECT tenant FROM held ORDER BY bytes DESC LIMIT 1) ORDER BY seq LIMIT 1)"
            )

    def _is_over(self, db: Connection) -> bool:
        entries, size = db.execute("SELECT sum(entries), sum(bytes) FROM held").fetchone()
        return (entries or 0) > self._room.entries or (size or 0) > self._room.bytes


def connect(path: Path) -> Connection:
    """A connection to the file, which is made where it isn't there; one of another version is made
    anew, as is one that is damaged."""
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    try:
        return _opened(path)
    except sqlite3.DatabaseError as error:
        if isinstance(error, sqlite3.OperationalError):  # locked, or no disk: it may be well later
            raise
        for suffix in ("", "-wal", "-shm"):
            with contextlib.suppress(FileNotFoundError):
                os.unlink(f"{path}{suffix}")  # noqa: PTH108 - the suffix follows the whole name
        return _opened(path)


def _opened(path: Path) -> Connection:
    db = sqlite3.connect(path, timeout=BUSY_S, isolation_level=None, check_same_thread=False)
    try:
        db.execute("PRAGMA journal_mode = WAL")
        db.execute("PRAGMA synchronous = NORMAL")
        db.execute("PRAGMA secure_delete = ON")
        with transaction(db):
            version = int(db.execute("PRAGMA user_version").fetchone()[0])
            if version not in (0, VERSION):
                raise sqlite3.DatabaseError(f"it is of version {version}, not {VERSION}")
            if version == 0:
                for statement in _statements():
                    db.execute(statement)
                db.execute(f"PRAGMA user_version = {VERSION}")
    except BaseException:
        db.close()
        raise
    return db


def _marked(key: bytes) -> bytes:
    """A key as it is remembered that it was purged: it is itself one of the things that go."""
    return sha256(key).digest() if key else b""


def _is_purged(db: Connection, entry: Stored) -> bool:
    """Whether it would have been removed since its making began."""
    found = db.execute(
        "SELECT 1 FROM purged WHERE at_ns >= ? AND tenant IN ('', ?) AND model IN ('', ?)"
        " AND key IN (x'', ?) LIMIT 1",
        (entry.begun_ns, entry.tenant, entry.model, _marked(entry.key)),
    )
    return found.fetchone() is not None


def _entry(row: tuple[str | bytes | int, ...]) -> Stored:
    values: dict[str, Any] = dict(zip(Stored.__struct_fields__, row, strict=True))
    return Stored(**values)


def _statements() -> list[str]:
    found, current = [], ""
    for line in _SCHEMA.splitlines():
        current += line + "\n"
        if sqlite3.complete_statement(current):
            found.append(current)
            current = ""
    return found


def _leave_nothing(db: Connection) -> None:
    """Have the log of changes emptied: what it still has was deleted from the file already.

    Whoever reads at this moment delays it; reading takes milliseconds.
    """
    for _ in range(CHECKPOINT_TRIES):
        busy = db.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()[0]
        if not busy:
            return
        time.sleep(0.02)
    raise sqlite3.OperationalError("the log of changes is in use for long")
