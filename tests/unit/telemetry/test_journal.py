"""The journal: what was accepted is read, whatever the disk and the reader's moment do."""

import errno
import os
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.polling import until
from tiffin.errors import JournalUnavailable
from tiffin.telemetry.events import Attempt, Closed, Event, Opened, Outcome
from tiffin.telemetry.journal import Journal, read, segment_path, segments, total_bytes
from tiffin.types.usage import Usage

decode: Callable[[bytes], Event] = msgspec.json.Decoder(Opened | Closed).decode


def opened(name: str) -> Opened:
    return Opened(id=name, at_ns=1, tenant="t", key="k", endpoint="chat")


def closed(name: str) -> Closed:
    attempt = Attempt(n=1, target="m", started_ns=1, ended_ns=2, status=200)
    return Closed(
        id=name,
        at_ns=2,
        outcome=Outcome.OK,
        status=200,
        usage=Usage(prompt_tokens=3),
        attempts=[attempt],
    )


def everything(folder: Path, epoch: str = "ep") -> list[Event]:
    return [
        event
        for number in segments(folder).get(epoch, [])
        for event in read(segment_path(folder, epoch, number), 0, decode).events
    ]


def mended(journal: Journal) -> bool:
    journal.retry()
    return journal.writable


def accepts(journal: Journal, name: str) -> bool:
    """Whether an opening is taken."""
    try:
        journal.open(opened(name))
    except JournalUnavailable:
        return False
    return True


class Disk:
    """Blocks for files, except while it is told an error number."""

    def __init__(self) -> None:
        self.error = 0

    def allocate(self, fd: int, start: int, size: int) -> None:
        if self.error:
            raise OSError(self.error, os.strerror(self.error))
        os.posix_fallocate(fd, start, size)


def test_what_is_written_is_read(tmp_path: Path) -> None:
    journal = Journal(tmp_path, "ep")
    journal.open(opened("a"))
    journal.close(closed("a"))
    journal.shut()
    assert everything(tmp_path) == [opened("a"), closed("a")]


def test_reading_goes_on_where_it_ended_and_leaves_half_a_line(tmp_path: Path) -> None:
    journal = Journal(tmp_path, "ep")
    journal.open(opened("a"))
    path = segment_path(tmp_path, "ep", 1)
    first = read(path, 0, decode)
    assert read(path, first.offset, decode).offset == first.offset
    whole = path.read_bytes().rstrip(b"\0")
    with path.open("r+b") as file:
        file.seek(first.offset)
        file.write(whole[:-1])
        file.flush()
        assert read(path, first.offset, decode).events == []
        file.write(b"\n")
    assert read(path, first.offset, decode).events == [opened("a")]
    journal.shut()


def test_long_segments_turn_into_new_ones(tmp_path: Path) -> None:
    journal = Journal(tmp_path, "ep", segment_bytes=1000)
    for number in range(30):
        journal.open(opened(str(number)))
    assert len(segments(tmp_path)["ep"]) > 2
    assert all(path.stat().st_size <= 1000 for path in tmp_path.glob("*.journal"))
    assert everything(tmp_path) == [opened(str(number)) for number in range(30)]
    journal.shut()


def test_at_the_bound_work_is_refused_until_there_is_room(tmp_path: Path) -> None:
    journal = Journal(tmp_path, "ep", segment_bytes=1000, max_total_bytes=4000)
    count = 0
    while accepts(journal, str(count)):
        count += 1
    assert "the bound is reached" in journal.fault
    assert count > 10
    assert 3000 < total_bytes(tmp_path) <= 4000
    assert not journal.writable
    for number in range(count):
        journal.close(closed(str(number)))
    assert journal.pending == 0
    for number in segments(tmp_path)["ep"][:-1]:
        segment_path(tmp_path, "ep", number).unlink()
    until(lambda: mended(journal))
    journal.open(opened("more"))
    journal.shut()


