"""What became of each thing in somebody's file: what maps, what doesn't, what is left to do."""

from collections.abc import Iterator
from enum import Enum
from typing import NamedTuple


class Fate(Enum):
    """What became of a setting, as a report heads it."""

    MAPPED = "Mapped"
    DIFFERENT = "Mapped, and not quite the same"
    DROPPED = "Not mapped"
    TO_DO = "What you have to do"


class Note(NamedTuple):
    """One thing of a report: where it stands in the file, and a sentence about it."""

    fate: Fate
    where: str
    text: str


class Report:
    """Notes in the order in which they came; the same one is taken once. No value stands in it."""

    def __init__(self) -> None:
        self.notes: list[Note] = []

    def mapped(self, where: str, text: str) -> None:
        """It is there now."""
        self._add(Note(Fate.MAPPED, where, text))

    def different(self, where: str, text: str) -> None:
        """It is there, and does something else in some cases."""
        self._add(Note(Fate.DIFFERENT, where, text))

    def dropped(self, where: str, text: str) -> None:
        """It isn't there, for a reason."""
        self._add(Note(Fate.DROPPED, where, text))

    def to_do(self, where: str, text: str) -> None:
        """Somebody has to do something before it serves."""
        self._add(Note(Fate.TO_DO, where, text))

    def lines(self) -> Iterator[str]:
        """The report as text, by what became of things."""
        for fate in Fate:
            notes = [note for note in self.notes if note.fate is fate]
            if notes:
                yield f"{fate.value}:"
                yield from (f"  {note.where}: {note.text}" for note in notes)
                yield ""

    def _add(self, note: Note) -> None:
        # Names are somebody's, and this is for a terminal.
        where, text = (
            "".join(letter if letter.isprintable() else " " for letter in one)
            for one in (note.where, note.text)
        )
        note = Note(note.fate, where, text)
        if note not in self.notes:
            self.notes.append(note)
