"""`[egress]`: the hosts that models of other servers may be at, and who is told of alerts."""

import re
from collections.abc import Iterator, Sequence
from urllib.parse import urlsplit

from tiffin.config.models import RemoteModel
from tiffin.config.schema import Config
from tiffin.config.shape import Problem

PORTS = {"http": 80, "https": 443}
ANY = "*"
_HOST = re.compile(r"(\*\.)?[a-z0-9_-]+(\.[a-z0-9_-]+)*|[0-9a-f:.]*:[0-9a-f:.]*")


def broken_egress(config: Config) -> Iterator[Problem]:
    """Entries that name no host, and addresses that no entry allows."""
    allowed = config.egress.allow
    for number, entry in enumerate(allowed):
        if entry != ANY and _parsed(entry) is None:
            message = f'expected "host", "host:port", "*.domain" or "*", found "{entry[:80]}"'
            yield Problem(f"egress.allow[{number}]", message)
    addresses = {
        f"models.{name}.url": model.address
        for name, model in config.models.items()
        if isinstance(model, RemoteModel)
    }
    addresses |= {f"alerts.{name}.url": alert.url for name, alert in config.alerts.items()}
    for where, url in addresses.items():
        if not may_reach(url, allowed):
            yield Problem(
                where,
                "its host isn't in egress.allow; add it there, or leave that list out",
            )


def may_reach(url: str, allowed: Sequence[str]) -> bool:
    """Whether an entry allows an address; `*.domain` is every host below that domain."""
    if ANY in allowed:
        return True
    try:
        parts = urlsplit(url)
        host, port = (parts.hostname or "").rstrip("."), parts.port or PORTS.get(parts.scheme)
    except ValueError:
        return False
    return any(_fits(host, port, entry) for entry in allowed)


def _fits(host: str, port: int | None, entry: str) -> bool:
    parsed = _parsed(entry)
    if parsed is None or parsed[1] not in (None, port):
        return False
    name = parsed[0]
    return host.endswith(name[1:]) if name.startswith("*.") else host == name


def _parsed(entry: str) -> tuple[str, int | None] | None:
    """An entry's host and port, where it has one; None for what is no entry."""
    try:
        parts = urlsplit(f"//{entry}")
        host, port = (parts.hostname or "").rstrip("."), parts.port
    except ValueError:
        return None
    if parts.netloc != entry or "@" in entry or not _HOST.fullmatch(host):
        return None
    return host, port
