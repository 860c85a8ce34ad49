"""A log of idempotency keys that was damaged: nothing that was charged is run again unnoticed."""

import logging
import shutil
from collections.abc import Callable, Iterator
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.unit.adapters.stores.test_key_log import BOUNDS, KIB, Clear, World, act
from tiffin.adapters.stores.key_log import FolderKeyLog
from tiffin.adapters.stores.segments import HEAD_BYTES, MANY, SegmentWriter, records
from tiffin.errors import NotFound
from tiffin.gateway.idempotency.register import KeptAnswer, Register
from tiffin.ports.key_log import Fact
from tiffin.ports.vault import Label
from tiffin.testing.clock import FakeClock

STEPS = [
    *(("ask", 0, key) for key in range(6)),
    ("pay", 0, 1),
    ("done", 0, 1),
    ("done", 0, 2),
    ("pay", 0, 3),  # and is killed in the middle
    ("fail", 0, 4),
    ("kill", 0, 0),
    ("ask", 1, 6),
    ("done", 1, 6),
    ("ask", 1, 7),
    ("fail", 1, 7),
]
FRESH = 99


class Sealed(Clear):
    """A vault that knows its own content, as AES-GCM does."""

    def seal(self, label: Label, content: bytes) -> bytes:
        sealed = super().seal(label, content)
        return sha256(sealed).digest() + sealed

    def open(self, label: Label, sealed: bytes) -> bytes:
        if sha256(sealed[32:]).digest() != sealed[:32]:
            raise NotFound("isn't what was sealed")
        return super().open(label, sealed[32:])


class After:
    """What a gateway finds that starts on a damaged copy of a world's folder."""

    def __init__(self, folder: Path) -> None:
        self.world = World.__new__(World)
        self.world.clock = FakeClock()
        self.log = FolderKeyLog(folder, "ep_after", max_bytes=64 << 20, segment_bytes=32 * KIB)
        register = Register(self.log, Sealed(), self.world.clock, BOUNDS)
        while register._read(50):
            pass
        register._bury()
        register._loaded = True
        self.register = register
        self.world.gateways = [register]

    def __enter__(self) -> "After":
        return self

    def __exit__(self, *_: object) -> None:
        self.log.shut()

    def claim(self, key: int) -> Fact | KeptAnswer | str:
        return self.world.claim(0, key)


