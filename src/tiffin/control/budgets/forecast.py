"""When a budget runs out, if spending goes on as it did: a moment and an interval, or neither.

Over the last n whole hours, at most a week and from the first on that cost anything, an hour cost m
on average, with a standard deviation of s. So h hours from now on cost m·h, give or take
z·s·√(h + h²/n): the first part is what hours differ by, the second how well m is known from n of
them. With z = 1.2816 eight of ten such intervals are wide enough, where hours are independent.
(The prediction interval of a mean, as in Hahn and Meeker, Statistical Intervals, 1991, §4.8, with
the normal's quantile.) The budget runs out where m·h is what is left of it, early and late where
m·h with what it may be more or less is.

Floats are good enough here: nothing is charged by a forecast.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from math import ceil, sqrt
from typing import Final

from tiffin.ledger.segments import HOUR_NS
from tiffin.ports.ledger import Span

AT_LEAST_HOURS: Final = 6
AT_MOST_HOURS: Final = 168
QUANTILE: Final = 1.2816


@dataclass(frozen=True, slots=True)
class Forecast:
    """Moments are UTC nanoseconds, 0 where the period ends first. `known` is false where there is
    not enough history; `by_end_pico` is what will have been spent when the period ends."""

    known: bool = False
    expected_ns: int = 0
    earliest_ns: int = 0
    latest_ns: int = 0
    by_end_pico: int = 0


def history(hours: Mapping[int, int], now_ns: int, offset_ns: int = 0) -> list[int]:
    """What each whole hour cost lately, the oldest first, from the first on that cost anything."""
    ends = (now_ns + offset_ns) // HOUR_NS * HOUR_NS - offset_ns
    since = ends - AT_MOST_HOURS * HOUR_NS
    first = min((hour for hour, cost in hours.items() if since <= hour < ends and cost), default=0)
    if not first:
        return []
    return [hours.get(hour, 0) for hour in range(first, ends, HOUR_NS)]


def forecast(costs: Sequence[int], spent: int, amount: int, now_ns: int, period: Span) -> Forecast:
    """What follows from the costs of past hours for the rest of a period."""
    if spent >= amount:
        return Forecast(True, now_ns, now_ns, now_ns, spent)
    n = len(costs)
    if n < AT_LEAST_HOURS:
        return Forecast()
    mean = sum(costs) / n
    deviation = sqrt(sum((cost - mean) ** 2 for cost in costs) / (n - 1))
    left, rest = amount - spent, (period.until_ns - now_ns) / HOUR_NS

    def more(h: float) -> float:
        return QUANTILE * deviation * sqrt(h + h * h / n)

    def at(cost: Callable[[float], float]) -> int:
        h = _reaches(cost, left, rest)
        return now_ns + ceil(h * HOUR_NS) if h < rest else 0

    return Forecast(
        known=True,
        expected_ns=at(lambda h: mean * h),
        earliest_ns=at(lambda h: mean * h + more(h)),
        latest_ns=at(lambda h: mean * h - more(h)),
        by_end_pico=spent + int(mean * rest),
    )


def _reaches(cost: Callable[[float], float], wanted: float, within: float) -> float:
    """The last hour before which it costs less than that for good; `within` where it never does."""
    if cost(within) < wanted:
        return within
    low, high = 0.0, within
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if cost(middle) < wanted else (low, middle)
    return high
