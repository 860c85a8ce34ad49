"""What was told already: each thing of a subject once in a period, in whatever order it comes."""

from collections.abc import Collection, Mapping

import msgspec


class Mark(msgspec.Struct, frozen=True, kw_only=True):
    """What of a subject was told in the period that began at `since_ns` (UTC)."""

    since_ns: int
    told: tuple[str, ...] = ()


Marks = Mapping[str, Mark]
"""By subject; a value: who marks something gets another one."""


def is_new(marks: Marks, subject: str, since_ns: int, what: str) -> bool:
    """Whether this is still to be told. Nothing is of a period before the one that is marked: a
    clock that steps back makes no period begin again."""
    mark = marks.get(subject)
    if mark is None or since_ns > mark.since_ns:
        return True
    return since_ns == mark.since_ns and what not in mark.told


def marked(marks: Marks, subject: str, since_ns: int, what: str) -> Marks:
    """With this as told; `is_new` was true of it."""
    mark = marks.get(subject)
    before = mark.told if mark is not None and mark.since_ns == since_ns else ()
    return {**marks, subject: Mark(since_ns=since_ns, told=(*before, what))}


def without_old(marks: Marks, before_ns: int, subjects: Collection[str]) -> Marks:
    """Those of periods that began at that moment or later, and of subjects that still matter."""
    return {
        subject: mark
        for subject, mark in marks.items()
        if mark.since_ns >= before_ns or subject in subjects
    }
