"""What every store of accounts promises."""

from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from tiffin.adapters.stores.migrations import MIGRATIONS
from tiffin.adapters.stores.sqlite import SqliteAccounts
from tiffin.errors import Unavailable
from tiffin.ports.accounts import Accounts, Batch, Closing, Opening, Position, Query
from tiffin.telemetry.events import Attempt, Closed, Opened, Outcome
from tiffin.types.usage import Usage


@pytest.fixture(params=["sqlite"])
async def store(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Accounts]:
    made: dict[str, Callable[[], SqliteAccounts]] = {
        "sqlite": lambda: SqliteAccounts(tmp_path / "tiffin.db")
    }
    accounts = made[request.param]()
    yield accounts
    accounts.close()


def opening(name: str, tenant: str = "t") -> Opening:
    return Opening(id=name, at_ns=10, tenant=tenant, key="k", endpoint="chat", trace_id="ab")


def closing(name: str, outcome: str = "ok", at_ns: int = 20) -> Closing:
    usage = Usage(prompt_tokens=3, completion_tokens=5, cached_tokens=1, queue_ns=7, device_ns=9)
    return Closing(
        id=name, at_ns=at_ns, outcome=outcome, status=200, model="chat", duration_ns=9, usage=usage
    )


def batch(
    offset: int = 1,
    *,
    settled: tuple[str, ...] = (),
    opened: tuple[str, ...] = (),
    closed: tuple[str, ...] = (),
) -> Batch:
    return Batch(
        epoch="ep",
        position=Position(segment=1, offset=offset),
        settled=[(opening(name), closing(name)) for name in settled],
        opened=[opening(name) for name in opened],
        closed=[closing(name) for name in closed],
    )


async def ids(store: Accounts) -> list[str]:
    return [entry.id for entry in reversed(await store.entries(Query()))]


async def test_an_entry_says_all_that_the_events_said(store: Accounts) -> None:
    attempt = Attempt(
        n=1, target="chat", started_ns=11, ended_ns=19, status=500, error="run_failed"
    )
    began = Opened(
        id="a",
        at_ns=10,
        tenant="t",
        key="k",
        endpoint="chat",
        trace_id="ab",
        client_id="c",
        project="p",
        end_user="u",
        tag="w",
    )
    ended = Closed(
        id="a",
        at_ns=20,
        outcome=Outcome.PARTIAL,
        status=200,
        error="upstream_failed",
        model="best",
        revision="sha256:00",
        snapshot=4,
        cache="miss",
        duration_ns=9,
        ttft_ns=5,
        usage=Usage(
            prompt_tokens=3,
            completion_tokens=5,
            prepare_ns=6,
            rows=7,
            pages=8,
            pixels=9,
            audio_ms=10,
            reasoning_tokens=4,
            measured=False,
        ),
        cost_pico=11,
        loss_pico=12,
        currency="INR",
        retried_ns=13,
        target="cloud",
        upstream=True,
        end_user="u",
        attempts=[attempt],
    )
    decode = msgspec.json.Decoder(Opening | Closing).decode
    pair = decode(msgspec.json.encode(began)), decode(msgspec.json.encode(ended))
    await store.absorb(Batch("ep", Position(), settled=[pair]))  # type: ignore[list-item]
    (entry,) = await store.entries(Query())
    for event in (began, ended):
        told = msgspec.structs.asdict(event)
        for name in told.keys() & set(entry.__struct_fields__) - {"outcome", "attempts"}:
            assert getattr(entry, name) == told[name], name
    assert (entry.outcome, entry.opened_ns, entry.closed_ns) == ("partial", 10, 20)
    used = msgspec.structs.asdict(ended.usage)
    del used["reason"]  # which is for metrics and for who asked
    for name, quantity in used.items():
        assert getattr(entry, name) == quantity, name
    assert msgspec.json.decode(entry.attempts, type=list[Attempt]) == [attempt]


async def test_whom_it_was_for_may_be_known_at_its_end_only(store: Accounts) -> None:
    began = Opening(id="a", at_ns=1, tenant="t", key="k")
    ended = Closing(id="a", at_ns=2, outcome="ok", end_user="u-4711")
    await store.absorb(Batch("ep", Position(), settled=[(began, ended)]))
    (entry,) = await store.entries(Query())
    assert entry.end_user == "u-4711"


