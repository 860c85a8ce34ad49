"""When a process that ended is started again: at once after the first end, later each time after.

Health forgives: a process that served for a while before it ended isn't in a crash loop.
"""

from dataclasses import dataclass

FIRST_DELAY_S = 0.1
MAX_DELAY_S = 30.0
PERMANENT_DELAY_S = 60.0
FORGIVE_ALL_S = 60.0
FORGIVE_ONE_S = 2.0

_MOST_FAILURES = 11


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
        """The state after an end that came `healthy_s` seconds after the process became ready."""
        if healthy_s >= FORGIVE_ALL_S:
            left = 0
        else:
            left = max(0, self.failures - int(healthy_s / FORGIVE_ONE_S))
        return Restarts(failures=min(left + 1, _MOST_FAILURES), permanent=permanent)


def delay_s(failures: int) -> float:
    """0 for the first failure, then 0.1 s doubling up to 30 s."""
    if failures <= 1:
        return 0.0
    return min(MAX_DELAY_S, FIRST_DELAY_S * 2.0 ** min(failures - 2, _MOST_FAILURES))