@pytest.mark.parametrize("error", [errno.ENOSPC, errno.EIO])
def test_a_full_disk_refuses_openings_while_closings_have_room(tmp_path: Path, error: int) -> None:
    disk = Disk()
    journal = Journal(tmp_path, "ep", segment_bytes=2000, allocate=disk.allocate)
    journal.open(opened("first"))
    disk.error = error
    accepted = ["first"]
    while accepts(journal, str(len(accepted))):
        accepted.append(str(len(accepted)))
    assert journal.fault == os.strerror(error)
    for name in accepted:
        journal.close(closed(name))
    assert 0 < journal.pending < len(accepted)
    assert not journal.writable
    disk.error = 0
    until(lambda: mended(journal))
    journal.open(opened("after"))
    journal.shut()
    read_back = everything(tmp_path)
    assert [e.id for e in read_back if isinstance(e, Opened)] == [*accepted, "after"]
    assert [e.id for e in read_back if isinstance(e, Closed)] == accepted


def test_a_folder_that_cannot_be_used_is_tried_again(tmp_path: Path) -> None:
    folder = tmp_path / "journal"
    folder.write_text("in the way")
    journal = Journal(folder, "ep")
    with pytest.raises(JournalUnavailable, match=r"Not a directory|File exists"):
        journal.open(opened("a"))
    journal.close(closed("a"))
    folder.unlink()
    until(lambda: mended(journal))
    journal.shut()
    assert everything(folder) == [closed("a")]


def test_one_epoch_has_one_writer(tmp_path: Path) -> None:
    first = Journal(tmp_path, "ep")
    second = Journal(tmp_path, "ep")
    assert first.writable
    assert not second.writable
    first.shut()
    until(lambda: mended(second))
    second.open(opened("a"))
    second.shut()
    assert everything(tmp_path) == [opened("a")]


steps = st.lists(
    st.tuples(
        st.sampled_from(["open", "open", "close", "retry"]),
        st.sampled_from([0, 0, errno.ENOSPC, errno.EIO]),
    ),
    max_size=60,
)


@given(steps=steps)
def test_whatever_the_disk_does_exactly_the_accepted_is_read(steps: list[tuple[str, int]]) -> None:
    with TemporaryDirectory() as name:
        folder, disk = Path(name), Disk()
        journal = Journal(folder, "ep", segment_bytes=1200, allocate=disk.allocate)
        accepted: list[str] = []
        ended: list[str] = []
        for number, (step, disk.error) in enumerate(steps):
            if step == "open":
                try:
                    journal.open(opened(str(number)))
                except JournalUnavailable:
                    continue
                accepted.append(str(number))
            elif step == "close" and len(ended) < len(accepted):
                ended.append(accepted[len(ended)])
                journal.close(closed(ended[-1]))
            else:
                journal.retry()
        disk.error = 0
        journal.shut()
        read_back = everything(folder)
        assert [e.id for e in read_back if isinstance(e, Opened)] == accepted
        assert [e.id for e in read_back if isinstance(e, Closed)] == ended


@given(cut=st.integers(0, 2000), junk=st.binary(max_size=300), at=st.integers(0, 2000))
def test_damage_loses_lines_but_invents_none(cut: int, junk: bytes, at: int) -> None:
    with TemporaryDirectory() as name:
        folder = Path(name)
        journal = Journal(folder, "ep")
        written: list[Event] = [opened(str(number)) for number in range(10)]
        for event in written:
            journal.open(event)  # type: ignore[arg-type]
        journal.shut()
        path = segment_path(folder, "ep", 1)
        whole = path.read_bytes()
        at = min(at, len(whole))
        path.write_bytes(whole[:at] + junk + whole[at + cut :])
        found = read(path, 0, decode)
        assert [event for event in found.events if event not in written] == []
        if not junk and cut >= len(whole):
            assert found.events == written[: len(found.events)]


def test_garbage_without_an_end_is_passed_over(tmp_path: Path) -> None:
    path = tmp_path / "ep.000001.journal"
    path.write_bytes(b"x" * 100)
    assert read(path, 0, decode, max_bytes=50).torn == 1
    assert read(path, 0, decode, max_bytes=50).offset == 50
    assert read(path, 50, decode).offset == 50
