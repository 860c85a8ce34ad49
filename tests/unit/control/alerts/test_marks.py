"""What was told: once in a period, whatever the order, over restarts too."""

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from tiffin.control.alerts.marks import Mark, Marks, is_new, marked, without_old

events = st.lists(
    st.tuples(st.sampled_from(["a", "b"]), st.integers(1, 4), st.sampled_from(["50", "80", "100"])),
    max_size=60,
)


def written(marks: Marks) -> Marks:
    """What the next life of a process finds."""
    return msgspec.json.decode(msgspec.json.encode(dict(marks)), type=dict[str, Mark])


@given(events, st.sets(st.integers(0, 59)))
def test_each_is_told_once_in_a_period_and_none_of_one_that_is_over(
    seen: list[tuple[str, int, str]], restarts: set[int]
) -> None:
    marks: Marks = {}
    told: list[tuple[str, int, str]] = []
    newest: dict[str, int] = {}
    for number, (subject, since, what) in enumerate(seen):
        marks = written(marks) if number in restarts else marks
        new = is_new(marks, subject, since, what)
        over = since < newest.get(subject, 0)
        assert new == (not over and (subject, since, what) not in told)
        newest[subject] = max(since, newest.get(subject, 0))
        if new:
            told.append((subject, since, what))
            marks = marked(marks, subject, since, what)
        elif not over:
            newest[subject] = since
    assert len(set(told)) == len(told)


@given(st.permutations(["50", "80", "100"]), st.lists(st.sampled_from(["50", "80", "100"])))
def test_everything_that_happened_is_told(first: list[str], again: list[str]) -> None:
    marks: Marks = {}
    told = []
    for what in [*first, *again]:
        if is_new(marks, "a", 1, what):
            marks = marked(marks, "a", 1, what)
            told.append(what)
    assert sorted(told) == ["100", "50", "80"]


def test_old_marks_are_let_go() -> None:
    marks = marked(marked(marked({}, "old", 1, "x"), "new", 5, "x"), "so still", 1, "x")
    assert set(without_old(marks, 5, {"so still"})) == {"new", "so still"}
