"""What was spent outlives its process, counts once whoever dies when, and takes bounded room."""

import errno
import os
from pathlib import Path

import pytest

from tiffin.adapters.stores.spent import CHUNK_BYTES, SpentFile
from tiffin.errors import JournalUnavailable

NOW = 1_700_000_000 * 10**9
MAY = NOW - 10**9


def spent(folder: Path, epoch: str, now_ns: int = NOW) -> SpentFile:
    return SpentFile(folder, epoch, now_ns)


def others(store: SpentFile, name: str = "shop", begins_ns: int = MAY) -> int:
    return store.record(name).others(begins_ns)


def killed(store: SpentFile) -> None:
    """As `kill -9` leaves it: the lock is free, and nothing more was said."""
    store.close()


def test_the_next_process_knows_what_the_last_one_charged(tmp_path: Path) -> None:
    first = spent(tmp_path, "a")
    record = first.record("shop")
    record.write(MAY, 5)
    record.write(MAY, 3 * 10**30)
    assert record.others(MAY) == 0
    killed(first)
    second = spent(tmp_path, "b")
    assert others(second) == 3 * 10**30
    assert others(second, "other") == others(second, begins_ns=MAY + 1) == 0


def test_lives_add_up_and_their_files_become_one(tmp_path: Path) -> None:
    for number in range(5):
        store = spent(tmp_path, f"e{number}")
        assert others(store) == number
        store.record("shop").write(MAY, 1)
        killed(store)
    assert [path.name for path in tmp_path.iterdir()] == ["e4.spent"]


def test_who_dies_between_summing_up_and_deleting_counts_nothing_twice(tmp_path: Path) -> None:
    first = spent(tmp_path, "a")
    first.record("shop").write(MAY, 7)
    killed(first)
    left = (tmp_path / "a.spent").read_bytes()
    second = spent(tmp_path, "b")
    second.record("shop").write(MAY, 1)
    killed(second)
    (tmp_path / "a.spent").write_bytes(left)  # as if it hadn't been deleted any more
    third = spent(tmp_path, "c")
    assert others(third) == 8
    killed(third)
    (tmp_path / "a.spent").write_bytes(left)
    assert others(spent(tmp_path, "d")) == 8


def test_a_gateway_that_ends_beside_this_one_is_followed(tmp_path: Path) -> None:
    old = spent(tmp_path, "old")
    old.record("shop").write(MAY, 10)
    new = spent(tmp_path, "new")
    assert others(new) == 10
    old.record("shop").write(MAY, 4)  # it settled what was running
    new.look()
    assert others(new) == 4
    killed(old)
    new.look()
    assert others(new) == 4
    killed(new)
    assert others(spent(tmp_path, "newest")) == 4


def test_a_new_period_begins_with_nothing(tmp_path: Path) -> None:
    store = spent(tmp_path, "a")
    record = store.record("shop")
    record.write(MAY, 9)
    record.write(NOW, 2)
    killed(store)
    after = spent(tmp_path, "b")
    assert (others(after), others(after, begins_ns=NOW)) == (0, 2)


def test_what_is_long_over_is_dropped(tmp_path: Path) -> None:
    store = spent(tmp_path, "a")
    store.record("shop").write(MAY, 9)
    killed(store)
    assert others(spent(tmp_path, "b", NOW + 40 * 86_400 * 10**9)) == 0


def test_records_that_are_given_up_make_room(tmp_path: Path) -> None:
    store = spent(tmp_path, "a")
    for number in range(5000):
        store.record(f"user {number}").write(MAY, 0)
        store.forget(f"user {number}")
    assert (tmp_path / "a.spent").stat().st_size <= 4096 + CHUNK_BYTES
    store.forget("never heard of")


def test_a_full_disk_refuses_what_is_new_keeps_what_is_there_and_mends(tmp_path: Path) -> None:
    full = False

    def allocate(fd: int, at: int, size: int) -> None:
        if full:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        os.posix_fallocate(fd, at, size)

    store = SpentFile(tmp_path, "a", NOW, allocate=allocate)
    store.record("shop").write(MAY, 1)
    for number in range(CHUNK_BYTES // 64 - 1):
        store.record(f"user {number}").write(MAY, 1)
    full = True
    with pytest.raises(JournalUnavailable, match="No space left"):
        store.record("new").write(MAY, 1)
    store.record("shop").write(MAY, 2)
    full = False
    store._again_at = 0.0
    store.record("new").write(MAY, 1)
    killed(store)
    assert others(spent(tmp_path, "b")) == 2


def test_a_folder_that_can_not_be_written_is_tried_again(tmp_path: Path) -> None:
    (tmp_path / "spent").write_text("a file where the folder should be")
    store = spent(tmp_path / "spent", "a")
    with pytest.raises(JournalUnavailable):
        store.record("shop").write(MAY, 1)
    (tmp_path / "spent").unlink()
    store._again_at = 0.0
    store.record("shop").write(MAY, 1)
    killed(store)
    assert others(spent(tmp_path / "spent", "b")) == 1


def test_a_file_that_makes_no_sense_stops_nobody(tmp_path: Path) -> None:
    (tmp_path / "x.spent").write_bytes(b"\xff" * 5000)
    assert others(spent(tmp_path, "a")) == 0


def test_who_comes_later_is_seen_too(tmp_path: Path) -> None:
    first = spent(tmp_path, "a")
    second = spent(tmp_path, "b")
    second.record("shop").write(MAY, 4)
    assert others(first) == 0
    first.look()
    assert others(first) == 4
    second.record("shop").write(MAY, 6)
    first.look()
    assert others(first) == 6
