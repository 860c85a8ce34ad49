"""What checks what goes into a model and what comes out of it.

Contract:
- A guard looks and says what it found; what follows from a finding is its policy's.
- It is pure and quick: no I/O, time linear in the text and bounded.
- An exception means that it couldn't check; then the policy decides, and the default is to refuse.
- `check_output` gets a whole answer's text, and only of guards whose `checks_output` is true.
"""

from collections.abc import Iterable
from typing import NamedTuple, Protocol

import msgspec


class Piece(NamedTuple):
    """A string of a request and where it stands; `text` None is one that can't be looked into."""

    param: str
    text: str | None


class Finding(msgspec.Struct, frozen=True, kw_only=True):
    """Why something may not pass: what was found, never the text of it; `param` says where."""

    what: str
    param: str | None = None


class Guard(Protocol):
    """One check."""

    checks_output: bool

    def check_input(self, pieces: Iterable[Piece]) -> Finding | None:
        """What is wrong with a request's strings, if anything is."""
        ...

    def check_output(self, text: str) -> Finding | None:
        """What is wrong with an answer, if anything is."""
        ...
