"""The log of idempotency keys: whole after a kill, the same for every gateway, and bounded."""

import os
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tiffin.adapters.stores.key_log import FolderKeyLog
from tiffin.adapters.stores.segments import HEAD_BYTES, SegmentWriter, records
from tiffin.errors import NotFound, TiffinError, Unavailable
from tiffin.gateway.idempotency import register as register_module
from tiffin.gateway.idempotency.keys import Bounds, Wanted
from tiffin.gateway.idempotency.register import KeptAnswer, Register
from tiffin.ports.key_log import Fact, Standing
from tiffin.ports.vault import Label, Vault
from tiffin.testing.clock import FakeClock

KIB = 1024
Make = Callable[..., FolderKeyLog]


def fact(seq: int, standing: Standing = Standing.RUNNING, epoch: str = "a") -> Fact:
    return Fact(
        seq=seq,
        standing=standing,
        scope=b"%032d" % seq,
        fingerprint=b"f" * 32,
        tenant="acme",
        request=f"req_{seq}",
        epoch=epoch,
        at_ns=1,
    )


@pytest.fixture
def make(tmp_path: Path) -> Iterator[Make]:
    logs: list[FolderKeyLog] = []

    def make(epoch: str, max_bytes: int = 1 << 24, segment_bytes: int = 64 * KIB) -> FolderKeyLog:
        logs.append(FolderKeyLog(tmp_path, epoch, max_bytes=max_bytes, segment_bytes=segment_bytes))
        return logs[-1]

    yield make
    for log in logs:
        log.shut()


def everything(log: FolderKeyLog, most: int = 7) -> list[Fact]:
    found: list[Fact] = []
    while told := log.read(most):
        assert len(told) <= most
        found += [one for one, _ in told]
    return found


def claim_all(log: FolderKeyLog, count: int) -> None:
    for seq in range(2, count):
        log.append(fact(seq))


def test_others_read_what_was_written_in_its_order_across_files(make: Make) -> None:
    writer, reader = make("a"), make("b")
    facts = [fact(n) for n in range(1, 500)]
    for number, one in enumerate(facts):
        writer.append(one, b"x" * 500 if number % 3 else b"")
        if number == 250:
            assert everything(reader) == facts[:251]
    assert everything(reader) == facts[251:]
    assert everything(reader) == everything(writer) == []
    assert len(list(reader._folder.glob("a.*.keys"))) > 3


def test_content_is_where_its_place_says(make: Make) -> None:
    writer, reader = make("a"), make("b")
    writer.append(fact(1), b"one")
    writer.append(fact(2), b"two" * 1000)
    places = [place for _, place in reader.read(10)]
    assert [reader.content(place) for place in places] == [b"one", b"two" * 1000]
    reader.drop(places[0].segment)
    with pytest.raises(Unavailable, match="No such file"):
        reader.content(places[0])


def test_only_one_has_the_turn(make: Make) -> None:
    one, other = make("a"), make("b")
    with one.turn() as mine:
        assert mine
        with other.turn() as his:
            assert not his
    with other.turn() as his:
        assert his


def test_an_epoch_has_ended_when_nobody_holds_its_lock(make: Make) -> None:
    writer, reader = make("a"), make("b")
    writer.append(fact(1))
    everything(reader)
    assert reader.ended() == set()
    assert reader.movable() == []
    writer.shut()
    assert reader.ended() == {"a"}
    assert [[name for name, _ in queue] for queue in reader.movable()] == [["a.000001.keys"]]
    reader.drop("a.000001.keys")
    assert {path.name for path in reader._folder.iterdir()} <= {"turn.lock"}
    assert reader.ended() == {"a"}


