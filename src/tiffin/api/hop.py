"""What gateway and replica tell each other of a request in `x-tiffin-*` headers."""

import math

import msgspec

from tiffin.errors import InvalidRequest
from tiffin.ports.clock import Clock
from tiffin.ports.exchange import Exchange
from tiffin.serving.replica import Context
from tiffin.types.usage import Usage


def context_of(exchange: Exchange, clock: Clock) -> Context:
    """For whom a request is, until when and how urgent; raises `InvalidRequest`."""
    tenant = (exchange.header(b"x-tiffin-tenant") or b"").decode("latin-1")
    batch = exchange.header(b"x-tiffin-priority") == b"batch"
    left_ms = exchange.header(b"x-tiffin-timeout-ms")
    if left_ms is None:
        return Context(tenant, math.inf, batch)
    if not left_ms.isdigit():
        raise InvalidRequest("x-tiffin-timeout-ms must be whole milliseconds")
    return Context(tenant, clock.monotonic() + int(left_ms) / 1000, batch)


def usage_header(usage: Usage) -> tuple[bytes, bytes]:
    """What a request used: the fields that aren't at their defaults."""
    told = msgspec.structs.asdict(usage)
    plain = msgspec.structs.asdict(Usage())
    changed = {name: value for name, value in told.items() if value != plain[name]}
    return b"x-tiffin-usage", msgspec.json.encode(changed)
