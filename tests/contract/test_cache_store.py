"""What every store of answers promises."""

from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tiffin.adapters.stores.answers import SqliteCacheStore
from tiffin.gateway.cache.memory import MemoryCacheStore
from tiffin.ports.cache import AROUND_BYTES, PURGED_NS, CacheStore, Holding, Room, Stored, Which

ROOM = Room(entries=5, bytes=5 * AROUND_BYTES + 100)

Make = Callable[[], CacheStore]


@pytest.fixture(params=["memory", "sqlite"])
async def make(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Make]:
    made: list[CacheStore] = []

    def make() -> CacheStore:
        path = tmp_path / f"{len(made)}.db"
        sqlite = request.param == "sqlite"
        made.append(SqliteCacheStore(path, ROOM) if sqlite else MemoryCacheStore(ROOM))
        return made[-1]

    yield make
    for store in made:
        store.close()


def everything(folder: Path) -> bytes:
    """All bytes of all files there."""
    return b"".join(file.read_bytes() for file in folder.iterdir())


def stored(
    key: str,
    tenant: str = "a",
    model: str = "m",
    *,
    begun_ns: int = 1,
    gone_ns: int = 10,
    content: bytes = b"x",
    scope: bytes = b"",
) -> Stored:
    return Stored(
        tenant=tenant,
        key=key.encode(),
        model=model,
        begun_ns=begun_ns,
        fresh_ns=5,
        gone_ns=gone_ns,
        content=content,
        scope=scope,
        asked=b"asked " + key.encode() if scope else b"",
    )


async def one_of(store: CacheStore, tenant: str, key: str) -> Stored | None:
    return next(iter(await store.find(tenant, [key.encode()])), None)


async def test_an_entry_is_found_by_its_tenant_alone(make: Make) -> None:
    store = make()
    await store.keep([stored("k")])
    assert await one_of(store, "a", "k") == stored("k")
    assert await one_of(store, "b", "k") is None
    await store.keep([stored("k", content=b"newer")])
    assert await one_of(store, "a", "k") == stored("k", content=b"newer")
    assert await store.holdings() == [
        Holding(tenant="a", model="m", entries=1, bytes=AROUND_BYTES + 5)
    ]


async def test_several_are_kept_and_found_at_once(make: Make) -> None:
    store = make()
    kept = [stored("k1"), stored("k2"), stored("k3")]
    await store.keep([*kept, stored("k1", tenant="b")])
    found = await store.find("a", [b"k3", b"none", b"k1"])
    assert sorted(one.key for one in found) == [b"k1", b"k3"]
    assert {one.tenant for one in found} == {"a"}
    assert await store.find("a", []) == []


async def test_a_scope_has_its_tenants_newest(make: Make) -> None:
    store = make()
    await store.keep([stored(f"k{n}", scope=b"s") for n in range(3)])
    await store.keep([stored("other", scope=b"t"), stored("none")])
    assert [one.key for one in await store.near("a", b"s", 2)] == [b"k2", b"k1"]
    assert [one.asked for one in await store.near("a", b"t", 2)] == [b"asked other"]
    assert await store.near("b", b"s", 2) == []
    await store.purge(Which(key=b"k2"), 0)
    assert [one.key for one in await store.near("a", b"s", 9)] == [b"k1", b"k0"]


async def test_the_oldest_of_who_has_most_makes_room(make: Make) -> None:
    store = make()
    await store.keep([stored("quiet", tenant="b")])
    for n in range(8):
        await store.keep([stored(f"k{n}")])
    assert await one_of(store, "b", "quiet") is not None
    left = [n for n in range(8) if await one_of(store, "a", f"k{n}")]
    assert left == [4, 5, 6, 7]


async def test_what_is_larger_than_all_of_it_isnt_kept(make: Make) -> None:
    store = make()
    await store.keep([stored("small", tenant="b")])
    await store.keep([stored("k")])
    await store.keep([stored("k", content=b"x" * 2000)])
    assert await one_of(store, "a", "k") is None
    assert await one_of(store, "b", "small") is not None


@pytest.mark.parametrize(
    ("which", "left"),
    [
        (Which(tenant="a"), {"b1"}),
        (Which(model="n"), {"a1", "b1"}),
        (Which(tenant="a", key=b"a1"), {"a2", "b1"}),
        (Which(tenant="b", model="n"), {"a1", "a2", "b1"}),
        (Which(), set()),
    ],
    ids=["tenant", "model", "entry", "none", "all"],
)
async def test_a_purge_removes_what_was_named(make: Make, which: Which, left: set[str]) -> None:
    store = make()
    entries = [stored("a1"), stored("a2", model="n"), stored("b1", tenant="b")]
    for entry in entries:
        await store.keep([entry])
    assert await store.purge(which, 0) == 3 - len(left)
    assert {e.key.decode() for e in entries if await store.find(e.tenant, [e.key])} == left


