"""What turns texts into a model's tokens, for models that read them as arrays.

Contract: nothing is ever padded or cut; the model's special tokens are added as it was trained
with them; equal texts have equal tokens. Calls block, in proportion to the texts' length, and may
be made from several threads at once.
"""

from collections.abc import Sequence
from typing import NamedTuple, Protocol


class Tokens(NamedTuple):
    """A text as a model reads it: token ids, and for each the number of the text of a pair.

    `texts` are both of a pair, where the model itself puts them together.
    """

    ids: Sequence[int]
    type_ids: Sequence[int]
    texts: tuple[str, ...] = ()


class Tokenizer(Protocol):
    """One model's tokens. `vocabulary` is how many ids there are."""

    vocabulary: int

    def encode(self, texts: Sequence[str]) -> list[Tokens]:
        """Each text with the special tokens around it."""
        ...

    def encode_pairs(self, first: str, seconds: Sequence[str]) -> list[Tokens]:
        """The first text with each of the second ones, as pairs."""
        ...

    def ids(self, text: str, *, special: bool) -> list[int]:
        """The ids of one text, with or without special tokens."""
        ...

    def text(self, ids: Sequence[int]) -> str:
        """What ids say, special tokens too."""
        ...
