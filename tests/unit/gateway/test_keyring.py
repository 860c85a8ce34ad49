"""The keyring's lines, read in slices."""

import pytest

from tiffin.gateway.keyring import SLICE_LINES, RingReader, head_of
from tiffin.types.keyring import MAX_LINE_BYTES, Damaged, Head, Line, Secret, spelled
from tiffin.types.snapshot import Principal


def put(n: int, name: str = "") -> bytes:
    principal = Principal(tenant="t", key=name or f"k{n}")
    return spelled(Line(n=n, do="secret", secret=Secret(digest=f"d{n}", principal=principal)))


def drop(n: int, digest: str) -> bytes:
    return spelled(Line(n=n, do="drop_secret", digest=digest))


def reader(past: int = 0, serial: int = 0) -> RingReader:
    found = RingReader()
    found.begin(Head(epoch="e", serial=serial, lines=past, bytes=0), 0)
    return found


def test_keys_come_and_go() -> None:
    ring = reader()
    assert ring.feed(put(1) + put(2) + drop(3, "d1")) == 3
    assert [one.key for one in ring.keys.values()] == ["k2"]


def test_a_slice_is_bounded_whatever_stands_there() -> None:
    ring = reader()
    text = b"".join(put(n) for n in range(1, 3 * SLICE_LINES))
    assert ring.feed(text) == SLICE_LINES
    assert len(ring.keys) == SLICE_LINES
    assert ring.feed(text[ring.offset :]) == SLICE_LINES


def test_a_line_without_its_end_waits() -> None:
    ring = reader()
    whole = put(1) + put(2)
    assert ring.feed(whole[:-5]) == 1
    assert ring.feed(whole[ring.offset : -5]) == 0
    assert ring.feed(whole[ring.offset :]) == 1


def test_the_past_has_numbers_of_its_own_and_changes_follow_its_serial() -> None:
    ring = reader(past=2, serial=40)
    assert ring.feed(put(1) + put(2) + put(41)) == 3
    assert ring.serial == 41


@pytest.mark.parametrize(
    "text",
    [
        pytest.param(put(2), id="a line is missing"),
        pytest.param(put(1).replace(b"k1", b"k9"), id="a line was changed"),
        pytest.param(b"%08x nonsense\n" % 0, id="no line at all"),
        pytest.param(b"x" * MAX_LINE_BYTES, id="a line without end"),
    ],
)
def test_what_was_not_written_so_is_not_taken(text: bytes) -> None:
    with pytest.raises(Damaged):
        reader().feed(text)


def test_unknown_kinds_of_lines_and_fields_are_passed_over() -> None:
    import zlib

    text = b'{"n":1,"do":"later","secret":null,"more":{"x":1}}'
    ring = reader()
    assert ring.feed(b"%08x %b\n" % (zlib.crc32(text), text)) == 1
    assert not ring.keys


def test_a_head_says_where_it_ends() -> None:
    head = Head(epoch="e", serial=3, lines=2, bytes=100)
    line = spelled(head)
    assert head_of(line + b"rest") == (head, len(line))
    assert head_of(line[:-1]) is None
    with pytest.raises(Damaged, match="newer"):
        head_of(spelled(Head(ring=9, epoch="e", serial=0, lines=0, bytes=0)))
