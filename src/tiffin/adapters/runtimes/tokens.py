"""Tokens by Hugging Face's `tokenizers`, from a `tokenizer.json`."""

from collections.abc import Sequence
from typing import Any

from tiffin.errors import LoadFailed
from tiffin.ports.tokenizer import Tokens


class TokenizerFile:
    """The tokenizer of one file; satisfies `ports.tokenizer.Tokenizer`. Raises `LoadFailed`."""

    def __init__(self, path: str) -> None:
        from tokenizers import Tokenizer

        try:
            self._tokenizer = Tokenizer.from_file(path)
        except Exception as cause:  # noqa: BLE001 - the library raises bare exceptions
            raise LoadFailed(f"the tokenizer can't be read: {cause}") from None
        # A file may ask for a fixed length; what is too long is refused here, never cut.
        self._tokenizer.no_padding()
        self._tokenizer.no_truncation()
        self.vocabulary: int = self._tokenizer.get_vocab_size(with_added_tokens=True)

    def encode(self, texts: Sequence[str]) -> list[Tokens]:
        """Each text with the special tokens around it."""
        # One after the other: the library's batches bring threads of their own, beside the model's.
        return [_tokens(self._tokenizer.encode(text)) for text in texts]

    def encode_pairs(self, first: str, seconds: Sequence[str]) -> list[Tokens]:
        """The first text with each of the second ones, as pairs."""
        return [_tokens(self._tokenizer.encode(first, second)) for second in seconds]

    def ids(self, text: str, *, special: bool) -> list[int]:
        """The ids of one text, with or without special tokens."""
        found: list[int] = self._tokenizer.encode(text, add_special_tokens=special).ids
        return found

    def text(self, ids: Sequence[int]) -> str:
        """What ids say, special tokens too."""
        said: str = self._tokenizer.decode(list(ids), skip_special_tokens=False)
        return said


def _tokens(encoding: Any) -> Tokens:
    return Tokens(encoding.ids, encoding.type_ids)
