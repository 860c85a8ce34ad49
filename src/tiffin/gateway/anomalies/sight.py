"""What a watch sees of a request: hashes and numbers, from which no text can be had back."""

import re
from collections import Counter
from collections.abc import Iterable
from math import log2
from typing import Final, NamedTuple

from tiffin.ports.guard import Piece

MAX_CHARACTERS: Final = 262_144
"""What is longer isn't looked at: it would hold everybody up."""
MAX_FOLDED: Final = 8_192
MAX_SAMPLE: Final = 1_024
MIN_SAMPLE: Final = 64

_WORDS: Final = ("messages", "prompt", "input")
_ASCII_SHARE: Final = 0.9
_GAPS: Final = re.compile(r"[\s.,;:!?]+")
# Times, dates, UUIDs, long hexadecimal and decimal numbers: what differs though the rest repeats.
_IDS: Final = re.compile(
    r"\b(?:\d{4}-\d\d-\d\d(?:[t ]\d\d:\d\d(?::\d\d(?:\.\d+)?)?z?)?|\d{1,2}:\d\d(?::\d\d)?"
    r"|[0-9a-f]{8}-[0-9a-f-]{27}|\d{10,}|(?=[a-f]*\d)[0-9a-f]{12,})\b"
)
_NUMBERS: Final = re.compile(r"\d{1,9}")


class Sight(NamedTuple):
    """A request: `text` is all that a model would read of it.

    `same` is equal for requests that are the same but for case, spaces, times and ids; `form` for
    those that also differ in numbers, whose sum is `total`.
    """

    text: str
    form: int
    same: int
    total: int


def sight(pieces: Iterable[Piece]) -> Sight | None:
    """What is seen of a request's strings; None where there is too much of them, or nothing."""
    texts = [piece.text for piece in pieces if piece.text and _is_said(piece.param)]
    if not texts or sum(map(len, texts)) > MAX_CHARACTERS:
        return None
    text = "\0".join(texts)
    folded = text
    if len(text) > 2 * MAX_FOLDED:  # the beginning, the end and the length tell enough
        folded = f"{text[:MAX_FOLDED]} {text[-MAX_FOLDED:]} {len(text)}"
    folded = _GAPS.sub(" ", _IDS.sub("#", folded.lower())).strip()
    numbers = _NUMBERS.findall(folded)
    return Sight(text, hash(_NUMBERS.sub("0", folded)), hash(folded), sum(map(int, numbers)))


def noise(text: str) -> float:
    """Bits a character of the end of a text; 0 where it is short, or mostly in another script.

    English has about 4.2, code and JSON up to 5, random letters and digits nearly 6.
    """
    sample = text.rpartition("\0")[2][-MAX_SAMPLE:]
    size = len(sample)
    if size < MIN_SAMPLE or len(sample.encode()) * _ASCII_SHARE > size:
        return 0.0
    return -sum(n / size * log2(n / size) for n in Counter(sample).values())


def _is_said(param: str) -> bool:
    """Whether a string is said to the model: names of fields and settings aren't."""
    return param.startswith(_WORDS) and not (param.startswith("messages") and param[-1] == "]")
