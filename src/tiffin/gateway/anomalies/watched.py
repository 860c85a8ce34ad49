"""What is remembered of one key's requests: a few levels that leak, beside hashes; no text.

A level grows by one with each request of a kind and leaks its whole count in the time that the
count is for, as a bucket does. So it is at most one less than the count where no such time has that
many, and has reached the count where one has twice as many.
"""

from array import array

from tiffin.gateway.anomalies.sight import Sight
from tiffin.types.anomalies import Anomalies, Signal, Threshold

FORMS = 8
TRAILS = 4
RECENT = 32
ROUNDING = 1e-6


class Slots:
    """A few things by hashes of two numbers each, the one with the lowest level making room.

    Of `width` levels a thing has, each leaks by its own threshold.
    """

    __slots__ = ("_levels", "_most", "_numbers", "_width")

    def __init__(self, most: int, width: int, levels: int) -> None:
        self._most = most
        self._width = width
        self._numbers = array("q")
        self._levels = [array("d") for _ in range(levels)]

    def __len__(self) -> int:
        return len(self._numbers) // self._width

    def get(self, at: int) -> tuple[int, ...]:
        """The numbers of a place."""
        return tuple(self._numbers[at * self._width : (at + 1) * self._width])

    def set(self, at: int, numbers: tuple[int, ...]) -> None:
        """Other numbers at a place."""
        self._numbers[at * self._width : (at + 1) * self._width] = array("q", numbers)

    def find(self, first: int) -> int:
        """The place whose first number that is, -1 for none."""
        for at in range(len(self)):
            if self._numbers[at * self._width] == first:
                return at
        return -1

    def add(self, numbers: tuple[int, ...]) -> None:
        """Take a place for these, that of the lowest levels where there is no other."""
        if len(self) < self._most:
            self._numbers.extend(numbers)
            for levels in self._levels:
                levels.append(0.0)
            return
        at = min(range(len(self)), key=lambda one: max(levels[one] for levels in self._levels))
        self.set(at, numbers)
        for levels in self._levels:
            levels[at] = 0.0

    def leak(self, which: int, amount: float) -> None:
        """Take so much of every place's level."""
        levels = self._levels[which]
        for at, level in enumerate(levels):
            levels[at] = max(0.0, level - amount)

    def raised(self, which: int, at: int) -> float:
        """One more at a place; how much that is now."""
        levels = self._levels[which]
        levels[at] += 1
        return levels[at]


class Watched:
    """One key. `seen_at` is the monotonic second of its last request."""

    __slots__ = ("_extracted", "_forms", "_recent", "_trails", "seen_at")

    def __init__(self, now: float) -> None:
        self.seen_at = now
        # A form with what was the same, its sum of numbers and by how much that moved.
        self._forms = Slots(FORMS, 4, levels=2)
        # How long a text was, and its hash.
        self._trails = Slots(TRAILS, 2, levels=1)
        self._recent: array[int] | None = None
        self._extracted = 0.0

    def asked(self, seen: Sight, says: Anomalies, now: float) -> Signal | None:
        """A request came; which signal that gives, if any."""
        passed = max(0.0, now - self.seen_at)
        self.seen_at = now
        forms = self._forms
        forms.leak(0, passed * _rate(says.repetition))
        forms.leak(1, passed * _rate(says.enumeration))
        self._trails.leak(0, passed * _rate(says.growth))
        self._extracted = max(0.0, self._extracted - passed * _rate(says.extraction))
        if _is_over(self._grown(seen), says.growth):
            return "growth"
        repeated, enumerated = self._formed(seen)
        if _is_over(repeated, says.repetition):
            return "repetition"
        return "enumeration" if _is_over(enumerated, says.enumeration) else None

    def extracted(self, seen: Sight, says: Anomalies) -> Signal | None:
        """Its answer was as those are of which models are copied; which signal that gives."""
        whole = hash(seen.text)
        if self._recent is None:
            self._recent = array("q")
        if whole in self._recent:
            return None
        if len(self._recent) >= RECENT:
            del self._recent[0]
        self._recent.append(whole)
        self._extracted += 1
        return "extraction" if _is_over(self._extracted, says.extraction) else None

    def _formed(self, seen: Sight) -> tuple[float, float]:
        """How often it was the same, and how often its numbers went on in steps."""
        forms = self._forms
        at = forms.find(seen.form)
        if at < 0:
            forms.add((seen.form, seen.same, seen.total, 0))
            return forms.raised(0, forms.find(seen.form)), 0.0
        _, same, total, step = forms.get(at)
        moved = seen.total - total
        forms.set(at, (seen.form, seen.same, seen.total, moved))
        if same == seen.same:
            return forms.raised(0, at), 0.0
        return 0.0, forms.raised(1, at) if moved and moved == step else 0.0

    def _grown(self, seen: Sight) -> float:
        """How often it went on where an earlier one ended."""
        trails, text = self._trails, seen.text
        whole = (len(text), hash(text))
        for at in range(len(trails)):
            length, digest = trails.get(at)
            if (length, digest) == whole:
                return 0.0
            if length < len(text) and hash(text[:length]) == digest:
                trails.set(at, whole)
                return trails.raised(0, at)
        trails.add(whole)
        return 0.0


def _rate(threshold: Threshold) -> float:
    return threshold.count / threshold.within_s


def _is_over(level: float, threshold: Threshold) -> bool:
    # Where no such time has the whole count, no level is above one less.
    return threshold.count > 0 and level > threshold.count - 1 + ROUNDING
