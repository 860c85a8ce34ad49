"""Reading a vocabulary never goes beyond the file, whatever stands in it."""

import contextlib
import struct
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tiffin.adapters.runtimes.gguf import read_vocabulary
from tiffin.errors import LoadFailed


def text(value: bytes) -> bytes:
    return struct.pack("<Q", len(value)) + value


def texts(values: list[bytes]) -> bytes:
    return struct.pack("<IIQ", 9, 8, len(values)) + b"".join(map(text, values))


def numbers(values: list[int]) -> bytes:
    return struct.pack(f"<IIQ{len(values)}i", 9, 5, len(values), *values)


def gguf(fields: dict[bytes, bytes], version: int = 3) -> bytes:
    head = b"GGUF" + struct.pack("<IQQ", version, 0, len(fields))
    return head + b"".join(text(name) + value for name, value in fields.items())


WHOLE = gguf(
    {
        b"general.name": struct.pack("<I", 8) + text(b"little"),
        b"some.number": struct.pack("<If", 6, 0.5),
        b"some.flag": struct.pack("<I?", 7, True),
        b"some.size": struct.pack("<IQ", 10, 1 << 40),
        b"tokenizer.ggml.tokens": texts([b"<unk>", b"<|end|>", b"hello", "é".encode()]),
        b"tokenizer.ggml.token_type": numbers([2, 3, 1, 1]),
        b"tokenizer.chat_template": struct.pack("<I", 8) + text(b"{{ messages }}"),
    }
)


def read(folder: Path, data: bytes) -> Any:
    path = folder / "model.gguf"
    path.write_bytes(data)
    return read_vocabulary(str(path))


def test_the_vocabulary_is_read(tmp_path: Path) -> None:
    vocabulary = read(tmp_path, WHOLE)
    assert vocabulary.size == 4
    assert vocabulary.longest == len("<|end|>")
    assert vocabulary.control == {"<unk>", "<|end|>"}
    assert vocabulary.chat


def test_a_file_without_template_or_kinds_is_no_chat_model(tmp_path: Path) -> None:
    vocabulary = read(tmp_path, gguf({b"tokenizer.ggml.tokens": texts([b"a"])}))
    assert not vocabulary.chat
    assert vocabulary.control == frozenset()


@pytest.mark.parametrize(
    "data",
    [
        pytest.param(b"", id="empty"),
        pytest.param(b"PK\x03\x04 a zip", id="another format"),
        pytest.param(gguf({}, version=9), id="another version"),
        pytest.param(b"GGUF" + struct.pack("<IQQ", 3, 0, 1 << 60), id="no end of fields"),
        pytest.param(gguf({b"a": struct.pack("<IIQ", 9, 4, 1 << 62)}), id="no end of numbers"),
        pytest.param(gguf({b"a": struct.pack("<IIQ", 9, 8, 1 << 62)}), id="no end of texts"),
        pytest.param(gguf({b"a": struct.pack("<IIQ", 9, 9, 1)}), id="lists in lists"),
        pytest.param(gguf({b"a": struct.pack("<I", 99)}), id="unknown type"),
    ],
)
def test_nonsense_is_refused(tmp_path: Path, data: bytes) -> None:
    with pytest.raises(LoadFailed):
        read(tmp_path, data)


@pytest.mark.parametrize("end", range(0, len(WHOLE), 7))
def test_a_file_that_is_cut_off_is_refused(tmp_path: Path, end: int) -> None:
    with pytest.raises(LoadFailed):
        read(tmp_path, WHOLE[:end])


@given(at=st.integers(0, len(WHOLE) - 1), byte=st.integers(0, 255))
def test_a_wrong_byte_does_no_harm(
    tmp_path_factory: pytest.TempPathFactory, at: int, byte: int
) -> None:
    path = tmp_path_factory.mktemp("gguf") / "model.gguf"
    path.write_bytes(WHOLE[:at] + bytes([byte]) + WHOLE[at + 1 :])
    with contextlib.suppress(LoadFailed):
        read_vocabulary(str(path))


def test_a_missing_file_is_the_reason(tmp_path: Path) -> None:
    with pytest.raises(LoadFailed, match="No such file"):
        read_vocabulary(str(tmp_path / "nowhere.gguf"))
