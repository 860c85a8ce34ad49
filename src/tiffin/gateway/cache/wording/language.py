"""What is known of a language's words: which ways of saying are the same, and which words may go.

The lists are data, one file a language. A word that no list has stands for itself alone, so what a
list lacks costs a second use of an answer, and never makes a wrong one.
"""

import unicodedata
from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path
from typing import Final, Literal, NamedTuple

import msgspec

WORDS: Final = Path(__file__).parent / "words"

Part = Literal["intent", "word", "opening"]


class Words(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A file of words. Ways of saying the same are parted by `|`; ` … ` is where others stand.

    `marks` are words by which the language is known, `script` the letters that it is written with.
    `spelled` are short forms and what they are short for. `joined` are words that mean something
    else together. `articles` say which one is meant: in ways of asking they don't count. `drop` may
    be left out anywhere, `openings` at the beginning of a sentence, or at
    its end after a comma. `intents` are what is wanted, by name, `same` everything else. Of two
    `poles` each side is the other's opposite; `negations` turn a sentence round. `inside` says that
    what is wanted is said in the middle of a sentence, where case endings tell who does what to
    whom; else only its beginning and end are places for that.
    """

    script: Literal["latin", "devanagari", "bengali", "tamil"]
    marks: list[str]
    spelled: dict[str, str] = {}
    joined: list[str] = []
    numbers: dict[str, str] = {}
    articles: dict[str, str] = {}
    drop: list[str] = []
    openings: list[str] = []
    intents: dict[str, list[str]]
    same: list[str]
    poles: list[str]
    negations: list[str]
    inside: bool = False


class Pattern(NamedTuple):
    """Words, and perhaps others that come later in the sentence, that stand for `name`."""

    head: tuple[str, ...]
    tail: tuple[str, ...]
    part: Part
    name: str


class Language(NamedTuple):
    """A language's words, ready to be looked up; `patterns` by their first word, the longest first.

    `little` are words that say how others belong together: where one is written as a name is, it
    isn't that word. `known` are all words.
    """

    name: str
    script: str
    marks: frozenset[str]
    spelled: dict[str, tuple[str, ...]]
    joined: frozenset[tuple[str, ...]]
    numbers: dict[str, str]
    articles: dict[str, str]
    drop: frozenset[str]
    patterns: dict[str, list[Pattern]]
    poles: dict[str, frozenset[str]]
    negations: frozenset[str]
    little: frozenset[str]
    known: frozenset[str]
    inside: bool


@cache
def languages() -> tuple[Language, ...]:
    """All languages that there are lists for; the first call reads their files."""
    return tuple(_language(path.stem, words_of(path)) for path in sorted(WORDS.glob("*.toml")))


def words_of(path: Path) -> Words:
    """The words of a file, their letters composed as those of a question are."""
    text = unicodedata.normalize("NFC", path.read_text(encoding="utf-8"))
    return msgspec.toml.decode(text, type=Words)


def ways(line: str) -> list[str]:
    """The ways of saying that a line of a list has."""
    return [way.strip() for way in line.split("|")]


def _language(name: str, words: Words) -> Language:
    patterns: dict[str, list[Pattern]] = {}
    for pattern in _patterns(words):
        patterns.setdefault(pattern.head[0], []).append(pattern)
    for several in patterns.values():
        several.sort(key=lambda one: -len(one.head) - len(one.tail))
    drop = frozenset(words.drop)
    every = [one for several in patterns.values() for one in several]
    frames = {word for one in every if one.part != "word" for word in (*one.head, *one.tail)}
    poles: dict[str, frozenset[str]] = {}
    for word, side in _poles(words):
        poles[word] = poles.get(word, frozenset()) | {side}
    short = {*words.drop, *words.articles, *words.marks, *words.negations, *words.spelled}
    return Language(
        name=name,
        script=words.script,
        marks=frozenset(words.marks),
        spelled={short: tuple(long.split()) for short, long in words.spelled.items()},
        joined=frozenset(tuple(phrase.split()) for phrase in words.joined),
        numbers=words.numbers,
        articles=words.articles,
        drop=drop,
        patterns=patterns,
        poles=poles,
        negations=frozenset(words.negations),
        little=frozenset(short | frames | set(poles)),
        known=frozenset(short | {word for one in every for word in one.head}),
        inside=words.inside,
    )


def _patterns(words: Words) -> Iterator[Pattern]:
    for intent, lines in words.intents.items():
        yield from _said(lines, "intent", intent)
    for line in words.same:
        yield from _said([line], "word", ways(line)[0])
    yield from _said(words.openings, "opening", "")


def _said(lines: Iterable[str], part: Part, name: str) -> Iterator[Pattern]:
    for line in lines:
        for way in ways(line):
            head, _, tail = way.partition("…")
            yield Pattern(tuple(head.split()), tuple(tail.split()), part, name)


def _poles(words: Words) -> Iterator[tuple[str, str]]:
    for at, line in enumerate(words.poles):
        for sign, side in zip("+-", line.split("/"), strict=True):
            for word in ways(side):
                yield word, f"{at}{sign}"
