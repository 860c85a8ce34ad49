"""Files that are replaced whole, and disks that are full in the middle of that."""

import os
from pathlib import Path

import pytest

from tiffin.types.whole_file import replace_file


def full(fd: int) -> None:
    raise OSError(28, "No space left on device")


@pytest.mark.parametrize("lasting", [True, False])
def test_a_file_is_replaced_and_is_private(tmp_path: Path, *, lasting: bool) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"before")
    replace_file(path, b"af", b"ter", lasting=lasting)
    assert path.read_bytes() == b"after"
    assert path.stat().st_mode & 0o777 == 0o600
    assert list(tmp_path.iterdir()) == [path]


def test_where_there_is_no_room_it_is_as_before_and_nothing_takes_room(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"before")
    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space left"):
        replace_file(path, b"after")
    assert path.read_bytes() == b"before"
    assert list(tmp_path.iterdir()) == [path]