@pytest.mark.parametrize(
    "which",
    [Which(), Which("a"), Which(model="m"), Which(key=b"k"), Which("a", "m", b"k")],
    ids=["all", "tenant", "model", "key", "entry"],
)
async def test_what_was_begun_before_a_purge_isnt_kept_after_it(make: Make, which: Which) -> None:
    store, other = make(), Which(tenant="b")
    await store.purge(which, 5)
    await store.purge(other, 5)
    await store.keep([stored("k", begun_ns=5)])
    assert await one_of(store, "a", "k") is None
    await store.keep([stored("k", begun_ns=6)])
    assert await one_of(store, "a", "k") is not None
    assert await store.holdings() != []


async def test_what_no_purge_has_named_is_kept(make: Make) -> None:
    store = make()
    for which in (Which("b"), Which(model="n"), Which(key=b"j"), Which("a", "n"), Which("b", "m")):
        await store.purge(which, 5)
    await store.keep([stored("k", begun_ns=1)])
    assert await one_of(store, "a", "k") is not None
    await store.expire(PURGED_NS + 5)
    await store.keep([stored("k", tenant="b", begun_ns=1)])
    assert await one_of(store, "b", "k") is not None, "a day later it is forgotten"


async def test_what_is_gone_is_removed(make: Make) -> None:
    store = make()
    await store.keep([stored("old", gone_ns=10)])
    await store.keep([stored("new", gone_ns=20)])
    assert (await store.expire(9), await store.expire(10)) == (0, 1)
    assert await one_of(store, "a", "old") is None
    assert await one_of(store, "a", "new") is not None


STEPS = st.lists(
    st.tuples(
        st.sampled_from("ab"), st.integers(0, 9), st.integers(0, 200), st.sampled_from("kkkpe")
    ),
    max_size=40,
)


@settings(
    max_examples=30,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(steps=STEPS)
async def test_bounds_hold_and_nothing_crosses_tenants(
    make: Make, steps: list[tuple[str, int, int, str]]
) -> None:
    store = make()
    latest: dict[tuple[str, bytes], bytes] = {}
    for n, (tenant, name, size, what) in enumerate(steps):
        key = b"%d" % name
        if what == "k":
            content = f"{tenant}:{n}:".encode() + b"x" * size
            await store.keep([stored(str(name), tenant, content=content, gone_ns=n + 10)])
            latest[tenant, key] = content
        elif what == "p":
            await store.purge(Which(tenant=tenant), 0)
            latest = {at: content for at, content in latest.items() if at[0] != tenant}
        else:
            await store.expire(n)
        held = await store.holdings()
        assert sum(one.entries for one in held) <= ROOM.entries
        assert sum(one.bytes for one in held) <= ROOM.bytes
    for tenant in "ab":
        for name in range(10):
            found = await one_of(store, tenant, str(name))
            if found is not None:
                assert found.content == latest[tenant, b"%d" % name]


async def test_processes_share_a_file_and_a_purge_leaves_nothing_in_it(tmp_path: Path) -> None:
    path, room = tmp_path / "cache.db", Room(entries=100, bytes=1 << 20)
    one, other = SqliteCacheStore(path, room), SqliteCacheStore(path, room)
    for n in range(20):
        await one.keep([stored(f"k{n}", content=b"SECRET-%d " % n * 500)])
    await one.keep([stored("kept", tenant="b", content=b"STAYS " * 500)])
    assert await one_of(other, "a", "k3") is not None
    assert b"SECRET" in everything(tmp_path)
    assert await other.purge(Which(tenant="a"), 0) == 20
    assert await one_of(one, "a", "k3") is None
    left = everything(tmp_path)
    assert b"SECRET" not in left
    assert b"STAYS" in left
    assert await one.expire(10) == 1
    assert b"STAYS" not in everything(tmp_path)
    one.close()
    other.close()


async def test_a_damaged_file_is_made_anew(tmp_path: Path) -> None:
    path = tmp_path / "cache.db"
    path.write_bytes(b"no database" * 1000)
    store = SqliteCacheStore(path, ROOM)
    await store.keep([stored("k")])
    assert await one_of(store, "a", "k") is not None
    store.close()
