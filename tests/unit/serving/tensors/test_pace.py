"""Learnt run times: by size, never guessed from smaller ones, forgetting what was."""

from tiffin.serving.tensors.pace import Pace


def test_nothing_is_expected_before_anything_was_seen() -> None:
    assert Pace().expect(100) is None


def test_a_smaller_run_takes_no_longer_than_a_larger_one_that_was_seen() -> None:
    pace = Pace()
    pace.learn(1000, 0.5)
    assert pace.expect(1000) == pace.expect(100) == 0.5


def test_a_larger_run_isnt_guessed_from_a_smaller_one() -> None:
    pace = Pace()
    pace.learn(10, 0.0001)
    assert pace.expect(1000) is None


def test_a_slow_first_run_is_forgotten() -> None:
    pace = Pace()
    pace.learn(10, 1.0)
    for _ in range(30):
        pace.learn(10, 0.001)
    expected = pace.expect(10)
    assert expected is not None
    assert 0.001 <= expected < 0.002


def test_what_is_foreseen_lies_between_what_was_seen_and_is_never_a_wild_guess() -> None:
    pace = Pace()
    assert pace.foresee(100) == 0
    pace.learn(100, 0.1)
    pace.learn(1000, 1.0)
    assert pace.foresee(10) == 0.1
    assert 0.45 < pace.foresee(500) < 0.55
    assert pace.foresee(1500) == 1.5
    assert pace.foresee(100_000) == 2.0 <= pace.slowest


def test_one_outlier_is_believed_a_little_and_a_faster_run_at_once() -> None:
    pace = Pace()
    for _ in range(5):
        pace.learn(10, 0.001)
    pace.learn(10, 5.0)
    assert pace.foresee(10) < 0.002
    pace.learn(10, 0.0001)
    assert pace.foresee(10) < 0.001
    assert pace.foresee(10, cautious=True) > pace.foresee(10)
