"""Tokens are spelled as their file's vocabulary says, whole characters at a time."""

import struct
from pathlib import Path

import pytest

from tests.unit.adapters.runtimes.test_gguf import gguf, numbers, text, texts
from tiffin.adapters.runtimes.spelling import Spelling, read_spelling
from tiffin.errors import LoadFailed


def spelling(folder: Path, kind: bytes, tokens: list[bytes], kinds: list[int]) -> Spelling:
    path = folder / "m.gguf"
    path.write_bytes(
        gguf(
            {
                b"general.architecture": struct.pack("<I", 8) + text(b"llama"),
                b"llama.context_length": struct.pack("<II", 4, 2048),
                b"tokenizer.ggml.model": struct.pack("<I", 8) + text(kind),
                b"tokenizer.ggml.eos_token_id": struct.pack("<II", 4, 1),
                b"tokenizer.ggml.tokens": texts(tokens),
                b"tokenizer.ggml.token_type": numbers(kinds),
            }
        )
    )
    return read_spelling(str(path))


def test_byte_level_pieces_are_bytes(tmp_path: Path) -> None:
    tokens = ["Ġhello".encode(), b"<|im_end|>", "Ã".encode(), "©".encode(), b"<tool>"]
    found = spelling(tmp_path, b"gpt2", tokens, [1, 3, 1, 1, 4])
    assert list(found.pieces) == [b" hello", b"", b"\xc3", b"\xa9", b"<tool>"]
    assert found.ends == {1}
    assert found.context == 2048


def test_characters_come_whole(tmp_path: Path) -> None:
    tokens = ["Ã".encode(), "©".encode(), b"e"]
    so_far = spelling(tmp_path, b"gpt2", tokens, [1, 1, 1]).text()
    assert [so_far.add(token) for token in (2, 0, 1, 0)] == ["e", "", "é", ""]
    assert so_far.end() == "\ufffd"


def test_sentence_pieces_have_spaces_and_bytes(tmp_path: Path) -> None:
    tokens = ["▁hello".encode(), b"</s>", b"<0x0A>", b"<end_of_turn>"]
    found = spelling(tmp_path, b"llama", tokens, [1, 3, 6, 3])
    assert list(found.pieces) == [b" hello", b"", b"\n", b""]
    assert found.ends == {1, 3}


def test_an_unknown_kind_fails_by_name(tmp_path: Path) -> None:
    with pytest.raises(LoadFailed, match="'bert'"):
        spelling(tmp_path, b"bert", [b"a"], [1])
