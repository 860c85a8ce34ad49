"""Pairs of questions that mean the same, and of such as only look alike: made by rules, for every
language that there are lists for. By them a semantic cache is calibrated and tested."""

from collections.abc import Iterator, Sequence
from itertools import combinations, islice, product
from pathlib import Path
from typing import Final

import msgspec

FILES: Final = Path(__file__).parents[1] / "starter" / "pairs"
PER_KIND: Final = 48
"""How many of a kind a family makes."""


class Pair(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Two questions, and whether one's answer is the other's. `kind` is how they differ."""

    a: str
    b: str
    same: bool
    language: str
    kind: str = ""


class Family(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Ways to ask the same of a thing `{x}` and a verb `{v}`; `near` differ, and say in what."""

    same: list[str]
    near: dict[str, list[str]]


class Detail(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Ways to ask the same about `{d}`: another one of its kind is another question."""

    same: list[str]
    number: list[str] = []
    unit: list[str] = []
    date: list[str] = []
    name: list[str] = []


class Topic(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Questions as people ask them, and others near by."""

    same: list[str]
    near: list[str]


class Patterns(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A language's file: forms of one verb are parted by `|`, opposites by `/`."""

    things: list[str]
    verbs: list[str]
    opposites: list[str]
    families: list[Family]
    details: list[Detail]
    topics: list[Topic]


def sample_pairs(language: str = "") -> list[Pair]:
    """All pairs, or those of one language; each once."""
    found = [
        pair
        for path in sorted(FILES.glob("*.toml"))
        if language in ("", path.stem)
        for pair in _pairs(path.stem, msgspec.toml.decode(path.read_bytes(), type=Patterns))
    ]
    return list(dict.fromkeys(found))


def _pairs(language: str, patterns: Patterns) -> Iterator[Pair]:
    verbs = [_forms(verb) for verb in patterns.verbs]
    for family in patterns.families:
        yield from _of_family(language, family, patterns, verbs)
    for detail in patterns.details:
        yield from _of_detail(language, detail)
    for topic in patterns.topics:
        for a, b in combinations(topic.same, 2):
            yield Pair(a=a, b=b, same=True, language=language, kind="topic")
        for a, b in product(topic.same, topic.near):
            yield Pair(a=a, b=b, same=False, language=language, kind="topic")


def _of_family(
    language: str, family: Family, patterns: Patterns, verbs: Sequence[Sequence[str]]
) -> Iterator[Pair]:
    """Fills the places of its ways in turn, so that every thing and every verb comes."""
    things = patterns.things

    def spell(at: int, template: str, verb: Sequence[str], thing: str) -> str:
        said = template.replace("{x}", thing).replace("{v}", verb[at % len(verb)])
        return said[0].upper() + said[1:] if template[0].isupper() else said

    ways = list(combinations(family.same, 2))
    for at in range(2 * PER_KIND):
        a, b = ways[at % len(ways)]
        verb, thing = verbs[at % len(verbs)], things[at * 7 % len(things)]
        made = [spell(at + n, way, verb, thing) for n, way in enumerate((a, b))]
        yield Pair(a=made[0], b=made[1], same=True, language=language, kind="wording")
    for kind, others in family.near.items():
        for at, (a, b) in enumerate(islice(product(family.same, others), PER_KIND)):
            verb, thing = verbs[at % len(verbs)], things[at * 7 % len(things)]
            one, other = spell(at, a, verb, thing), spell(at, b, verb, thing)
            yield Pair(a=one, b=other, same=False, language=language, kind=kind)
    for at in range(PER_KIND):
        a, b = ways[at % len(ways)]
        thing, next_thing = things[at % len(things)], things[(at * 5 + 1) % len(things)]
        verb, next_verb = verbs[at % len(verbs)], verbs[(at + 1) % len(verbs)]
        sides = patterns.opposites[at % len(patterns.opposites)].split("/")
        plus, minus = map(_forms, sides)
        swaps = {
            "polarity": (spell(at, a, plus, thing), spell(at, b, minus, thing)),
            "action": (spell(at, a, verb, thing), spell(at, b, next_verb, thing)),
        }
        if thing != next_thing:
            swaps["entity"] = spell(at, a, verb, thing), spell(at, b, verb, next_thing)
        for kind, (one, other) in swaps.items():
            yield Pair(a=one, b=other, same=False, language=language, kind=kind)


def _of_detail(language: str, detail: Detail) -> Iterator[Pair]:
    for kind in ("number", "unit", "date", "name"):
        values: list[str] = getattr(detail, kind)
        for at, value in enumerate(values):
            for a, b in combinations(detail.same, 2):
                one, other = a.replace("{d}", value), b.replace("{d}", value)
                yield Pair(a=one, b=other, same=True, language=language, kind=kind)
            for n, other_value in enumerate(values[:at] + values[at + 1 :]):
                a, b = detail.same[n % len(detail.same)], detail.same[at % len(detail.same)]
                one, other = a.replace("{d}", value), b.replace("{d}", other_value)
                yield Pair(a=one, b=other, same=False, language=language, kind=kind)


def _forms(line: str) -> list[str]:
    return [form.strip() for form in line.split("|")]
