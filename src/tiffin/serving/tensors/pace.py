"""How long runs take, learnt from those that were: by size, in powers of two, a bounded table.

One pace learns what the running thread itself was busy, for what may run on the loop: what a run
waited for others says nothing about the model. Another learns whole runs, for what is promised and
for how large a batch gains anything.
"""

import math
from typing import Final

WEIGHT: Final = 0.25  # of the newest run in the running mean
FASTER_WEIGHT: Final = 0.5  # of one that took less than half: what was slow before is over
OUTLIER: Final = 4.0  # a single run counts as no more than so many times the mean
DEVIATIONS: Final = 2.0  # above the mean that a cautious promise stays
GAINING: Final = 0.97
"""Of the best rate that is known: who reaches that gains nothing by a larger batch."""
DISPATCH_S: Final = 0.0002
"""What starting a batch and telling its requests takes beside the run itself, about."""


class Pace:
    """Running means of run times in seconds, by how many elements went in."""

    __slots__ = ("_deviation", "_elements", "_seconds", "enough", "slowest")

    def __init__(self) -> None:
        self._seconds: dict[int, float] = {}
        self._elements: dict[int, float] = {}
        self._deviation: dict[int, float] = {}
        self.slowest = 0.0
        """Nothing is ever foreseen to take longer, however cautiously."""
        self.enough = math.inf
        """So many elements run at the best rate that is known; infinite: more may be better."""

    def learn(self, elements: int, seconds: float) -> None:
        """A run over so many elements took that long."""
        size = elements.bit_length()
        known = self._seconds.get(size)
        if known is None:
            self._seconds[size] = seconds
            self._elements[size] = elements
            self._deviation[size] = 0.0
        else:
            weight = FASTER_WEIGHT if seconds < known / 2 else WEIGHT
            off = min(seconds, OUTLIER * known) - known if known else seconds
            self._seconds[size] = known + weight * off
            self._elements[size] += weight * (elements - self._elements[size])
            self._deviation[size] += weight * (abs(off) - self._deviation[size])
        self.slowest = max(self._cautious(size) for size in self._seconds)
        self.enough = self._enough()

    def expect(self, elements: int) -> float | None:
        """How long such a run takes, from the next size that is known; None where none is.

        A size that nothing near was seen of isn't guessed from smaller ones.
        """
        size = elements.bit_length()
        for known in range(size, size + 6):
            if known in self._seconds:
                return self._seconds[known]
        return None

    def foresee(self, elements: float, *, cautious: bool = False) -> float:
        """How long such a run takes, along the line between the sizes next to it; 0: none is known.

        Smaller than any takes as long as the smallest; larger takes more in proportion, up to twice
        as much: nothing is refused for a wilder guess. `cautious` adds what such runs have usually
        differed by.
        """
        below = above = None
        for size in self._seconds:
            at = self._elements[size]
            if at <= elements and (below is None or size > below):
                below = size
            if at >= elements and (above is None or size < above):
                above = size
        near = below if above is None else above
        if near is None:
            return 0.0
        end = self._elements[near]
        seconds = self._seconds[near]
        if above is None:
            seconds *= min(2.0, elements / end) if end else 1.0
        elif below is not None and below != above:
            begin = self._elements[below]
            part = (end - elements) / (end - begin)
            seconds -= part * (seconds - self._seconds[below])
        return seconds + DEVIATIONS * self._deviation[near] if cautious else seconds

    def _enough(self) -> float:
        rates = {
            size: self._elements[size] / (seconds + DISPATCH_S)
            for size, seconds in self._seconds.items()
        }
        best = GAINING * max(rates.values())
        size = min(size for size, rate in rates.items() if rate >= best)
        return self._elements[size] if size < max(rates) else math.inf

    def _cautious(self, size: int) -> float:
        return 2 * self._seconds[size] + DEVIATIONS * self._deviation[size]
