"""What every replica's edge shares: the hop's headers, finding an endpoint, telling of failures."""

import math
from collections.abc import Awaitable, Callable, Mapping
from types import TracebackType
from typing import Final

import msgspec

from tiffin.dialects.openai.errors import hop_error_response, stream_error_event
from tiffin.errors import (
    EndpointNotFound,
    InvalidRequest,
    MethodNotAllowed,
    RunFailed,
    TiffinError,
)
from tiffin.ports.clock import Clock
from tiffin.ports.exchange import Exchange
from tiffin.serving.context import Context
from tiffin.telemetry import log
from tiffin.types.usage import Usage

LONGEST_HOP_S: Final = 3600.0
"""What comes from further back than this, or from the future, was told by another clock."""
MAX_DIGITS: Final = 18
_TIMES: Final = (b"x-tiffin-timeout-ms", b"x-tiffin-aim-ms", b"x-tiffin-first-ms")


def context_of(exchange: Exchange, clock: Clock) -> Context:
    """For whom a request is, until when and how urgent; raises `InvalidRequest`."""
    tenant = (exchange.header(b"x-tiffin-tenant") or b"").decode("latin-1")
    batch = exchange.header(b"x-tiffin-priority") == b"batch"
    opened, sent = _clock(exchange, clock.monotonic())
    deadline, aim, first = [sent + _left_s(exchange, name) for name in _TIMES]
    most = _most_tokens(exchange)
    return Context(tenant, deadline, batch, aim, first, _weight(exchange), opened, most)


def _clock(exchange: Exchange, now: float) -> tuple[float, float]:
    """When a request was opened, and when it was sent here; `now` where that isn't known.

    Its sender reads the same clock, for it is a process of this machine: the hop is a unix socket.
    """
    said = exchange.header(b"x-tiffin-clock")
    if said is None:
        return now, now
    opened, _, sent = said.partition(b" ")
    if not (_is_whole(opened) and _is_whole(sent)):
        raise InvalidRequest("x-tiffin-clock must be two moments in microseconds")
    opened_s, sent_s = int(opened) / 1e6, int(sent) / 1e6
    if not now - LONGEST_HOP_S <= opened_s <= sent_s <= now:
        return now, now
    return opened_s, sent_s


def _weight(exchange: Exchange) -> float:
    said = exchange.header(b"x-tiffin-weight")
    if said is None:
        return 1.0
    try:
        weight = float(said)
    except ValueError:
        weight = 0.0
    if not 0 < weight < math.inf:
        raise InvalidRequest("x-tiffin-weight must be a number above 0")
    return weight


def _most_tokens(exchange: Exchange) -> int:
    said = exchange.header(b"x-tiffin-most-tokens")
    if said is None:
        return 0
    if not _is_whole(said):
        raise InvalidRequest("x-tiffin-most-tokens must be a whole number")
    return int(said)


def _left_s(exchange: Exchange, name: bytes) -> float:
    left_ms = exchange.header(name)
    if left_ms is None:
        return math.inf
    if not _is_whole(left_ms):
        raise InvalidRequest(f"{name.decode()} must be whole milliseconds")
    return int(left_ms) / 1000


def _is_whole(said: bytes) -> bool:
    """Whether it is a whole number that can be a time."""
    return said.isdigit() and len(said) <= MAX_DIGITS


def usage_header(usage: Usage) -> tuple[bytes, bytes]:
    """What a request used: the fields that aren't at their defaults."""
    told = msgspec.structs.asdict(usage)
    plain = msgspec.structs.asdict(Usage())
    changed = {name: value for name, value in told.items() if value != plain[name]}
    return b"x-tiffin-usage", msgspec.json.encode(changed)


Answer = Callable[[Exchange], Awaitable[None]]
Routes = Mapping[bytes, tuple[bytes, Answer]]
"""Method and handler of each path."""


def route_of(routes: Routes, exchange: Exchange) -> Answer:
    """Who answers an exchange; raises `EndpointNotFound` or `MethodNotAllowed`."""
    method, answer = routes.get(exchange.path, (b"", None))
    if answer is None:
        raise EndpointNotFound(f"a replica has no {exchange.path.decode('latin-1')[:80]}")
    if exchange.method != method:
        allowed = method.decode()
        raise MethodNotAllowed(f"this endpoint takes {allowed} only", allowed=allowed)
    return answer


class failures_told:  # noqa: N801 - reads as the statement that it is
    """Whatever breaks inside ends this one request, and the gateway is told of it once.

    In a begun stream that is its last event, and the connection is cut, so that it never looks
    complete. `spent` is what the request used until then, where anybody knows.
    """

    __slots__ = ("_exchange", "_spent")

    def __init__(
        self, exchange: Exchange, spent: Callable[[], Usage | None] = lambda: None
    ) -> None:
        self._exchange = exchange
        self._spent = spent

    def __enter__(self) -> None:
        return None

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> bool:
        if not isinstance(error, Exception):
            return False
        if not isinstance(error, TiffinError):
            request = (self._exchange.header(b"x-tiffin-request") or b"").decode("latin-1")
            log.error("a request failed unexpectedly", request=request, exc_info=error)
            error = RunFailed("the replica failed on this request; its log says why")
        self._tell(error)
        return True

    def _tell(self, error: TiffinError) -> None:
        exchange = self._exchange
        if exchange.gone:
            return
        if exchange.begun:
            exchange.write(stream_error_event(error))
            exchange.abort()
        else:
            status, headers, body = hop_error_response(error)
            spent = self._spent()
            told = [usage_header(spent)] if spent is not None else []
            exchange.respond(status, [*headers, *told], body)
