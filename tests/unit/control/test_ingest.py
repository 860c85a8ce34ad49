"""Every opened account ends as exactly one entry (L1), whoever dies in between."""

import asyncio
from collections.abc import Mapping
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TypeVar

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tiffin.adapters.stores.sqlite import SqliteAccounts
from tiffin.control.ingest import Ingest
from tiffin.errors import Unavailable
from tiffin.ports.accounts import Accounts, Batch, Entry, Position, Query, Total
from tiffin.telemetry.events import Closed, Opened, Outcome
from tiffin.telemetry.journal import Journal, segment_path, segments
from tiffin.telemetry.metrics import Meter
from tiffin.testing.clock import FakeClock

T = TypeVar("T")


class Died(Exception):
    """Control is killed here."""


class Mortal:
    """Accounts whose user dies at the n-th write, just before it (odd) or just after it (even)."""

    def __init__(self, inner: Accounts, death: int = 0) -> None:
        self._inner = inner
        self._left = death

    async def positions(self) -> Mapping[str, Position]:
        return await self._inner.positions()

    async def absorb(self, batch: Batch) -> None:
        self._live()
        await self._inner.absorb(batch)
        self._live()

    async def abandon(self, epoch: str, at_ns: int) -> int:
        self._live()
        lost = await self._inner.abandon(epoch, at_ns)
        self._live()
        return lost

    async def forget(self, epoch: str) -> None:
        self._live()
        await self._inner.forget(epoch)
        self._live()

    async def trim(self, *, before_ns: int, keep: int, at_most: int) -> int:
        return await self._inner.trim(before_ns=before_ns, keep=keep, at_most=at_most)

    async def entries(self, query: Query) -> list[Entry]:
        return await self._inner.entries(query)

    async def totals(self) -> list[Total]:
        return await self._inner.totals()

    def _live(self) -> None:
        self._left -= 1
        if self._left == 0:
            raise Died


class Site:
    """A folder with writers that live and die, and control that reads behind them."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.store = SqliteAccounts(folder / "tiffin.db")
        self.journals: dict[int, Journal] = {}
        self.running: dict[int, list[str]] = {0: [], 1: []}
        self.ends: dict[str, str] = {}
        self.epochs: dict[int, str] = {}

    def journal(self, writer: int) -> Journal:
        if writer not in self.journals:
            self.epochs[writer] = epoch = f"ep_{writer}_{len(self.ends)}"
            self.journals[writer] = Journal(self.folder / "journal", epoch, segment_bytes=1000)
        return self.journals[writer]

    def open(self, writer: int) -> None:
        name = f"req_{len(self.ends)}"
        self.journal(writer).open(Opened(id=name, at_ns=1, tenant="t", key="k", endpoint="chat"))
        self.running[writer].append(name)
        self.ends[name] = "lost"

    def close(self, writer: int) -> None:
        if self.running[writer]:
            name = self.running[writer].pop(0)
            self.journal(writer).close(Closed(id=name, at_ns=2, outcome=Outcome.OK, status=200))
            self.ends[name] = "ok"

    def kill(self, writer: int) -> None:
        if writer in self.journals:
            self.journals.pop(writer).shut()
            epoch = self.epochs[writer]
            numbers = segments(self.folder / "journal").get(epoch)
            if numbers:
                # It died in the middle of a line.
                path = segment_path(self.folder / "journal", epoch, numbers[-1])
                with path.open("ab") as file:
                    file.write(b'1234abcd {"type":"closed"')
            self.running[writer].clear()

    async def read(self, death: int = 0) -> None:
        """Let a control that was just started catch up, or die while it does."""
        store = Mortal(self.store, death)
        ingest = Ingest(self.folder / "journal", store, Meter("control", "ep"), FakeClock())
        try:
            await ingest.catch_up()
        except Died:
            self.store.close()
            self.store = SqliteAccounts(self.folder / "tiffin.db")


steps = st.lists(
    st.one_of(
        st.tuples(st.sampled_from(["open", "open", "close", "kill"]), st.integers(0, 1)),
        st.tuples(st.just("read"), st.integers(0, 6)),
    ),
    max_size=60,
)


@settings(max_examples=60, deadline=None)
@given(steps=steps)
def test_every_opened_account_ends_in_one_entry(steps: list[tuple[str, int]]) -> None:
    async def live(folder: Path) -> None:
        site = Site(folder)
        for step, number in steps:
            if step == "read":
                await site.read(death=number)
            else:
                getattr(site, step)(number)
        for writer in (0, 1):
            site.kill(writer)
        await site.read()
        entries = await site.store.entries(Query(limit=1000))
        totals = await site.store.totals()
        site.store.close()
        assert sorted((entry.id, entry.outcome) for entry in entries) == sorted(site.ends.items())
        assert sum(total.requests for total in totals) == len(site.ends)
        assert list((folder / "journal").iterdir()) == []

    with TemporaryDirectory() as name:
        asyncio.run(live(Path(name)))


@pytest.fixture
def site(tmp_path: Path) -> Site:
    return Site(tmp_path)


async def test_the_living_are_read_and_not_lost(site: Site) -> None:
    site.open(0)
    site.open(0)
    site.close(0)
    await site.read()
    assert [entry.outcome for entry in await site.store.entries(Query())] == ["ok"]
    site.store.close()
    site.kill(0)


async def test_segments_that_were_read_go_while_their_writer_lives(site: Site) -> None:
    for _ in range(20):
        site.open(0)
    assert len(list((site.folder / "journal").glob("*.journal"))) > 2
    await site.read()
    assert len(list((site.folder / "journal").glob("*.journal"))) == 1
    site.store.close()
    site.kill(0)


async def test_while_the_store_is_away_journals_wait(tmp_path: Path) -> None:
    site = Site(tmp_path)
    (tmp_path / "tiffin.db").write_bytes(b"this is not a database file" * 100)
    site.open(0)
    site.close(0)
    site.kill(0)
    meter, clock = Meter("control", "ep"), FakeClock()
    ingest = Ingest(tmp_path / "journal", site.store, meter, clock)
    clock.advance(30)
    with pytest.raises(Unavailable):
        await ingest.catch_up()
    assert ingest.behind_s == pytest.approx(30)
    assert list((tmp_path / "journal").glob("*.journal"))
    (tmp_path / "tiffin.db").unlink()
    assert await ingest.catch_up() == 2
    assert ingest.behind_s == pytest.approx(0)
    assert len(await site.store.entries(Query())) == 1
    site.store.close()


async def test_a_file_that_cannot_be_read_holds_nobody_up(site: Site) -> None:
    (site.folder / "journal" / "ep_0.000001.journal").mkdir(parents=True)
    site.open(1)
    site.close(1)
    site.kill(1)
    with pytest.raises(Unavailable, match="can't be read"):
        await site.read()
    assert [entry.outcome for entry in await site.store.entries(Query())] == ["ok"]
    site.store.close()


async def test_openings_whose_files_are_gone_are_lost(site: Site) -> None:
    site.open(0)
    await site.read()
    site.kill(0)
    for path in (site.folder / "journal").iterdir():
        path.unlink()
    await site.read()
    assert [entry.outcome for entry in await site.store.entries(Query())] == ["lost"]
    site.store.close()
