"""What types can't say about alerts: where they go, what signs them, that anything is told."""

from collections.abc import Iterator
from typing import Final
from urllib.parse import urlsplit

from tiffin.config.alerts import Alert
from tiffin.config.hosts import has_host
from tiffin.config.references import broken_reference
from tiffin.config.shape import Problem

OF_TENANTS: Final = frozenset({"budget.threshold", "budget.runout", "key.anomaly"})
"""What is told of something that belongs to a tenant."""


def broken_alert(alert: Alert, where: str) -> Iterator[Problem]:
    """Every rule that a section breaks, but for the hosts that may be reached."""
    yield from broken_reference(alert, where, needed=True)
    if not _is_address(alert.url):
        yield Problem(
            f"{where}.url",
            "expected an address such as https://hooks.example.com/tiffin, without user, password"
            " and query",
        )
    if not alert.events:
        yield Problem(f"{where}.events", "expected at least one")
    if alert.tenants and not OF_TENANTS & set(alert.events):
        yield Problem(
            f"{where}.tenants", "only budgets and keys are a tenant's, and none of them is told"
        )


def _is_address(url: str) -> bool:
    try:
        parts = urlsplit(url)
        whole = all("!" <= letter <= "~" for letter in url)
        host = has_host(parts)
    except ValueError:
        return False
    extra = parts.username or parts.password or parts.query or parts.fragment
    return whole and host and parts.scheme in ("http", "https") and not extra
