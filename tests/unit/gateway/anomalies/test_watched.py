"""What is odd of a key's requests, by its law: never below the count, always at twice as many."""

from collections.abc import Sequence
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tiffin.gateway.anomalies.sight import MAX_CHARACTERS, Sight, noise, sight
from tiffin.gateway.anomalies.watched import Watched
from tiffin.ports.guard import Piece
from tiffin.types.anomalies import Anomalies, Signal, Threshold

FIVE = Threshold(count=5, within_s=10.0)
SAYS = Anomalies(repetition=FIVE, growth=FIVE, enumeration=FIVE, extraction=FIVE)
gaps = st.lists(st.sampled_from([0.0, 0.5, 1.0, 1.9, 2.1, 3.0, 9.0, 11.0]), max_size=40)


def of(*texts: str) -> Sight:
    found = sight(Piece(f"messages[{at}].content", text) for at, text in enumerate(texts))
    assert found is not None
    return found


def signals(requests: Sequence[Sight], waits: Sequence[float], says: Anomalies) -> list[Signal]:
    """The signals that some requests give, each so long after the one before."""
    key, now, found = Watched(100.0), 100.0, []
    for one, wait in zip(requests, waits, strict=True):
        now += wait
        signal = key.asked(one, says, now)
        if signal is not None:
            found.append(signal)
    return found


def most_within(waits: Sequence[float], within_s: float) -> int:
    """How many come in the busiest time of that length."""
    moments = [sum(waits[: n + 1]) for n in range(len(waits))]
    return max((sum(m < o <= m + within_s or o == m for o in moments) for m in moments), default=0)


@given(gaps)
def test_the_same_again_and_again_is_told_by_its_law(waits: list[float]) -> None:
    found = signals([of("hello")] * len(waits), waits, SAYS)
    busiest = most_within(waits, FIVE.within_s)
    if busiest < FIVE.count:
        assert not found
    if busiest >= 2 * FIVE.count + 1:  # the first is what is repeated
        assert "repetition" in found


@given(gaps, st.integers(-3, 3).filter(bool))
def test_numbers_in_steps_are_told_by_their_law(waits: list[float], step: int) -> None:
    requests = [of(f"user {1000 + step * n} of the list") for n in range(len(waits))]
    found = signals(requests, waits, SAYS)
    busiest = most_within(waits, FIVE.within_s)
    if busiest < FIVE.count:
        assert not found
    if busiest >= 2 * FIVE.count + 2:  # the first two make the step
        assert set(found) == {"enumeration"}


@given(gaps)
def test_what_goes_on_where_it_ended_is_told_by_its_law(waits: list[float]) -> None:
    words = [f"step {n * n * 7919}" for n in range(len(waits))]
    found = signals([of(*words[: n + 1]) for n in range(len(waits))], waits, SAYS)
    busiest = most_within(waits, FIVE.within_s)
    if busiest < FIVE.count:
        assert not found
    if busiest >= 2 * FIVE.count + 1:
        assert "growth" in found


@pytest.mark.parametrize(
    "other",
    [
        "Fetch  THE page, at 12:31:07!",
        "fetch the page at 2026-12-03T08:00:00Z",
        "fetch the page at 1764750000123",
    ],
    ids=["case, spaces, a time", "a date", "a moment"],
)
def test_times_case_and_spaces_make_no_difference(other: str) -> None:
    assert of("fetch the page at 09:00").same == of(other).same


def test_ids_make_no_difference_and_numbers_do() -> None:
    one, other = (f"load {UUID(int=n)} and deadbeef12345{n}00" for n in (1, 2))
    assert of(one).same == of(other).same
    assert of("order 17").same != of("order 18").same
    assert of("order 17").form == of("order 18").form
    assert of("order 17").form != of("invoice 17").form


def test_numbers_without_steps_are_ordinary() -> None:
    requests = [of(f"what about order {7919 * n * n % 10007}?") for n in range(40)]
    assert signals(requests, [0.0] * 40, SAYS) == []


def test_a_count_of_0_is_never_odd() -> None:
    never = Threshold(count=0, within_s=1.0)
    says = Anomalies(repetition=never, growth=never, enumeration=never, extraction=never)
    assert signals([of("x")] * 99, [0.0] * 99, says) == []


def test_a_loop_is_seen_among_the_other_requests_of_its_key() -> None:
    requests = [of("again") if n % 3 else of(f"{chr(97 + n % 26) * 9} {n}") for n in range(60)]
    assert "repetition" in signals(requests, [0.01] * 60, SAYS)


@given(st.lists(st.integers(0, 9), max_size=40))
def test_an_answer_to_the_same_text_is_counted_once_at_a_time(texts: list[int]) -> None:
    key = Watched(0.0)
    found = [key.extracted(of(f"text {n}"), SAYS) for n in texts]
    assert ("extraction" in found) == (len(set(texts)) >= FIVE.count)


def test_what_is_too_long_or_empty_is_not_looked_at() -> None:
    assert sight([Piece("messages[0].content", "x" * (MAX_CHARACTERS + 1))]) is None
    assert sight([Piece("", "model"), Piece("model", "m"), Piece("prompt", None)]) is None


ENGLISH = "The quick brown fox jumps over the lazy dog while the rain falls on the plain. " * 3
HINDI = "भारत की राजधानी नई दिल्ली है और यहाँ बहुत से लोग रहते हैं। " * 4
CODE = 'def f(x: int) -> str:\n    return f"{x!r}: {[y ** 2 for y in range(x)]}"  # {"a": 1}\n' * 3
JSON = '{"id": 17, "name": "Asha", "tags": ["a", "b"], "price": 12.50, "at": "2026-01-01"}' * 3
RANDOM = "q9Xv2LmB7zKd0RtY4sWc8HnJ1pGf6uEaQ3oTi5VlZxM_NbCyDkFjAhSgPw-OrUe+IJ4K2L9M7N1B5V8C3X6Z0"


@pytest.mark.parametrize(
    ("text", "noisy"),
    [(ENGLISH, False), (HINDI, False), (CODE, False), (JSON, False), (RANDOM, True), ("x9", False)],
    ids=["english", "hindi", "code", "json", "random", "short"],
)
def test_random_letters_look_random_and_languages_do_not(text: str, noisy: bool) -> None:
    assert (noise(text) >= Anomalies().noise_bits) == noisy