async def test_an_account_may_close_in_a_later_batch(store: Accounts) -> None:
    await store.absorb(batch(opened=("a", "b"), settled=("c",)))
    assert await ids(store) == ["c"]
    await store.absorb(batch(2, closed=("a",)))
    assert await ids(store) == ["c", "a"]
    assert (await store.entries(Query(id="a")))[0].tenant == "t"
    assert await store.positions() == {"ep": Position(segment=1, offset=2)}


async def test_a_closing_that_comes_again_makes_no_second_entry(store: Accounts) -> None:
    await store.absorb(batch(settled=("a",), closed=("a",)))
    await store.absorb(batch(opened=("b",)))
    await store.absorb(batch(closed=("a", "b", "b")))
    await store.absorb(batch(closed=("b",)))
    assert await ids(store) == ["a", "b"]
    assert sum(total.requests for total in await store.totals()) == 2


async def test_a_closing_without_an_opening_is_an_entry_of_nobody(store: Accounts) -> None:
    await store.absorb(batch(closed=("a",)))
    (entry,) = await store.entries(Query())
    assert (entry.id, entry.tenant, entry.opened_ns) == ("a", "", 11)


async def test_what_an_epoch_left_open_is_lost_once(store: Accounts) -> None:
    await store.absorb(batch(opened=("a", "b")))
    assert await store.abandon("ep", 30) == 2
    assert await store.abandon("ep", 40) == 0
    lost = await store.entries(Query(outcome="lost"))
    assert [(entry.id, entry.closed_ns) for entry in lost] == [("b", 30), ("a", 30)]
    await store.forget("ep")
    assert await store.positions() == {}


async def test_entries_are_asked_for_newest_first(store: Accounts) -> None:
    pairs = [
        (opening(str(n), tenant=f"t{n % 2}"), closing(str(n), "ok" if n % 3 else "failed"))
        for n in range(12)
    ]
    await store.absorb(Batch("ep", Position(), settled=pairs))
    newest = await store.entries(Query(limit=2))
    assert [entry.id for entry in newest] == ["11", "10"]
    older = await store.entries(Query(limit=2, before=newest[-1].seq))
    assert [entry.id for entry in older] == ["9", "8"]
    found = await store.entries(Query(tenant="t1", outcome="failed", model="chat"))
    assert [entry.id for entry in found] == ["9", "3"]


@pytest.mark.parametrize(
    ("asked", "found"),
    [
        ({"tenant": "acme"}, "b"),
        ({"project": "p"}, "a"),
        ({"key": "mine"}, "b"),
        ({"end_user": "u"}, "a"),
        ({"tag": "t"}, "a"),
        ({"endpoint": "embedding"}, "b"),
        ({"model": "small"}, "a"),
        ({"outcome": "failed"}, "b"),
        ({"error": "run_failed"}, "b"),
        ({"id": "a"}, "a"),
        ({"trace_id": "ab"}, "a"),
        ({"slower_ms": 3}, "b"),
        ({"slower_ms": 2}, "ba"),
        ({"after": 1}, "b"),
        ({"before": 2}, "a"),
        ({"tenant": "acme", "slower_ms": 2, "after": 1, "before": 3}, "b"),
        ({"tenant": "acme", "model": "small"}, ""),
    ],
)
async def test_entries_are_asked_for_by_what_they_are(
    store: Accounts, asked: dict[str, Any], found: str
) -> None:
    a = Opening(id="a", at_ns=1, tenant="t", key="k", endpoint="chat", trace_id="ab", project="p")
    b = Opening(id="b", at_ns=1, tenant="acme", key="mine", endpoint="embedding")
    a = msgspec.structs.replace(a, end_user="u", tag="t")
    one = Closing(id="a", at_ns=9, outcome="ok", model="small", duration_ns=2_000_000)
    two = Closing(id="b", at_ns=9, outcome="failed", error="run_failed", duration_ns=3_000_000)
    await store.absorb(Batch("ep", Position(), settled=[(a, one), (b, two)]))
    entries = await store.entries(Query(**asked))
    assert "".join(entry.id for entry in entries) == found


async def test_totals_add_up_and_stay_when_entries_go(store: Accounts) -> None:
    pairs = [(opening(str(n)), closing(str(n), "ok" if n else "failed")) for n in range(5)]
    await store.absorb(Batch("ep", Position(), settled=pairs))
    await store.absorb(Batch("ep", Position(), settled=[(opening("x"), closing("x"))]))
    assert await store.trim(before_ns=10**18, keep=0, at_most=100) == 6
    assert await ids(store) == []
    totals = {total.outcome: total for total in await store.totals()}
    assert totals["failed"].requests == 1
    assert totals["ok"].requests == 5
    assert totals["ok"].prompt_tokens == 15
    assert totals["ok"].completion_tokens == 25
    assert totals["ok"].device_ns == 45


