"""Whether two questions mean the same, as far as rules can tell for sure.

Every word that isn't known to change nothing is a part of the meaning, in the order in which it was
said: names, numbers, dates, units, negations, words with an opposite. Only what lists say is
taken for the same. Where rules can't tell, there is no meaning, and nothing is the same as that.
"""

from collections.abc import Iterator
from hashlib import sha256
from typing import Final, NamedTuple

from tiffin.gateway.cache.wording.language import Language, Part, Pattern, languages
from tiffin.gateway.cache.wording.tokens import Sentence, Token, plain, sentences

MAX_CHARS: Final = 400
MAX_TOKENS: Final = 48
_CURRENCY: Final = frozenset({"₹", "$", "€", "£", "¥", "rs", "inr", "usd", "eur"})
_OTHER: Final = {"+": "-", "-": "+"}
_SCRIPTS: Final = (
    ("latin", "a", "\u024f"),
    ("devanagari", "\u0900", "\u097f"),
    ("bengali", "\u0980", "\u09ff"),
    ("tamil", "\u0b80", "\u0bff"),
)


class Meaning(NamedTuple):
    """What a text says, sentence by sentence: whether it asks, what is wanted, about what.

    `numbers`, the count of `negations` and the `sides` of opposites are taken from the text as it
    was written, whatever lists made of it.
    """

    language: str
    said: tuple[tuple[object, ...], ...]
    numbers: tuple[str, ...]
    negations: int
    sides: frozenset[str]

    @property
    def digest(self) -> bytes:
        """Equal for equal meanings, `sides` aside."""
        return sha256(repr(self[:-1]).encode()).digest()


class Said(NamedTuple):
    """A part of a sentence: `name` is what stands for it."""

    part: str
    name: str


def meaning_of(text: str) -> Meaning | None:
    """What a text says; None where it is too long, in no language that there are lists for, or
    about nothing."""
    if len(text) > MAX_CHARS:
        return None
    told = sentences(plain(text))
    tokens = [token for sentence in told for token in sentence.tokens]
    language = language_of(tokens) if len(tokens) <= MAX_TOKENS else None
    if language is None:
        return None
    said = tuple(filter(None, (_said(sentence, language) for sentence in told)))
    if not said:
        return None
    words = [word for token in tokens for word in _spelled(token, language)]
    return Meaning(
        language.name,
        said,
        tuple(_number(one, language) for one in words if _is_number(one, language)),
        sum(one.text in language.negations for one in words),
        frozenset().union(*(language.poles.get(one.text, ()) for one in words)),
    )


def same(one: Meaning, other: Meaning) -> bool:
    """Whether two texts mean the same for sure."""
    return one[:-1] == other[:-1] and not opposed(one.sides, other.sides)


def opposed(one: frozenset[str], other: frozenset[str]) -> bool:
    """Whether of any two opposites one text has the one side alone, and the other the other."""
    apart = one ^ other
    return any(side in apart and f"{side[:-1]}{_OTHER[side[-1]]}" in apart for side in one)


def language_of(tokens: list[Token]) -> Language | None:
    """The one whose marks a text has most of, or where it has none its words; None where two do."""
    said = [token for token in tokens if token.kind == "word" and token.text[0].isalpha()]
    words = [token.text for token in said if not token.fixed]
    scripts = {_script(token.text) for token in said}
    here = [one for one in languages() if scripts <= {one.script, "latin"}]
    for lists in ([(one, one.marks) for one in here], [(one, one.known) for one in here]):
        scores = [(sum(word in known for word in words), one) for one, known in lists]
        most = max((score for score, _ in scores), default=0)
        best = [one for score, one in scores if score == most]
        if most:
            return best[0] if len(best) == 1 else None
    return None


def _script(word: str) -> str:
    return next((name for name, first, last in _SCRIPTS if first <= word[0] <= last), "")


def _said(sentence: Sentence, language: Language) -> tuple[object, ...]:
    """A sentence's part of the meaning; empty where it says nothing."""
    parts = list(_parts(_kept(sentence, language), language))
    if not parts:
        return ()
    wanted = [at for at, one in enumerate(parts) if one.part == "intent"]
    if len(wanted) == len(parts):
        return ()
    asks = sentence.asks and not wanted
    if len(wanted) == 1 and (language.inside or wanted[0] in (0, len(parts) - 1)):
        # What is wanted may be said first or last.
        parts.insert(0, parts.pop(wanted[0]))
    return (asks, *parts)


