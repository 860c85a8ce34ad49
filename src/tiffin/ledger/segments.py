"""Prices over time: stretches with a constant price each, and what they come to, exactly."""

from collections.abc import Iterable, Sequence
from datetime import UTC, datetime, timedelta, timezone
from fractions import Fraction
from math import floor
from typing import Final, NamedTuple

from tiffin.ports.ledger import HALF_HOUR_NS, Span

SECOND_NS: Final = 1_000_000_000
HOUR_NS: Final = 3600 * SECOND_NS
DAY_NS: Final = 24 * HOUR_NS
FOREVER_NS: Final = 2**62
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_HALF: Final = Fraction(1, 2)


class Segment(NamedTuple):
    """From a moment to another a nanosecond costs so many pico-units."""

    since_ns: int
    until_ns: int
    pico: Fraction


def amount(segments: Iterable[Segment], span: Span) -> int:
    """What a span of whole half hours costs, in pico-units.

    Every half hour is rounded on its own, so that what two spans cost is what both together do.
    """
    total = 0
    for segment in segments:
        since = max(segment.since_ns, span.since_ns)
        until = min(segment.until_ns, span.until_ns)
        if since < until:
            total += _rounded(segment.pico, since, until)
    return total


def within(segments: Iterable[Segment], stretches: Sequence[Span]) -> list[Segment]:
    """The parts of segments that lie in stretches, which don't overlap."""
    return [
        Segment(max(one.since_ns, part.since_ns), min(one.until_ns, part.until_ns), one.pico)
        for one in segments
        for part in stretches
        if max(one.since_ns, part.since_ns) < min(one.until_ns, part.until_ns)
    ]


def joined(stretches: Iterable[Span]) -> list[Span]:
    """Stretches without overlaps, in order."""
    found: list[Span] = []
    for one in sorted(stretches):
        if found and one.since_ns <= found[-1].until_ns:
            found[-1] = Span(found[-1].since_ns, max(found[-1].until_ns, one.until_ns))
        else:
            found.append(one)
    return found


def share_of(total: int, whole: Span, part: Span) -> int:
    """An amount's share for a part of its time; shares of parts that follow each other add up."""
    length = whole.until_ns - whole.since_ns
    since = min(max(part.since_ns, whole.since_ns), whole.until_ns)
    until = min(max(part.until_ns, since), whole.until_ns)
    if not length:
        return total if part.since_ns <= whole.since_ns < part.until_ns else 0
    before = total * (since - whole.since_ns) // length
    return total * (until - whole.since_ns) // length - before


def periods(span: Span, per: str, zone: timezone) -> list[Span]:
    """The hours, days, months or years of the calendar that touch a span; of hours and days one."""
    if per in ("hour", "day"):
        return [span]
    found: list[Span] = []
    begins = _EPOCH + timedelta(seconds=span.since_ns // SECOND_NS)
    at = begins.astimezone(zone).replace(day=1, hour=0, minute=0, second=0, microsecond=0)
    if per == "year":
        at = at.replace(month=1)
    while moment(at) < span.until_ns:
        after = _following(at, per)
        found.append(Span(moment(at), moment(after)))
        at = after
    return found


def moment(told: datetime) -> int:
    """A datetime as UTC nanoseconds."""
    return (told - _EPOCH) // timedelta(seconds=1) * SECOND_NS


def years_after(since_ns: int, years: int, zone: timezone) -> int:
    """The moment so many years later; a 29th of February becomes the first of March."""
    at = (_EPOCH + timedelta(seconds=since_ns // SECOND_NS)).astimezone(zone)
    try:
        return moment(at.replace(year=at.year + years))
    except ValueError:
        return moment(at.replace(year=at.year + years, month=3, day=1))


def _following(at: datetime, per: str) -> datetime:
    if per == "year" or at.month == 12:
        return at.replace(year=at.year + 1, month=1)
    return at.replace(month=at.month + 1)


def _rounded(pico: Fraction, since: int, until: int) -> int:
    first = -(-since // HALF_HOUR_NS) * HALF_HOUR_NS
    last = until // HALF_HOUR_NS * HALF_HOUR_NS
    if first > last:
        return _nearest(pico * (until - since))
    whole = (last - first) // HALF_HOUR_NS
    edges = _nearest(pico * (first - since)) + _nearest(pico * (until - last))
    return whole * _nearest(pico * HALF_HOUR_NS) + edges


def _nearest(amount: Fraction) -> int:
    return floor(amount + _HALF)
