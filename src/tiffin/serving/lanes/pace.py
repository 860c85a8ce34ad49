"""How fast a model reads and writes and how long its answers are, learnt from those it gave.

All of it is bounded and forgets: what was long ago, or a slow spell, isn't believed for ever.
"""

from bisect import bisect_right, insort
from collections import deque
from typing import Final

READ_WEIGHT: Final = 0.15  # of the newest prompt in what is known of reading
FRESH_WEIGHT: Final = 0.1  # of the newest prompt in how much of one isn't remembered
OUTLIER: Final = 4.0  # a single prompt counts as no more than so many times what was foreseen
SPREAD: Final = 0.3  # of the mean size that sizes differ by, before a slope is seen in them
FARTHEST: Final = 2.0  # times the mean that is foreseen where no slope was seen
WRITE_HALF: Final = 256.0  # tokens after which half of what was known is forgotten
LENGTHS: Final = 128  # answers that are remembered
UNSEEN: Final = 512  # tokens that an answer is taken to have at most where none was seen
ENOUGH: Final = 8  # answers of like limits that say more than the limit
PROMISED: Final = 0.9  # of answers are no longer than what a newcomer's is taken to be


class Reading:
    """Seconds from having a slot to the first token, along a line over what must be read."""

    __slots__ = ("_n", "_x", "_xx", "_xy", "_y")

    def __init__(self) -> None:
        self._n = self._x = self._y = self._xx = self._xy = 0.0

    def learn(self, size: float, seconds: float) -> None:
        """Reading so much took that long."""
        if self._n:
            seconds = min(seconds, OUTLIER * max(self.at(size), self._y / self._n))
        keep = 1 - READ_WEIGHT
        self._n = keep * self._n + 1
        self._x = keep * self._x + size
        self._y = keep * self._y + seconds
        self._xx = keep * self._xx + size * size
        self._xy = keep * self._xy + size * seconds

    def at(self, size: float) -> float:
        """How long it takes; 0: nothing is known.

        Where all sizes were much the same, half of the time is taken to grow with them, and nothing
        is foreseen to take more than twice as long: nobody is refused for a wilder guess.
        """
        if not self._n:
            return 0.0
        mean, seconds = self._x / self._n, self._y / self._n
        if not mean:
            return seconds
        spread = self._xx / self._n - mean * mean
        if spread > (SPREAD * mean) ** 2:
            slope = (self._xy / self._n - mean * seconds) / spread
            slope = min(max(slope, 0.0), seconds / mean)
            return seconds + slope * (size - mean)
        return min(FARTHEST * seconds, seconds * (0.5 + 0.5 * size / mean))


class Writing:
    """Seconds a token, by how many slots run: a mean for each number, at most one a slot."""

    __slots__ = ("_known", "_slots")

    def __init__(self, slots: int) -> None:
        self._slots = slots
        self._known: dict[int, tuple[float, float]] = {}  # seconds and tokens, fading

    def learn(self, running: float, seconds: float, tokens: float) -> None:
        """So many tokens of one answer took that long, while so many slots ran."""
        level = min(max(round(running), 1), self._slots)
        known_s, known = self._known.get(level, (0.0, 0.0))
        keep = 0.5 ** (tokens / WRITE_HALF)
        self._known[level] = keep * known_s + seconds, keep * known + tokens

    def at(self, running: int) -> float:
        """How long a token takes, between the two nearest numbers that were seen; 0: none was."""
        below = max((level for level in self._known if level <= running), default=None)
        above = min((level for level in self._known if level >= running), default=None)
        if below is None and above is None:
            return 0.0
        low = self._mean(above if below is None else below)
        if above is None or below is None or above == below:
            return low
        return low + (self._mean(above) - low) * (running - below) / (above - below)

    def _mean(self, level: int | None) -> float:
        seconds, tokens = self._known[level or 0]
        return seconds / tokens