def test_without_room_claims_and_answers_are_refused_and_small_facts_are_not(
    make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = make("a")
    log.append(fact(1))

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    log._allocate = full
    with pytest.raises(Unavailable, match="No space left"):
        claim_all(log, 1000)
    with pytest.raises(Unavailable):
        log.append(fact(1, Standing.DONE), b"x" * 20 * KIB)
    for seq in range(2, 40):
        log.append(fact(seq, Standing.RELEASED))
    reader = make("b")
    assert [one.seq for one in everything(reader)][-38:] == list(range(2, 40))


def test_all_files_together_are_bounded(make: Make) -> None:
    log = make("a", max_bytes=256 * KIB)
    with pytest.raises(Unavailable, match="bound"):
        claim_all(log, 10_000)
    assert sum(path.stat().st_size for path in log._folder.iterdir()) <= 256 * KIB


@given(
    sizes=st.lists(st.tuples(st.integers(1, 2000), st.integers(0, 3000)), min_size=1, max_size=8),
    cut=st.integers(0, 10**6),
)
@settings(max_examples=60)
def test_of_a_file_that_was_cut_anywhere_every_whole_record_is_read(
    tmp_path_factory: pytest.TempPathFactory, sizes: list[tuple[int, int]], cut: int
) -> None:
    path = tmp_path_factory.mktemp("cut") / "a.000001.keys"
    writer = SegmentWriter(path, 1 << 20)
    written = [writer.store(b"f" * size, b"c" * more, 0) for size, more in sizes]
    used = writer.used
    writer.end()
    cut %= used + 1
    with path.open("r+b") as file:  # zeros, as where the writer hadn't come to yet
        file.truncate(cut)
        file.truncate(1 << 20)
    fd = os.open(path, os.O_RDONLY)
    try:
        found = list(records(fd, 0))
    finally:
        os.close(fd)
    whole = [record for record in written if record and record.offset + record.size <= cut]
    # One that was cut in its content looks whole: its writer stores the head last, so it can't be.
    assert found[: len(whole)] == whole
    assert all(record.fact in (b"", b"f" * len(record.fact)) for record in found)


def test_a_torn_fact_is_passed_over_and_what_follows_is_read(make: Make) -> None:
    writer, reader = make("a"), make("b")
    places = [writer.append(fact(n), b"content") for n in range(1, 4)]
    with (writer._folder / places[1].segment).open("r+b") as file:
        file.seek(places[1].offset + HEAD_BYTES + 3)
        file.write(b"\xff")
    assert [one.seq for one in everything(reader)] == [1, 3]


BOUNDS = Bounds(
    keep_ns=3_600_000_000_000,
    keys=200,
    bytes=4 << 20,
    tenant_keys=100,
    tenant_bytes=2 << 20,
    answer_bytes=4 * KIB,
)


class Clear:
    """A vault without keys."""

    def ready(self, tenant: str) -> bool:
        return True

    def prepare(self, tenant: str) -> None:
        pass

    def seal(self, label: Label, content: bytes) -> bytes:
        return msgspec.msgpack.encode([list(label), content])

    def open(self, label: Label, sealed: bytes) -> bytes:
        about, content = msgspec.msgpack.decode(sealed, type=tuple[Label, bytes])
        if about != label:
            raise NotFound("another label")
        return content


class World:
    """Up to two gateways on one folder, which are killed and started; and what really happened."""

    def __init__(self, folder: Path, vault: Vault | None = None) -> None:
        self.folder = folder
        self.vault = vault or Clear()
        self.clock = FakeClock()
        self.lives = 0
        self.gateways: list[Register] = []
        self.logs: dict[int, FolderKeyLog] = {}
        self.running: dict[int, tuple[int, Fact, bool]] = {}  # key: gateway, claim, paying
        self.answers: dict[int, bytes] = {}
        self.undecided: set[int] = set()
        self.start()
        self.start()

    def start(self) -> None:
        self.lives += 1
        log = FolderKeyLog(
            self.folder, f"ep_{self.lives:04d}", max_bytes=64 << 20, segment_bytes=32 * KIB
        )
        register = Register(log, self.vault, self.clock, BOUNDS)
        while register._read(50):
            pass
        register._bury()
        register._loaded = True
        self.logs[len(self.gateways)] = log
        self.gateways.append(register)

    def kill(self, who: int) -> None:
        """Its descriptors close, nothing else happens."""
        log = self.logs.pop(who)
        for fd in (log._lock, log._turn):
            if fd >= 0:
                os.close(fd)
        log._lock = log._turn = -1
        for key, (holder, _, paying) in list(self.running.items()):
            if holder == who:
                del self.running[key]
                if paying:
                    self.undecided.add(key)
        self.start()

    def claim(self, who: int, key: int) -> Fact | KeptAnswer | str:
        register = self.gateways[who]
        asks = Wanted(b"%032d" % key, b"f" * 32, "acme", f"req_{key}")
        with register._log.turn() as mine:
            assert mine
            try:
                return register._claim(asks)
            except TiffinError as error:
                return error.slug

    def living(self, chosen: int) -> int:
        return sorted(self.logs)[chosen % len(self.logs)]

    def close(self) -> None:
        for log in self.logs.values():
            log.shut()


STEP = st.tuples(
    st.sampled_from(("ask", "ask", "ask", "pay", "done", "fail", "kill", "tend")),
    st.integers(0, 1),
    st.integers(0, 4),
)


@given(steps=st.lists(STEP, max_size=60))
@settings(max_examples=80, deadline=None)
def test_whatever_is_killed_no_key_is_answered_twice_and_nothing_paid_is_run_again(
    tmp_path_factory: pytest.TempPathFactory, steps: list[tuple[str, int, int]]
) -> None:
    world = World(tmp_path_factory.mktemp("world"))
    try:
        for what, chosen, key in steps:
            act(world, what, world.living(chosen), key)
    finally:
        world.close()


def act(world: World, what: str, who: int, key: int) -> None:
    if what == "ask":
        found = world.claim(who, key)
        if key in world.running:
            assert found == "idempotency_key_in_use"
        elif key in world.answers:
            assert isinstance(found, KeptAnswer)
            assert found.body == world.answers[key]
        elif key in world.undecided:
            assert found == "indeterminate"
        else:
            assert isinstance(found, Fact)
            world.running[key] = (who, found, False)
    elif what == "kill":
        world.kill(who)
    elif what == "tend":
        world.gateways[who].tend()
    elif key in world.running:
        go_on(world, what, key)


def go_on(world: World, what: str, key: int) -> None:
    holder, claim, paying = world.running.pop(key)
    register = world.gateways[holder]
    if what == "pay":
        register.paying(claim)
        world.running[key] = (holder, claim, True)
    elif what == "done":
        body = world.answers[key] = os.urandom(3000)
        kept = KeptAnswer(request=claim.request, headers=[], body=body, streaming=False)
        register.keep(claim, kept)
    elif paying:
        world.undecided.add(key)
        register.lose(claim)
    else:
        register.release(claim)


def test_what_doesnt_count_any_more_is_given_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(register_module, "CROWDED_BYTES", 0)
    world = World(tmp_path)
    for round_ in range(40):
        for key in range(20):
            act(world, "ask", 0, 100 * round_ + key)
            act(world, "done" if key == 0 else "fail", 0, 100 * round_ + key)
        for _ in range(4):
            world.gateways[0].tend()
    size = sum(path.stat().st_size for path in tmp_path.glob("*.keys"))
    assert size < 2 * 40 * 3500 + 3 * 32 * KIB
    world.kill(0)
    for round_ in range(40):
        act(world, "ask", 2, 100 * round_)
    world.clock.advance(3600)
    for _ in range(40):
        world.gateways[2].tend()
    assert [path.name for path in tmp_path.glob("ep_0001.*")] == []
    world.close()


def test_what_counts_and_was_moved_stays_where_it_is(tmp_path: Path) -> None:
    world = World(tmp_path)
    for key in range(495):
        claim = world.claim(0, key)
        assert isinstance(claim, Fact)
        (world.gateways[0].release if key % 5 else world.gateways[0].lose)(claim)
    world.kill(0)
    for _ in range(60):
        world.gateways[2].tend()
    # Ninety-nine keys are a little more than one file: they were moved once.
    names = sorted(path.name for path in tmp_path.glob("*.keys"))
    assert names == ["ep_0003.000001.keys", "ep_0003.000002.keys"]
    world.close()


async def test_reading_what_was_there_lets_others_run(tmp_path: Path) -> None:
    world = World(tmp_path)
    for key in range(90):
        act(world, "ask", 0, key)
        act(world, "done", 0, key)
    log = FolderKeyLog(tmp_path, "ep_new", max_bytes=1 << 24)
    register = Register(log, Clear(), world.clock, BOUNDS)
    with pytest.raises(Unavailable, match="still being read"):
        await register.claim(Wanted(b"s", b"f", "acme", "req"))
    await register.load()
    assert register.keys.all.keys == 90
    log.shut()
    world.close()
