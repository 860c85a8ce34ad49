"""When a process that ended is started again: at once after the first end, later each time after.

Health forgives: a process that became ready is back within a second however often it ends, and
one that served for a while starts with a clean record.
"""

from dataclasses import dataclass

FIRST_DELAY_S = 0.1
MAX_DELAY_S = 30.0
PERMANENT_DELAY_S = 60.0
FORGIVE_ALL_S = 60.0
FORGIVE_ONE_S = 2.0

_MOST_FAILURES = 11
_MOST_AFTER_READY = 5


@dataclass(frozen=True, slots=True)
class Restarts:
    """How often a process ended lately, and whether its last end can't be mended by itself."""

    failures: int = 0
    permanent: bool = False

    @property
    def delay_s(self) -> float:
        """Seconds to wait before the next start."""
        if self.permanent:
            return PERMANENT_DELAY_S
        return delay_s(self.failures)

    def after_end(self, *, healthy_s: float, permanent: bool) -> "Restarts":
        """The state after an end that came `healthy_s` seconds after ready (0: it never was)."""
        forgiven = int(min(healthy_s, FORGIVE_ALL_S) / FORGIVE_ONE_S)
        most = _MOST_AFTER_READY if healthy_s > 0.0 else _MOST_FAILURES
        failures = min(max(0, self.failures - forgiven) + 1, most)
        return Restarts(failures=failures, permanent=permanent)


def delay_s(failures: int) -> float:
    """0 for the first failure, then 0.1 s doubling up to 30 s."""
    if failures <= 1:
        return 0.0
    return min(MAX_DELAY_S, FIRST_DELAY_S * 2.0 ** min(failures - 2, _MOST_FAILURES))