@pytest.mark.parametrize(
    ("before_ns", "keep", "at_most", "left"),
    [
        pytest.param(0, 100, 100, "0123456789", id="nothing to do"),
        pytest.param(103, 100, 100, "3456789", id="too old"),
        pytest.param(0, 4, 100, "6789", id="too many"),
        pytest.param(103, 4, 2, "23456789", id="a little at a time"),
        pytest.param(200, 0, 100, "", id="all"),
    ],
)
async def test_trimming_takes_the_oldest(
    store: Accounts, before_ns: int, keep: int, at_most: int, left: str
) -> None:
    pairs = [(opening(str(n)), closing(str(n), at_ns=100 + n)) for n in range(10)]
    await store.absorb(Batch("ep", Position(), settled=pairs))
    gone = await store.trim(before_ns=before_ns, keep=keep, at_most=at_most)
    assert gone == 10 - len(left)
    assert "".join(await ids(store)) == left


async def test_quantities_that_nothing_can_have_do_not_stop_the_rest(store: Accounts) -> None:
    wild = msgspec.structs.replace(closing("wild"), usage=Usage(prompt_tokens=10**30))
    pairs = [(opening("a"), closing("a")), (opening("wild"), wild)]
    await store.absorb(Batch("ep", Position(), settled=pairs))
    assert await ids(store) == ["a", "wild"]
    assert [entry.prompt_tokens for entry in await store.entries(Query())] == [0, 3]


async def test_an_unusable_file_is_unavailable_until_it_is_usable(tmp_path: Path) -> None:
    path = tmp_path / "tiffin.db"
    path.write_bytes(b"no database at all, " * 500)
    store = SqliteAccounts(path)
    with pytest.raises(Unavailable, match=r"tiffin\.db can't be used"):
        await store.absorb(batch(settled=("a",)))
    with pytest.raises(Unavailable):
        await store.entries(Query())
    path.unlink()
    await store.absorb(batch(settled=("a",)))
    assert await ids(store) == ["a"]
    store.close()


async def test_entries_of_the_release_before_are_kept(tmp_path: Path) -> None:
    import sqlite3

    path = tmp_path / "tiffin.db"
    db = sqlite3.connect(path)
    db.executescript(MIGRATIONS[0] + "PRAGMA user_version = 1;")
    db.execute("INSERT INTO heading VALUES (1, 't', 'k', 'chat', 'm', 'r', 'ok', 200, '', '')")
    row = "(NULL, 'old', 1, 10, 20, 9, 5, 7, 8, 3, 5, 1, 1, 4, '', '', '[]')"
    db.execute(f"INSERT INTO account VALUES {row}")
    db.commit()
    db.close()
    store = SqliteAccounts(path)
    await store.absorb(batch(settled=("new",)))
    assert await ids(store) == ["old", "new"]
    assert {entry.rows for entry in await store.entries(Query())} == {0}
    store.close()


async def test_a_file_of_a_newer_release_is_left_alone(tmp_path: Path) -> None:
    import sqlite3

    path = tmp_path / "tiffin.db"
    db = sqlite3.connect(path)
    db.execute("PRAGMA user_version = 999")
    db.close()
    store = SqliteAccounts(path)
    with pytest.raises(Unavailable, match="newer Tiffin"):
        await store.positions()
    store.close()


async def test_a_failed_batch_leaves_nothing_behind(tmp_path: Path) -> None:
    store = SqliteAccounts(tmp_path / "tiffin.db")
    await store.absorb(batch(settled=("a",)))
    broken = msgspec.structs.replace(closing("b"), model=object())
    with pytest.raises(Unavailable):
        await store.absorb(
            Batch(
                "ep",
                Position(offset=9),
                settled=[(opening("c"), closing("c", "failed")), (opening("b"), broken)],
            )
        )
    assert await ids(store) == ["a"]
    assert await store.positions() == {"ep": Position(segment=1, offset=1)}
    await store.absorb(batch(3, settled=("c",)))
    assert sum(total.requests for total in await store.totals()) == 2
    store.close()
