"""Gateways follow the keyring's file while control changes it, and over its replacements."""

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tiffin.app.ring_follower import RingFollower
from tiffin.control.tenants.registry import Registry
from tiffin.control.tenants.ring_file import RingFile
from tiffin.errors import Unavailable
from tiffin.gateway.keyring import SLICE_LINES, Keyring
from tiffin.types.keyring import Line, Secret
from tiffin.types.snapshot import Principal


def put(name: str) -> Line:
    principal = Principal(tenant="t", key=name)
    return Line(do="secret", secret=Secret(digest=f"d-{name}", principal=principal))


def drop(name: str) -> Line:
    return Line(do="drop_secret", digest=f"d-{name}")


class Ring:
    """Control's side and a gateway's side of one file."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.registry = Registry()
        self.file = RingFile(path)
        self.load()
        self.keyring = Keyring()
        self.follower = RingFollower(path, self.keyring)

    def load(self) -> None:
        for line in self.file.load():
            self.registry.apply(line)

    def write(self, *lines: Line) -> None:
        if self.file.needs_rewriting(len(self.registry)):
            self.rewrite()
        self.file.append(lines)
        for line in lines:
            self.registry.apply(line)

    def rewrite(self) -> None:
        self.file.rewrite(list(self.registry.lines()))

    def names(self) -> set[str]:
        while self.follower.step():
            pass
        return {one.key for one in self.keyring.keys.values()}


@pytest.fixture
def ring(tmp_path: Path) -> Iterator[Ring]:
    ring = Ring(tmp_path / "keyring.jsonl")
    yield ring
    ring.follower.close()


def test_without_a_file_there_are_no_keys_and_that_is_known(ring: Ring) -> None:
    assert not ring.keyring.whole
    assert ring.names() == set()
    assert ring.keyring.whole


def test_changes_show_at_the_next_look(ring: Ring) -> None:
    ring.names()
    ring.write(put("a"), put("b"))
    assert ring.names() == {"a", "b"}
    ring.write(drop("a"))
    assert ring.names() == {"b"}


def test_who_was_read_keeps_what_it_was_given(ring: Ring) -> None:
    ring.write(put("a"))
    ring.names()
    before = ring.keyring.keys["d-a"]
    ring.write(drop("a"))
    ring.names()
    assert before == Principal(tenant="t", key="a")


def test_a_file_that_tells_again_what_is_known_isn_t_read_again(ring: Ring) -> None:
    ring.write(*(put(str(n)) for n in range(1000)))
    ring.names()
    known = ring.keyring.keys
    ring.rewrite()
    ring.write(put("new"))
    steps = 0
    while ring.follower.step():
        steps += 1
    assert steps <= 2
    assert ring.keyring.keys is known
    assert "d-new" in known


def test_what_came_just_before_a_replacement_is_read_from_the_old_file(ring: Ring) -> None:
    ring.write(put("a"))
    ring.names()
    known = ring.keyring.keys
    ring.write(put("b"), drop("a"))
    ring.rewrite()
    ring.write(put("c"))
    assert ring.names() == {"b", "c"}
    assert ring.keyring.keys is known


def test_while_another_file_is_read_what_was_known_is_in_force(ring: Ring) -> None:
    ring.write(*(put(str(n)) for n in range(3 * SLICE_LINES)))
    ring.names()
    other = Ring(ring.path)
    other.file.rewrite([])
    other.file = RingFile(ring.path.with_name("fresh"))
    other.registry = Registry()
    other.write(*(put(f"other-{n}") for n in range(3 * SLICE_LINES)))
    ring.path.with_name("fresh").replace(ring.path)
    ring.follower.step()
    ring.follower.step()
    assert "d-1" in ring.keyring.keys
    assert ring.keyring.whole
    assert ring.names() == {f"other-{n}" for n in range(3 * SLICE_LINES)}


def test_a_damaged_file_changes_nothing_and_another_mends_it(ring: Ring) -> None:
    ring.write(put("a"))
    assert ring.names() == {"a"}
    with ring.path.open("ab") as file:
        file.write(b"00000000 nonsense\n")
    assert ring.names() == {"a"}
    assert "checksum" in ring.keyring.fault
    ring.rewrite()
    ring.write(put("b"))
    assert ring.names() == {"a", "b"}
    assert not ring.keyring.fault


def test_a_gateway_that_starts_with_a_damaged_file_knows_that_it_knows_nothing(ring: Ring) -> None:
    ring.write(put("a"), put("b"))
    content = ring.path.read_bytes()
    ring.path.write_bytes(content.replace(b'"key":"a"', b'"key":"x"'))
    assert ring.names() == set()
    assert not ring.keyring.whole


def test_control_begins_again_where_it_ended(ring: Ring) -> None:
    ring.write(put("a"))
    ring.names()
    again = Ring(ring.path)
    again.write(put("b"))
    assert ring.names() == {"a", "b"}
    assert set(again.registry.keys["t"]) == {"a", "b"}


def test_a_line_that_a_crash_cut_is_as_if_it_had_never_been(ring: Ring) -> None:
    ring.write(put("a"))
    whole = ring.path.read_bytes()
    ring.write(put("b"))
    ring.path.write_bytes(ring.path.read_bytes()[:-10])
    assert ring.names() == {"a"}
    again = Ring(ring.path)
    assert ring.path.read_bytes() == whole
    again.write(put("c"))
    assert ring.names() == {"a", "c"}


def test_a_broken_line_in_the_middle_stops_changes_and_says_why(ring: Ring) -> None:
    ring.write(put("a"), put("b"))
    ring.path.write_bytes(ring.path.read_bytes().replace(b'"key":"a"', b'"key":"x"'))
    again = Ring(ring.path)
    assert "checksum" in again.file.fault
    with pytest.raises(Unavailable, match="can't be read"):
        again.file.append([put("c")])


def test_what_could_not_be_written_is_undone_by_a_file_that_begins_anew(ring: Ring) -> None:
    ring.write(put("a"))
    ring.names()
    ring.path.chmod(0o400)
    ring.path.rename(ring.path.with_name("away"))
    with pytest.raises(Unavailable, match="can't be written"):
        ring.file.append([put("b")])
    assert ring.file.needs_rewriting(len(ring.registry))
    ring.write(put("c"))
    assert ring.names() == {"a", "c"}


def test_a_hundred_thousand_keys_come_in_short_slices(ring: Ring) -> None:
    for n in range(100_000):
        ring.registry.apply(put(f"k{n}"))
    ring.rewrite()
    slices, longest, read = 0, 0.0, 0
    more = True
    while more:
        start = time.perf_counter()
        more = ring.follower.step()
        longest = max(longest, time.perf_counter() - start)
        slices += 1
        reader = ring.follower._reader
        assert len(reader.keys) - read <= SLICE_LINES
        read = len(reader.keys)
    assert len(ring.keyring.keys) == 100_000
    assert slices >= 100_000 / SLICE_LINES
    assert longest < 0.25  # milliseconds; what is left is for a machine that does something else
    ring.write(put("new"))
    assert ring.follower.step()
    assert "d-new" in ring.keyring.keys
