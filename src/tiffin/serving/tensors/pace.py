"""How long runs take, learnt from those that were: by size, in powers of two, a bounded table.

Learnt is what the running thread itself was busy: what it waited for others says nothing about the
model, and would keep a quick model off the loop for as long as the loop is busy.
"""

from typing import Final

WEIGHT: Final = 0.25  # of the newest run in the running mean


class Pace:
    """Running means of run times in seconds, by how many elements went in."""

    __slots__ = ("_seconds",)

    def __init__(self) -> None:
        self._seconds: dict[int, float] = {}

    def learn(self, elements: int, seconds: float) -> None:
        """A run over so many elements took that long."""
        size = elements.bit_length()
        known = self._seconds.get(size)
        self._seconds[size] = seconds if known is None else known + WEIGHT * (seconds - known)

    def expect(self, elements: int) -> float | None:
        """How long such a run takes, from the next size that is known; None where none is.

        A size that nothing near was seen of isn't guessed from smaller ones.
        """
        size = elements.bit_length()
        for known in range(size, size + 6):
            if known in self._seconds:
                return self._seconds[known]
        return None
