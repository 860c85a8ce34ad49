"""How long a reader of tokens may rest, so that those that come fast are taken several at once."""

from typing import Final

NEWEST: Final = 0.3
"""The newest gap's weight in the running mean."""
ON_TIME: Final = 1.05
"""How much longer than a rest a read may be and still have found all of it waiting."""
EARLY: Final = 0.95
"""The part of the way to the last token that is rested, so that it is waited for, not missed."""


def interval_s(wanted_ms: float, patience_s: float) -> float:
    """The longest rest: as wanted, but never so long that a token which came seems not to have.

    `patience_s` is how long a token is waited for (0: for ever).
    """
    return min(wanted_ms / 1000, patience_s / 2) if patience_s else wanted_ms / 1000


class Cadence:
    """One answer's: `interval_s` is the longest rest, `limit` how many tokens it has at most.

    Every token that is read wakes up each process on its way to the client, and beside an engine
    that uses all cores each of these wakes it holds up. Nobody reads faster than `interval_s`.
    """

    __slots__ = ("_gap_s", "_interval_s", "_last", "_limit", "_rested_s", "_tokens")

    def __init__(self, interval_s: float, limit: int) -> None:
        self._interval_s = interval_s
        self._limit = limit
        self._last: float | None = None
        self._gap_s = 0.0
        self._rested_s = 0.0
        self._tokens = 0

    def rest_s(self, now: float, tokens: int) -> float:
        """How long to rest after a read at this moment, when `tokens` have come in all."""
        came, self._tokens = tokens - self._tokens, tokens
        last, self._last = self._last, now
        if last is None or came <= 0:
            return 0.0
        # What was there at a rest's end had come before it: the next token is on its way already.
        overslept = now - last <= ON_TIME * self._rested_s
        gap_s = (now - last) / (came + overslept)
        self._gap_s += NEWEST * (gap_s - self._gap_s) if self._gap_s else gap_s
        self._rested_s = 0.0
        if self._gap_s < self._interval_s:
            left_s = self._gap_s * (self._limit - tokens)
            self._rested_s = min(self._interval_s, EARLY * left_s)
        return self._rested_s
