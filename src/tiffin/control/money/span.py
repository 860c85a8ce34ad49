"""The time that somebody asks about: days or moments, this month where nothing is said."""

from datetime import UTC, datetime, timedelta

from tiffin.config.prices import moment_ns
from tiffin.errors import SchemaViolation
from tiffin.ledger.book import Book
from tiffin.ledger.segments import FOREVER_NS, moment
from tiffin.ports.ledger import HALF_HOUR_NS, Span


def asked_span(since: str, until: str, book: Book, now_ns: int) -> Span:
    """From a day or moment (empty: this month's begin) until another (empty: now), in whole half
    hours; raises `SchemaViolation` for what is none, by its field."""
    now = datetime.fromtimestamp(0, UTC) + timedelta(microseconds=now_ns // 1000)
    month = now.astimezone(book.zone).replace(day=1, hour=0, minute=0, second=0, microsecond=0)
    first = _asked(since, "since", book) if since else moment(month)
    end = _asked(until, "until", book) if until else now_ns
    last = -(-min(end, now_ns) // HALF_HOUR_NS) * HALF_HOUR_NS
    span = Span(first // HALF_HOUR_NS * HALF_HOUR_NS, last)
    if span.since_ns >= span.until_ns:
        message = "'until' must be later than 'since', and that in the past"
        raise SchemaViolation(message, param="until")
    return span


def _asked(text: str, name: str, book: Book) -> int:
    try:
        # No earlier than there can be anything, nor later than a ledger can say.
        return min(max(moment_ns(text, book.zone), 0), FOREVER_NS)
    except ValueError:
        raise SchemaViolation(
            f"'{name}' is a day such as 2026-04-01, or a moment with its offset", param=name
        ) from None
