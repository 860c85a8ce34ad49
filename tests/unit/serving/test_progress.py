"""Counters that another process reads while this one is busy."""

import errno
import stat
from pathlib import Path

import pytest

from tiffin.serving.progress import SIZE, Phase, Progress, ProgressFile, read_progress


def test_a_reader_sees_what_the_writer_counted(tmp_path: Path) -> None:
    path = tmp_path / "r.progress"
    writer = ProgressFile(path)
    writer.beat()
    writer.beat()
    writer.step()
    writer.step(3)
    writer.outstanding(7)
    writer.phase(Phase.DRAINING)
    assert read_progress(path) == Progress(2, 4, 7, Phase.DRAINING)
    writer.close()


def test_the_file_is_private_and_has_its_declared_size(tmp_path: Path) -> None:
    path = tmp_path / "r.progress"
    writer = ProgressFile(path)
    assert path.stat().st_size == SIZE
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    writer.close()


def test_a_new_life_starts_at_nothing_and_closing_twice_is_fine(tmp_path: Path) -> None:
    path = tmp_path / "r.progress"
    first = ProgressFile(path)
    first.step(5)
    second = ProgressFile(path)
    assert read_progress(path) == Progress()
    first.step()
    assert read_progress(path) == Progress()
    second.close()
    second.close()
    assert not path.exists()
    first.close()


def test_no_file_or_half_a_file_reads_as_nothing(tmp_path: Path) -> None:
    assert read_progress(tmp_path / "none") == Progress()
    (tmp_path / "half").write_bytes(b"\1" * 8)
    assert read_progress(tmp_path / "half") == Progress()


def test_a_full_disk_is_an_error_and_leaves_nothing(tmp_path: Path) -> None:
    def full(fd: int, offset: int, size: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    with pytest.raises(OSError, match="No space"):
        ProgressFile(tmp_path / "r.progress", allocate=full)
    assert list(tmp_path.iterdir()) == []
