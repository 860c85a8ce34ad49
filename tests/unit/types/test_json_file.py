from pathlib import Path

import msgspec
import pytest

from tiffin.types.json_file import read_json


class Value(msgspec.Struct):
    n: int = 0


GARBAGE = {
    "empty": b"",
    "zeros": b"\0" * 50,
    "half": b'{"n":',
    "wrong": b'{"n":"one"}',
    "not text": b'{"x":"\xff',
    "deep": b'{"x":' + b"[" * 100_000,
}


def test_unknown_fields_are_ignored(tmp_path: Path) -> None:
    path = tmp_path / "value.json"
    path.write_text('{"n":1,"unknown":[[[]]]}')
    assert read_json(path, Value) == Value(n=1)


@pytest.mark.parametrize("content", GARBAGE.values(), ids=GARBAGE)
def test_whatever_a_file_holds_is_one_kind_of_error(content: bytes, tmp_path: Path) -> None:
    path = tmp_path / "value.json"
    path.write_bytes(content)
    with pytest.raises(msgspec.DecodeError):
        read_json(path, Value)
    with pytest.raises(FileNotFoundError):
        read_json(tmp_path / "none", Value)
