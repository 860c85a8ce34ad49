"""The day or month of the calendar that a moment is in."""

from datetime import UTC, datetime, timedelta, timezone

from tiffin.ledger.segments import DAY_NS, moment
from tiffin.ports.ledger import Span


def period(per: str, now_ns: int, zone: timezone) -> Span:
    """The period that a moment is in; days and months begin as the zone has them."""
    now = datetime.fromtimestamp(now_ns // 1_000_000_000, UTC).astimezone(zone)
    today = now.replace(hour=0, minute=0, second=0, microsecond=0)
    if per == "day":
        return Span(moment(today), moment(today) + DAY_NS)
    first = today.replace(day=1)
    after = (first + timedelta(days=31)).replace(day=1)
    return Span(moment(first), moment(after))
