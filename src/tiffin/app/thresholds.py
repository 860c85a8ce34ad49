"""How similar two questions must be for one's answer to be given to the other, by language: learnt
from labelled pairs, and tried on others of them. Pure."""

from collections.abc import Callable, Iterable, Sequence
from math import ceil
from typing import Final, NamedTuple

from tiffin.app.pairs import Pair
from tiffin.gateway.cache.semantic import cosine
from tiffin.gateway.cache.wording.meaning import Meaning, meaning_of, same

LEAST_SAME: Final = 40
LEAST_NEAR: Final = 80
MARGIN: Final = 0.01
"""How much more similar than any wrong pair one has to be."""
GIVEN_UP: Final = 0.05
"""The part of the right pairs, the least similar ones, that a threshold may cost."""
USEFUL: Final = 0.1
"""A threshold that finds less than this part of the right pairs isn't worth its embedder's work."""
BLIND: Final = 0.5
"""Vectors that would let more than this part of what differs through are no second judge."""

Embed = Callable[[Sequence[str]], list[list[float]]]


class Trial(NamedTuple):
    """A pair, whether rules take it for the same, and how similar its vectors are."""

    pair: Pair
    agreed: bool
    similarity: float

    def hits(self, threshold: float) -> bool:
        """Whether one's answer would be given to the other."""
        return self.agreed and self.similarity >= threshold


class Verdict(NamedTuple):
    """What a language's pairs came to. `threshold` is None where it is off, and `why` says why.

    `false_hits` are of all `near` pairs; `recall` is the part of the right pairs which weren't
    learnt from that is found. `vectors_alone` is how many near pairs the threshold would let
    through if there were no rules.
    """

    language: str
    same: int
    near: int
    threshold: float | None
    false_hits: int
    recall: float
    vectors_alone: int
    why: str = ""


def trials(pairs: Sequence[Pair], embed: Embed) -> list[Trial]:
    """Pairs with what both judges say; `embed` gives the vectors of texts, each asked once."""
    texts = list(dict.fromkeys(text for pair in pairs for text in (pair.a, pair.b)))
    vectors = dict(zip(texts, embed(texts), strict=True))
    meanings = {text: meaning_of(text) for text in texts}
    return [
        Trial(
            pair,
            _agreed(meanings[pair.a], meanings[pair.b], pair.language),
            cosine(vectors[pair.a], vectors[pair.b]),
        )
        for pair in pairs
    ]


def verdicts(tried: Iterable[Trial]) -> list[Verdict]:
    """A verdict for every language of the trials, in alphabetical order."""
    by_language: dict[str, list[Trial]] = {}
    for one in tried:
        by_language.setdefault(one.pair.language, []).append(one)
    return [verdict(name, found) for name, found in sorted(by_language.items())]


def verdict(language: str, tried: Sequence[Trial]) -> Verdict:
    """Learn from every other right pair and from all that differ; report on the remaining."""
    right = [one for one in tried if one.pair.same]
    near = [one for one in tried if not one.pair.same]
    learnt, kept_back = right[::2], right[1::2]
    threshold = _threshold(learnt, near)
    vectors_alone = sum(one.similarity >= threshold for one in near)
    false_hits = sum(one.hits(threshold) for one in near)
    recall = sum(one.hits(threshold) for one in kept_back) / max(1, len(kept_back))
    why = ""
    if len(right) < LEAST_SAME or len(near) < LEAST_NEAR:
        why = f"too few pairs: it takes {LEAST_SAME} that are the same and {LEAST_NEAR} that aren't"
    elif not any(one.agreed for one in learnt):
        why = "rules take none of those that are the same for that"
    elif threshold > 1 or false_hits:
        why = "pairs that differ are as similar as can be, and rules take them for the same"
    elif recall < USEFUL:
        why = f"it would find less than {USEFUL:.0%} of what is the same"
    elif vectors_alone > BLIND * len(near):
        why = (
            f"its vectors don't tell this language's questions apart: {vectors_alone} of"
            f" {len(near)} that differ are as similar as those that are the same"
        )
    return Verdict(
        language=language,
        same=len(right),
        near=len(near),
        threshold=None if why else threshold,
        false_hits=false_hits,
        recall=recall,
        vectors_alone=vectors_alone,
        why=why,
    )


def _agreed(one: Meaning | None, other: Meaning | None, language: str) -> bool:
    """Whether rules take both for the same, in the language that they are said to be in."""
    if one is None or other is None or one.language != language:
        return False
    return same(one, other)


def _threshold(right: Sequence[Trial], near: Sequence[Trial]) -> float:
    """As high as costs few right pairs, and higher than any wrong one that rules let pass; over 1
    where nothing can be."""
    found = sorted(one.similarity for one in right if one.agreed)
    least = found[int(len(found) * GIVEN_UP)] if found else 1.0
    wrong = max((one.similarity + MARGIN for one in near if one.agreed), default=0.0)
    # Rounded so that it is as it is printed; downwards it would let more through.
    return ceil(max(min(least, 1.0), wrong) * 1000 - 1e-6) / 1000