def _kept(sentence: Sentence, language: Language) -> list[Token]:
    """The tokens that may mean something, in full spelling."""
    words = [word for token in sentence.tokens for word in _spelled(token, language)]
    found: list[Token] = []
    article = ""
    for one in _joined(_in_order(words), language):
        if not one.fixed and one.text in language.articles:
            article = language.articles[one.text]
        elif one.fixed or one.text not in language.drop:
            found.append(one._replace(article=article))
            article = ""
    return found


def _spelled(token: Token, language: Language) -> list[Token]:
    """A token's full spelling; a comma after what turns a sentence round is a token too."""
    found = [token]
    if token.kind == "word" and not token.fixed:
        long = language.spelled.get(token.text)
        if long is not None:
            found = [Token(word, "word") for word in long]
            found[-1] = found[-1]._replace(comma=token.comma)
    if token.comma and found[-1].text in language.negations:
        found.append(Token(",", "literal"))
    return found


def _in_order(tokens: list[Token]) -> list[Token]:
    """Currencies after their amounts, wherever they were written."""
    found = list(tokens)
    for at in range(len(found) - 1):
        if found[at].text in _CURRENCY and found[at + 1].kind == "number":
            after = at + 2 < len(found) and found[at + 2].text in _CURRENCY
            if not after:
                found[at], found[at + 1] = found[at + 1], found[at]._replace(fixed=False)
    return found


def _joined(tokens: list[Token], language: Language) -> Iterator[Token]:
    """Words that mean something else together become one."""
    at = 0
    while at < len(tokens):
        pair = tuple(token.text for token in tokens[at : at + 2])
        if pair in language.joined:
            yield Token(" ".join(pair), "word")
            at += 2
            continue
        yield tokens[at]
        at += 1


def _parts(tokens: list[Token], language: Language) -> Iterator[Said]:
    """What stands in a sentence, one by one."""
    used: set[int] = set()
    began = False
    for at, token in enumerate(tokens):
        if at in used:
            continue
        found = _match(tokens, at, used, language, began=began)
        if found is None:
            began = True
            yield from _article(token)
            yield _alone(token, language)
            continue
        pattern, places = found
        used |= places
        if pattern.part == "word":
            yield from _article(token)
        if pattern.part != "opening":
            began = True
            yield Said(pattern.part, f"={pattern.name}")


def _article(token: Token) -> Iterator[Said]:
    if token.article:
        yield Said("article", token.article)


def _match(
    tokens: list[Token], at: int, used: set[int], language: Language, *, began: bool
) -> tuple[Pattern, set[int]] | None:
    """The longest pattern that begins at a token, and the places of its words."""
    for pattern in language.patterns.get(tokens[at].text, ()):
        head = range(at, at + len(pattern.head))
        if not _is(tokens, head, pattern.head, used, pattern.part):
            continue
        if pattern.part == "opening" and began:
            after = tokens[at - 1].comma and head.stop == len(tokens)
            if not after:
                continue
        if not pattern.tail:
            return pattern, set(head)
        for start in _tails(tokens, head, pattern, language):
            tail = range(start, start + len(pattern.tail))
            if _is(tokens, tail, pattern.tail, used, pattern.part):
                return pattern, {*head, *tail}
    return None


def _tails(tokens: list[Token], head: range, pattern: Pattern, language: Language) -> range:
    """Where the second part of a pattern may begin: after something else, at the sentence's end."""
    last = len(tokens) - len(pattern.tail)
    return range(head.stop + 1 if language.inside else max(head.stop + 1, last), last + 1)


def _is(
    tokens: list[Token], places: range, words: tuple[str, ...], used: set[int], part: Part
) -> bool:
    if places.stop > len(tokens):
        return False
    return all(
        tokens[place].text == word
        and place not in used
        and (not tokens[place].fixed or (part == "word" and tokens[place].large))
        for place, word in zip(places, words, strict=True)
    )


def _alone(token: Token, language: Language) -> Said:
    """A token that stands for itself."""
    if _is_number(token, language):
        return Said("number", _number(token, language))
    if token.fixed and token.text in language.little:
        return Said("name", token.text)
    return Said("word" if token.kind == "word" else token.kind, token.text)


def _is_number(token: Token, language: Language) -> bool:
    if token.kind == "number":
        return True
    return token.kind == "word" and not token.fixed and token.text in language.numbers


def _number(token: Token, language: Language) -> str:
    return language.numbers.get(token.text, token.text)