class Lengths:
    """How many tokens answers come to have where their limit doesn't say.

    Clients that know what they ask for set limits near it, so answers are told apart by the size of
    their limit, in powers of two. Before enough of a size were seen the limit is believed: those
    that end first are the short ones.
    """

    def __init__(self) -> None:
        self._of_size: dict[int, _Survival] = {}

    def add(self, tokens: int, limit: int, *, ended: bool) -> None:
        """An answer of at most `limit` had so many; `ended` by itself."""
        self._of_size.setdefault(limit.bit_length(), _Survival()).add(tokens, ended=ended)

    def mean(self, limit: int) -> float:
        """What is to be expected of an answer with this limit."""
        return self._like(limit).mean(limit)

    def promised(self, limit: int) -> float:
        """What nine of ten such answers don't exceed."""
        return self._like(limit).promised(limit)

    def left(self, done: int, limit: int) -> float:
        """What is to be expected yet of an answer that has `done` already."""
        return self._like(limit).left(done, limit)

    def _like(self, limit: int) -> "_Survival":
        of_size = self._of_size.get(limit.bit_length())
        return of_size if of_size is not None and of_size.count >= ENOUGH else _Survival()


class _Survival:
    """The part of answers that is longer than so many tokens, by Kaplan and Meier.

    Those that ended by themselves say how long answers are; those that were cut off, by a limit or
    by who left, only that they are longer.
    """

    def __init__(self) -> None:
        self._recent: deque[tuple[int, bool]] = deque()
        self._sorted: list[tuple[int, bool]] = []
        self._times: list[float] = []
        self._alive: list[float] = []  # the part of answers that is longer
        self._area: list[float] = []  # below that curve

    @property
    def count(self) -> int:
        """How many are remembered."""
        return len(self._recent)

    def add(self, tokens: int, *, ended: bool) -> None:
        """An answer had so many; `ended` by itself."""
        if len(self._recent) == LENGTHS:
            self._sorted.remove(self._recent.popleft())
        self._recent.append((tokens, ended))
        insort(self._sorted, (tokens, ended))
        self._times.clear()

    def mean(self, limit: float) -> float:
        """What is to be expected of an answer with this limit."""
        self._draw()
        return self._area_to(min(limit, self._horizon()))

    def promised(self, limit: float) -> float:
        """What nine of ten such answers don't exceed."""
        self._draw()
        for at, alive in zip(self._times, self._alive, strict=True):
            if alive <= 1 - PROMISED:
                return min(limit, at)
        return min(limit, self._horizon())

    def left(self, done: float, limit: float) -> float:
        """What is to be expected yet of an answer that has `done` already.

        One that is longer than all that were seen is taken to need half as much again.
        """
        self._draw()
        end = min(limit, self._horizon())
        alive = self._alive[bisect_right(self._times, done) - 1]
        if done >= end or alive <= 0:
            return min(max(limit - done, 0.0), done / 2)
        return (self._area_to(end) - self._area_to(done)) / alive

    def _horizon(self) -> float:
        longest = self._sorted[-1][0] if self._sorted else 0
        return max(UNSEEN, 2 * longest)

    def _area_to(self, tokens: float) -> float:
        at = bisect_right(self._times, tokens) - 1
        return self._area[at] + self._alive[at] * (tokens - self._times[at])

    def _draw(self) -> None:
        if self._times:
            return
        self._times, self._alive, self._area = [0.0], [1.0], [0.0]
        rest, alive = len(self._sorted), 1.0
        for tokens, ended in self._sorted:
            if ended:
                area = self._area[-1] + alive * (tokens - self._times[-1])
                alive *= 1 - 1 / rest
                self._times.append(tokens)
                self._alive.append(alive)
                self._area.append(area)
            rest -= 1


class Pace:
    """What is known of one model here: `slots` is how many answers it gives at once."""

    def __init__(self, slots: int) -> None:
        self.reading = Reading()
        self.writing = Writing(slots)
        self.lengths = Lengths()
        self._slots = slots
        self._fresh = 1.0

    def learn_fresh(self, size: float, tokens: int) -> None:
        """Of a prompt of so many tokens, `size` had to be read."""
        if tokens:
            self._fresh += FRESH_WEIGHT * (size / tokens - self._fresh)

    def size(self, tokens: int) -> float:
        """How much of a prompt will have to be read, by how much of others was remembered."""
        return tokens * self._fresh

    @property
    def token_s(self) -> float:
        """Seconds a token while all slots run, as they do while anybody waits."""
        return self.writing.at(self._slots)

    def hold_s(self, size: float, answer: float) -> float:
        """How long a slot is held to read so much and write that many tokens; 0: nothing known."""
        return self.reading.at(size) + max(answer - 1, 0) * self.token_s
