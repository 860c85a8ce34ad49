"""Tokens to bytes as a GGUF file's own vocabulary spells them, and which tokens end an answer.

Two spellings are read: byte-level BPE (`gpt2`) and SentencePiece (`llama`). The alphabet of the
first: https://github.com/openai/gpt-2/blob/master/src/encoder.py
"""

import codecs
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from tiffin.adapters.runtimes.gguf import read_fields
from tiffin.errors import LoadFailed

_SPACE: Final = "\u2581"
_BYTE: Final = re.compile(rb"<0x([0-9A-Fa-f]{2})>")
_NORMAL, _USER, _BYTES = 1, 4, 6
_END_KEYS: Final = ("eos_token_id", "eot_token_id", "eom_token_id")
# Control tokens that end a turn by their name, as llama.cpp knows them.
_ENDS: Final = frozenset(
    [
        *(b"<|eot_id|>", b"<|im_end|>", b"<|end|>", b"<end_of_turn>", b"<|endoftext|>"),
        *(b"<|eom_id|>", b"< EOT >", b"_<EOT>", b"<|end_of_text|>", b"<EOT>"),
    ]
)


@dataclass(slots=True, frozen=True)
class Spelling:
    """A vocabulary's bytes by token, empty for tokens that no text shows, and the ends."""

    pieces: Sequence[bytes]
    ends: frozenset[int]
    context: int

    def text(self) -> "TextSoFar":
        """A text that grows token by token."""
        return TextSoFar(self.pieces)


class TextSoFar:
    """Whole characters of the tokens added so far; what isn't whole yet waits."""

    def __init__(self, pieces: Sequence[bytes]) -> None:
        self._pieces = pieces
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")

    def add(self, token: int) -> str:
        """The characters that this token completes."""
        return self._decoder.decode(self._pieces[token])

    def end(self) -> str:
        """What never became whole, as U+FFFD."""
        return self._decoder.decode(b"", final=True)


def read_spelling(path: str) -> Spelling:
    """A file's spelling; raises `LoadFailed` where it has one that isn't known here."""
    fields = read_fields(path)
    kind = fields.get("tokenizer.ggml.model", b"").decode("utf-8", "replace")
    tokens: list[bytes] = fields.get("tokenizer.ggml.tokens", [])
    kinds: Sequence[int] = fields.get("tokenizer.ggml.token_type") or [_NORMAL] * len(tokens)
    if kind == "gpt2":
        alphabet = _alphabet()
        pieces = [_byte_level(token, alphabet) for token in tokens]
    elif kind == "llama":
        pieces = [_sentence_piece(token) for token in tokens]
    else:
        raise LoadFailed(f"its vocabulary is of the kind '{kind}', which isn't read here")
    shown = [
        piece if sort in (_NORMAL, _BYTES) else token if sort == _USER else b""
        for piece, token, sort in zip(pieces, tokens, kinds, strict=True)
    ]
    family = fields.get("general.architecture", b"").decode("utf-8", "replace")
    return Spelling(
        pieces=shown,
        ends=_ends(fields, tokens),
        context=int(fields.get(f"{family}.context_length", 0)),
    )


def _ends(fields: Mapping[str, Any], tokens: Sequence[bytes]) -> frozenset[int]:
    named = {fields.get(f"tokenizer.ggml.{key}") for key in _END_KEYS}
    known = {at for at, token in enumerate(tokens) if token in _ENDS}
    return frozenset(known | {int(one) for one in named if one is not None})


def _byte_level(token: bytes, alphabet: Mapping[str, int]) -> bytes:
    text = token.decode("utf-8", "replace")
    try:
        return bytes(alphabet[letter] for letter in text)
    except KeyError:
        return token


def _sentence_piece(token: bytes) -> bytes:
    found = _BYTE.fullmatch(token)
    if found:
        return bytes([int(found[1], 16)])
    return token.decode("utf-8", "replace").replace(_SPACE, " ").encode()


def _alphabet() -> dict[str, int]:
    """The letter that stands for each byte: itself where it can be seen, else one from 256 on."""
    seen = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    letters = {chr(byte): byte for byte in seen}
    unseen = (byte for byte in range(256) if byte not in set(seen))
    return letters | {chr(256 + at): byte for at, byte in enumerate(unseen)}