@pytest.fixture(autouse=True, scope="module")
def logged() -> Iterator[list[dict[str, Any]]]:
    """What is said, which is much."""
    told: list[dict[str, Any]] = []

    class Heard(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            told.append({"event": record.msg, **getattr(record, "fields", {})})

    ours, heard = logging.getLogger("tiffin"), Heard()
    ours.addHandler(heard)
    ours.propagate = False
    yield told
    ours.propagate = True
    ours.removeHandler(heard)


@pytest.fixture(scope="module")
def worlds(tmp_path_factory: pytest.TempPathFactory) -> dict[str, World]:
    """Folders of gateways that all were killed: as they left them, and after much was moved."""
    made = {}
    for name in ("killed", "moved"):
        world = World(tmp_path_factory.mktemp(name), Sealed())
        for what, who, key in STEPS:
            act(world, what, who, key)
        if name == "moved":
            world.gateways[2].tend()  # sees who has ended
            for _ in range(4):
                world.gateways[2].tend()
        for who in list(world.logs):
            world.kill(who)
        world.close()
        made[name] = world
    return made


def copy_of(world: World, folder: Path) -> Path:
    shutil.copytree(world.folder, folder)
    return folder


def facts_at(folder: Path) -> list[tuple[Path, int]]:
    """Every byte that was stored, by its file."""
    return [
        (path, offset)
        for path in sorted(folder.glob("*.keys"))
        for offset in range(len(path.read_bytes().rstrip(b"\0")) + HEAD_BYTES)
    ]


def check_nothing_runs_twice(world: World, after: After) -> None:
    for key, body in world.answers.items():
        found = after.claim(key)
        if isinstance(found, KeptAnswer):
            assert found.body == body
        else:
            assert found == "indeterminate"
    for key in world.undecided:
        assert after.claim(key) == "indeterminate"


@pytest.mark.parametrize("name", ["killed", "moved"])
@settings(max_examples=40, deadline=None)
@given(place=st.floats(0, 1, exclude_max=True), mask=st.integers(1, 255))
def test_of_any_flipped_byte_nothing_charged_runs_again_and_new_keys_are_taken(
    worlds: dict[str, World],
    tmp_path_factory: pytest.TempPathFactory,
    name: str,
    place: float,
    mask: int,
) -> None:
    world = worlds[name]
    folder = copy_of(world, tmp_path_factory.mktemp("flip") / "keys")
    bytes_ = facts_at(folder)
    flip(*bytes_[int(place * len(bytes_))], mask)
    with After(folder) as after:
        check_nothing_runs_twice(world, after)
        assert isinstance(after.claim(FRESH), Fact)
    shutil.rmtree(folder)


@settings(max_examples=60, deadline=None)
@given(
    place=st.floats(0, 1, exclude_max=True),
    length=st.integers(2, 4 * KIB),
    filling=st.sampled_from((b"\0", b"\xff", b"a\0\1")),
)
def test_where_a_whole_stretch_is_gone_what_nobody_knows_isnt_run(
    worlds: dict[str, World],
    tmp_path_factory: pytest.TempPathFactory,
    place: float,
    length: int,
    filling: bytes,
) -> None:
    world = worlds["killed"]
    folder = copy_of(world, tmp_path_factory.mktemp("stretch") / "keys")
    path, begin = (places := facts_at(folder))[int(place * len(places))]
    # Zeros to the end are what a file looks like to which nobody came: then nothing can be known.
    end = min(begin + length, last_record(path) if not filling.strip(b"\0") else 10**9)
    content = bytearray(path.read_bytes())
    gone = max(0, min(end, len(content)) - begin)
    content[begin : begin + gone] = (filling * (gone + 1))[:gone]
    path.write_bytes(content)
    with After(folder) as after:
        check_nothing_runs_twice(world, after)
    shutil.rmtree(folder)


def last_record(path: Path) -> int:
    with path.open("rb") as file:
        *_, last = records(file.fileno(), 0)
    return last.offset


def flip(path: Path, offset: int, mask: int = 0xFF) -> None:
    with path.open("r+b") as file:
        file.seek(offset)
        was = file.read(1)
        file.seek(offset)
        file.write(bytes([was[0] ^ mask]))


def test_where_keys_may_be_lost_new_ones_are_refused_until_they_were_old_and_it_is_said_once(
    worlds: dict[str, World], logged: list[dict[str, Any]], tmp_path: Path
) -> None:
    logged.clear()
    folder = copy_of(worlds["killed"], tmp_path / "keys")
    path = min(folder.glob("*.keys"))
    content = bytearray(path.read_bytes())
    content[0:600] = b"\xff" * 600
    path.write_bytes(content)
    with After(folder) as after:
        assert after.claim(FRESH) == "indeterminate"
        assert after.claim(FRESH + 1) == "indeterminate"
        after.register.tend()
        found_ns = after.log.damage["ep_0001"].at_ns
        left_ns = found_ns + BOUNDS.keep_ns - after.world.clock.now_ns()
        after.world.clock.advance(left_ns // 10**9 - 1)
        assert after.claim(FRESH) == "indeterminate"
        after.world.clock.advance(2)
        assert isinstance(after.claim(FRESH), Fact)
        assert path.exists()
        for _ in range(10):
            after.register.tend()
        assert not path.exists()
        assert after.log.damage == {}
    told = [one for one in logged if one["event"] == "idempotency_keys_damaged"]
    assert [(one["segment"], one["keys_lost"]) for one in told] == [(path.name, True)]


def test_a_file_that_is_set_aside_is_found_damaged_by_the_next_gateway_too(
    worlds: dict[str, World], tmp_path: Path
) -> None:
    folder = copy_of(worlds["killed"], tmp_path / "keys")
    path = min(folder.glob("*.keys"))
    path.write_bytes(b"\xff" * 900 + path.read_bytes()[900:])
    for _ in range(3):
        with After(folder) as after:
            for _ in range(6):
                after.register.tend()
            assert after.claim(FRESH) == "indeterminate"


def test_a_head_that_is_just_being_stored_is_waited_for(tmp_path: Path) -> None:
    path = tmp_path / "a.000001.keys"
    writer = SegmentWriter(path, 64 * KIB)
    writer.store(b"first", b"content", 0)
    second = writer.store(b"second", b"more", 0)
    assert second is not None
    head = bytes(writer._memory[second.offset : second.offset + HEAD_BYTES])
    half = head[:6] + b"\0" * (HEAD_BYTES - 6)
    writer._memory[second.offset : second.offset + HEAD_BYTES] = half
    with path.open("rb") as file:
        assert [one.fact for one in records(file.fileno(), 0)] == [b"first"]
        assert list(records(file.fileno(), second.offset)) == []
        writer._memory[second.offset : second.offset + HEAD_BYTES] = head
        assert [one.fact for one in records(file.fileno(), second.offset)] == [b"second"]
    writer.end()


Spoil = Callable[[bytearray, int], None]


def _flip_length(content: bytearray, at: int) -> None:
    content[at + 5] ^= 1


def _flip_length_sum(content: bytearray, at: int) -> None:
    content[at + 14] ^= 1


def _flip_fact(content: bytearray, at: int) -> None:
    content[at + HEAD_BYTES + 2] ^= 1


def _flip_both(content: bytearray, at: int) -> None:
    content[at] ^= 1
    content[at + HEAD_BYTES + 2] ^= 1


@pytest.mark.parametrize(
    ("spoil", "facts", "lost"),
    [
        (_flip_length, [b"first", b"second", b"third"], [0, 0, 0]),
        (_flip_length_sum, [b"first", b"second", b"third"], [0, 0, 0]),
        (_flip_fact, [b"first", b"", b"third"], [0, 1, 0]),
        (_flip_both, [b"first", b"", b"third"], [0, MANY, 0]),
    ],
    ids=["its length", "a checksum", "its fact", "its length and its fact"],
)
def test_what_follows_a_damaged_record_is_read(
    tmp_path: Path, spoil: Spoil, facts: list[bytes], lost: list[int]
) -> None:
    path = tmp_path / "a.000001.keys"
    writer = SegmentWriter(path, 64 * KIB)
    stored = [writer.store(fact, b"c" * 2000, 0) for fact in (b"first", b"second", b"third")]
    writer.end()
    content = bytearray(path.read_bytes())
    assert stored[1] is not None
    spoil(content, stored[1].offset)
    path.write_bytes(content)
    with path.open("rb") as file:
        found = list(records(file.fileno(), 0))
    assert [one.fact for one in found] == facts
    assert [one.lost for one in found] == lost
    assert [one.offset for one in found] == [one.offset for one in stored if one]
