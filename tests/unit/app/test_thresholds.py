"""What a semantic cache learns from labelled pairs, and when it is off."""

import json
from collections.abc import Sequence
from pathlib import Path

import pytest

from tiffin.app.pairs import Pair, sample_pairs
from tiffin.app.thresholds import Trial, trials, verdict, verdicts
from tiffin.cli.calibrating_cache import read_pairs, section, table
from tiffin.errors import InvalidRequest


def tried(same: bool, agreed: bool, *similar: float, language: str = "en") -> list[Trial]:
    pair = Pair(a="a", b="b", same=same, language=language)
    return [Trial(pair, agreed, one) for one in similar]


RIGHT = [*tried(True, True, *(0.80 + n / 500 for n in range(100)))]
NEAR = tried(False, False, *[0.99] * 40, *[0.5] * 60)


def test_it_costs_few_of_the_right_and_counts_what_vectors_alone_would_let_through() -> None:
    found = verdict("en", RIGHT + NEAR)
    assert found.threshold == pytest.approx(0.808, abs=0.001)
    assert (found.false_hits, found.vectors_alone, found.why) == (0, 40, "")
    assert found.recall == pytest.approx(0.94, abs=0.021)


def test_it_is_above_every_wrong_pair_that_rules_let_pass() -> None:
    found = verdict("en", RIGHT + NEAR + tried(False, True, 0.9))
    assert found.threshold == pytest.approx(0.91)
    assert found.false_hits == 0
    assert 0.3 < found.recall < 0.6


@pytest.mark.parametrize(
    ("trials", "why"),
    [
        (RIGHT[:39] + NEAR, "too few"),
        (RIGHT + NEAR[:79], "too few"),
        (RIGHT + NEAR + tried(False, True, 1.0), "as similar as can be"),
        (RIGHT + NEAR + tried(False, True, 0.985), "less than 10%"),
        (RIGHT + tried(False, False, *[0.99] * 100), "don't tell"),
        (tried(True, False, *[0.9] * 50) + NEAR, "rules take none"),
    ],
    ids=["right", "near", "wrong", "useless", "blind", "nothing is found"],
)
def test_a_language_that_isnt_safe_is_off(trials: list[Trial], why: str) -> None:
    found = verdict("en", trials)
    assert found.threshold is None
    assert why in found.why
    assert section("e", [found]) == ["no language is safe: leave the semantic cache off"]
    assert "off" in table([found])[1]


def letters(texts: Sequence[str]) -> list[list[float]]:
    return [[float(text.lower().count(chr(97 + n))) + 0.1 for n in range(26)] for text in texts]


def test_our_own_pairs_have_no_false_hit() -> None:
    found = verdicts(trials(sample_pairs("ta") + sample_pairs("en"), letters))
    assert [one.language for one in found] == ["en", "ta"]
    assert [one.false_hits for one in found] == [0, 0]
    assert sum(one.vectors_alone for one in found) > 500, "these vectors tell little apart"
    safe = [one._replace(threshold=0.9) for one in found]
    assert section("e", safe)[2] == "thresholds = { en = 0.9, ta = 0.9 }"


def test_pairs_are_read_and_a_line_that_is_none_is_named(tmp_path: Path) -> None:
    path = tmp_path / "pairs.jsonl"
    line = json.dumps({"a": "x", "b": "y", "same": False, "language": "hi"})
    path.write_text(f"{line}\n\n{line}\n")
    assert len(read_pairs(path)) == 2
    path.write_text(f'{line}\n{{"a": 1}}\n')
    with pytest.raises(InvalidRequest, match="line 2"):
        read_pairs(path)
    path.write_text("\n")
    with pytest.raises(InvalidRequest, match="no pairs"):
        read_pairs(path)
    with pytest.raises(InvalidRequest, match="can't be read"):
        read_pairs(tmp_path / "none")
