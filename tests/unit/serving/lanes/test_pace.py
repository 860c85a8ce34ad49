"""What is learnt of a model's speed and of the lengths of its answers."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tiffin.serving.lanes.pace import LENGTHS, UNSEEN, Lengths, Pace, Reading, Writing


def test_reading_is_a_line_over_sizes_once_they_differ() -> None:
    reading = Reading()
    assert reading.at(100) == 0
    for size in (50, 400, 100, 900, 50, 400):
        reading.learn(size, 0.1 + size / 1000)
    assert reading.at(0) == pytest.approx(0.1, abs=0.01)
    assert reading.at(3000) == pytest.approx(3.1, abs=0.1)


def test_reading_is_never_taken_for_much_longer_than_what_was_seen_of_one_size() -> None:
    reading = Reading()
    for _ in range(5):
        reading.learn(20, 0.1)
    assert reading.at(20) == pytest.approx(0.1)
    assert reading.at(4000) == pytest.approx(0.2)


def test_a_slow_spell_of_reading_is_forgotten() -> None:
    reading = Reading()
    reading.learn(10, 0.1)
    reading.learn(10, 60.0)
    for _ in range(20):
        reading.learn(10, 0.1)
    assert reading.at(10) < 0.12


def test_writing_is_known_by_how_many_slots_run_and_between() -> None:
    writing = Writing(4)
    assert writing.at(4) == 0
    writing.learn(1.2, 1.0, 100)
    assert writing.at(4) == pytest.approx(0.01)
    writing.learn(3.9, 4.0, 100)
    assert writing.at(4) == pytest.approx(0.04)
    assert writing.at(2) == pytest.approx(0.02)


def test_a_few_tokens_say_less_of_writing_than_many() -> None:
    writing = Writing(1)
    writing.learn(1, 4.0, 4)  # a warm-up's
    writing.learn(1, 1.0, 1000)
    assert writing.at(1) < 0.0015


def test_where_nothing_was_seen_an_answer_is_taken_for_as_long_as_its_limit_but_not_endless() -> (
    None
):
    lengths = Lengths()
    assert lengths.mean(10) == 10
    assert lengths.mean(100_000) == UNSEEN
    assert lengths.left(4, 10) == 6


def test_answers_that_end_by_themselves_tell_how_long_answers_are() -> None:
    lengths = Lengths()
    for tokens in range(1, 101):
        lengths.add(tokens, 4000, ended=True)
    assert lengths.mean(4000) == pytest.approx(50.5)
    assert lengths.promised(4000) == 90
    assert lengths.promised(16) == 16
    assert lengths.mean(3000) == pytest.approx(50.5)
    assert lengths.left(80, 4000) == pytest.approx(10.5)
    assert lengths.left(200, 4000) == 100


def test_those_that_were_cut_off_count_as_longer() -> None:
    lengths = Lengths()
    for _ in range(50):
        lengths.add(16, 4000, ended=False)
        lengths.add(100, 4000, ended=True)
    assert lengths.mean(4000) == pytest.approx(100)


def test_the_oldest_lengths_are_forgotten() -> None:
    lengths = Lengths()
    for _ in range(LENGTHS):
        lengths.add(1000, 4000, ended=True)
    for _ in range(LENGTHS):
        lengths.add(10, 4000, ended=True)
    assert lengths.mean(4000) == pytest.approx(10)


@given(
    st.lists(st.tuples(st.integers(0, 500), st.booleans()), max_size=200),
    st.integers(0, 600),
    st.integers(1, 5000),
)
def test_what_is_left_fits_the_limit(seen: list[tuple[int, bool]], done: int, limit: int) -> None:
    lengths = Lengths()
    for tokens, ended in seen:
        lengths.add(tokens, 600, ended=ended)
    assert 0 <= lengths.left(done, limit) <= max(limit - done, 0) + 1e-6
    assert 0 <= lengths.mean(limit) <= limit
    assert lengths.promised(limit) <= limit


def test_a_prompt_that_is_mostly_remembered_is_mostly_not_read() -> None:
    pace = Pace(1)
    assert pace.size(1000) == 1000
    for _ in range(50):
        pace.learn_fresh(100, 1000)
    assert pace.size(1000) == pytest.approx(100, rel=0.1)


def test_limits_that_are_always_reached_are_believed() -> None:
    lengths = Lengths()
    for _ in range(10):
        for tokens in (10, 40, 90, 180):
            lengths.add(tokens, tokens, ended=True)
    assert sum(lengths.mean(limit) for limit in (10, 40, 90, 180)) == 320
