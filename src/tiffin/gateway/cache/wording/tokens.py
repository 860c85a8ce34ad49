"""A text as sentences of tokens, with everything that a meaning may hang on left in them."""

import re
import unicodedata
from typing import Final, Literal, NamedTuple

_QUOTED = re.compile(r'"[^"]*"|`[^`]*`|\S+')
_INDIC = "\u0900-\u0963\u0970-\u097f\u0980-\u09e5\u09f0-\u09fe\u0b80-\u0bbf\u0bc0-\u0be5"
_LETTERS = f"[A-Za-z\u00c0-\u00d6\u00d8-\u00f6\u00f8-\u024f{_INDIC}]"
_WORD = re.compile(f"{_LETTERS}+(?:['-]{_LETTERS}+)*'?")
_AMOUNT = re.compile(
    r"(₹|\$|€|£|¥|rs\.?|inr|usd|eur)?(\d[\d,]*(?:\.\d+)?)(%|/-|[^\W\d_]{1,8})?", re.IGNORECASE
)
_GROUPED = re.compile(r"\d{1,3}(?:,\d{2,3})*,\d{3}")
_BITS = re.compile(r"[kKMGT][bB](?:ps)?")
_OPENS: Final = "([{'\""
_CLOSES: Final = ")]}'\",;:"
_ENDS: Final = ".!?…\u0964\u0965"
_SHORT: Final = frozenset({"rs.", "mr.", "mrs.", "ms.", "dr.", "st.", "no.", "vs.", "e.g.", "i.e."})

Kind = Literal["word", "number", "literal"]


class Token(NamedTuple):
    """`text` is a word in small letters, a number in ASCII digits, or else what was written.

    A `fixed` word is written as a name is: it stands for nothing but itself. One that is `large`
    may be short for something, as TV is. `comma` says that one follows, `article` which one came
    before.
    """

    text: str
    kind: Kind
    fixed: bool = False
    comma: bool = False
    large: bool = False
    article: str = ""


class Sentence(NamedTuple):
    """Tokens up to a full stop; `asks` where that is a question mark."""

    tokens: tuple[Token, ...]
    asks: bool


def plain(text: str) -> str:
    """A text in one spelling: composed letters, straight quotes, ASCII digits."""
    text = unicodedata.normalize("NFC", text)
    text = re.sub("[\u200b-\u200d\u2060\ufeff]", "", text)
    text = re.sub("[\u2018\u2019\u02bc]", "'", text)
    text = re.sub("[\u201c\u201d\u201e]", '"', text)
    return "".join(map(_digit, text))


def sentences(text: str) -> list[Sentence]:
    """The sentences of a `plain` text."""
    raws: list[str] = _QUOTED.findall(text)
    words = [raw.strip(_OPENS + _CLOSES + _ENDS) for raw in raws]
    letters = [word for word in words if _WORD.fullmatch(word)]
    # Where every word begins with a capital, a capital says nothing.
    told = not (len(letters) > 1 and all(word[0].isupper() for word in letters))
    shouted = bool(letters) and all(word.isupper() for word in letters)
    found: list[Sentence] = []
    tokens: list[Token] = []
    for raw in raws:
        tokens += _tokens(raw, first=not tokens, told=told or (not shouted and _is_mixed(raw)))
        tail = raw[len(raw.rstrip(_CLOSES + _ENDS)) :]
        if any(char in _ENDS for char in tail) and raw.lower() not in _SHORT:
            found.append(Sentence(tuple(tokens), "?" in tail))
            tokens = []
    return [*found, Sentence(tuple(tokens), False)] if tokens else found


def _digit(char: str) -> str:
    return str(unicodedata.decimal(char)) if char.isdecimal() else char


def _is_mixed(raw: str) -> bool:
    """Whether capitals inside a word make it one that isn't just written large."""
    return any(char.isupper() for char in raw[1:]) and any(char.islower() for char in raw)


def _tokens(raw: str, *, first: bool, told: bool) -> list[Token]:
    if raw[0] in '"`' and raw[-1] == raw[0] and len(raw) > 1:
        return [Token(raw, "literal")]
    core = raw.lstrip(_OPENS).rstrip(_CLOSES + _ENDS)
    comma = raw.rstrip("'\")]}").endswith(",")
    if _BITS.fullmatch(core):
        return [Token(core, "literal", comma=comma)]
    if _WORD.fullmatch(core):
        return _words(core, first=first, told=told, comma=comma)
    amount = _AMOUNT.fullmatch(raw.lstrip(_OPENS).rstrip(_ENDS + ")]}'\",;:"))
    if amount is not None:
        return _amount(amount, comma=comma)
    whole = raw.rstrip(".,;:!?\u0964")
    return [Token(whole, "literal", comma=comma)] if whole else []


def _words(core: str, *, first: bool, told: bool, comma: bool) -> list[Token]:
    large = core.isupper() and len(core) > 1
    inner = any(char.isupper() for char in core[1:])
    if core in ("I", "I'm", "I've", "I'd", "I'll"):  # large wherever it is
        told = False
    if told and len(core) == 1 and core.isupper() and not first:
        return [Token(core, "literal", comma=comma)]
    fixed = told and (large or inner or (core[0].isupper() and not first))
    parts = core.lower().split("-")
    tokens = [Token(part, "word", fixed, large=large or inner) for part in parts]
    tokens[-1] = tokens[-1]._replace(comma=comma)
    return tokens


def _amount(found: re.Match[str], *, comma: bool) -> list[Token]:
    """A number, what it counts before or after it. Commas go where they group digits only."""
    before, number, after = found.groups()
    if _GROUPED.fullmatch(number.partition(".")[0]):
        number = number.replace(",", "")
    tokens = [Token(number, "number")]
    if before:
        tokens.append(Token(before.lower().rstrip("."), "word"))
    if after and after != "/-":
        tokens.append(_unit(after))
    tokens[-1] = tokens[-1]._replace(comma=comma)
    return tokens


def _unit(text: str) -> Token:
    """A unit right after its number: one letter, or bits and bytes, mean what they are in."""
    if len(text) == 1 or _BITS.fullmatch(text):
        return Token(text, "literal")
    return Token(text.lower(), "word")
