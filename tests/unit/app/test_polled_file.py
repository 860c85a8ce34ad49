import os
from pathlib import Path

import msgspec

from tiffin.app.polled_file import PolledFile


class Value(msgspec.Struct):
    n: int = 0


def replace(path: Path, text: str) -> None:
    fresh = path.with_suffix(".new")
    fresh.write_text(text)
    fresh.replace(path)


def test_each_version_is_seen_once_and_unreadable_ones_never(tmp_path: Path) -> None:
    path = tmp_path / "value.json"
    polled = PolledFile(path, Value)
    assert polled.changed() is None
    replace(path, '{"n":1,"unknown":true}')
    assert polled.changed() == Value(n=1)
    assert polled.changed() is None
    replace(path, '{"n":')
    assert polled.changed() is None
    replace(path, '{"n":2}')
    assert polled.changed() == Value(n=2)
    path.unlink()
    assert polled.changed() is None


def test_one_that_cannot_be_opened_now_is_tried_again(tmp_path: Path) -> None:
    path, value = tmp_path / "value.json", tmp_path / "folder"
    path.symlink_to(value)
    value.mkdir()
    polled = PolledFile(path, Value)
    assert polled.changed() is None
    seen = value.stat()
    value.rmdir()
    value.write_text('{"n":1}')
    os.utime(value, ns=(seen.st_mtime_ns, seen.st_mtime_ns))
    assert polled.changed() == Value(n=1)


def test_what_nests_without_end_is_no_value(tmp_path: Path) -> None:
    path = tmp_path / "value.json"
    replace(path, '{"x":' + "[" * 100_000)
    polled = PolledFile(path, Value)
    assert polled.changed() is None
    replace(path, '{"n":2}')
    assert polled.changed() == Value(n=2)
