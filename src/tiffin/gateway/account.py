"""One account a request: opened before any work, closed exactly once however the request ends."""

import asyncio
from types import TracebackType
from typing import Protocol

import msgspec

from tiffin.errors import (
    Blocked,
    Conflict,
    Draining,
    InvalidRequest,
    NotFound,
    PermissionDenied,
    QuotaExceeded,
    Rejected,
    TiffinError,
)
from tiffin.gateway.charge import NO_USAGE as NO_USAGE
from tiffin.gateway.charge import Charge
from tiffin.ports.clock import Clock
from tiffin.ports.exchange import Exchange
from tiffin.telemetry.events import Attempt, Closed, Opened, Outcome
from tiffin.telemetry.metrics import Meter
from tiffin.telemetry.redact import redact
from tiffin.types.ids import new_id
from tiffin.types.price import Price
from tiffin.types.snapshot import Principal
from tiffin.types.usage import Usage

REFUSALS = (
    InvalidRequest,
    NotFound,
    Rejected,
    Blocked,
    PermissionDenied,
    QuotaExceeded,
    Conflict,
    Draining,
)
STOPPED = "cancelled"
"""How a try ended that nobody waited for any more."""
END_USER = b"x-tiffin-end-user"
MAX_SAID = 4096
GIVEN = frozenset({"hit", "joined", "semantic", "stale"})
"""What caches say of an answer that wasn't made for this request."""
SECONDS = (0.01, 0.02, 0.04, 0.08, 0.16, 0.32, 0.64, 1.28, 2.56, 5.12, 10.24, 20.48, 40.96, 81.92)


class EventSink(Protocol):
    """Where accounts are written; `open` may refuse, `close` never does."""

    def open(self, event: Opened) -> None:
        """Write the opening; raises `JournalUnavailable`."""
        ...

    def close(self, event: Closed) -> None:
        """Write the closing, now or as soon as it can be written."""
        ...


class Accounts:
    """Opens accounts and measures what they say."""

    def __init__(self, sink: EventSink, meter: Meter, clock: Clock) -> None:
        self.clock = clock
        self.sink = sink
        self.requests = meter.counter(
            "tiffin_requests_total", "Requests with an account", ("model", "endpoint", "outcome")
        )
        self.duration = meter.histogram(
            "tiffin_request_duration_seconds", "Opening to closing", ("model",), SECONDS
        )
        self.ttft = meter.histogram(
            "tiffin_time_to_first_token_seconds",
            "Opening to the first byte of content handed over",
            ("model",),
            SECONDS,
        )
        self.attempts = meter.counter(
            "tiffin_attempts_total", "Tries at targets", ("target", "result")
        )
        self.hedges = meter.counter(
            "tiffin_hedges_total",
            "Second tries beside a first that was slow, by whether they gave the answer",
            ("model", "result"),
        )
        self.cache = meter.counter("tiffin_cache_total", "Cache look-ups", ("model", "result"))

    def open(
        self, principal: Principal, endpoint: str, exchange: Exchange, snapshot: int
    ) -> "Account":
        """Write the opening and return the account to hold; raises `JournalUnavailable`."""
        account = Account(self, endpoint, snapshot)
        given = trace_id(exchange)
        account.trace_id = given or account.id[4:]
        self.sink.open(
            Opened(
                id=account.id,
                at_ns=account.opened_ns,
                tenant=principal.tenant,
                key=principal.key,
                endpoint=endpoint,
                trace_id=given,
                client_id=said(exchange, b"x-request-id"),
                project=principal.project,
                end_user=said(exchange, END_USER),
                tag=said(exchange, b"x-tiffin-tag"),
            )
        )
        return account


class Account:
    """What one request came to. Times are seconds of the monotonic clock where not `_ns`.

    `fallback` is which target answers where it isn't the plan's first, else empty.
    Once it is closed, `cost_pico` is what its tenant pays, and `usage` is as far as it is known.
    """

    __slots__ = (
        "_accounts",
        "attempts",
        "cache",
        "charge",
        "cost_pico",
        "end_user",
        "endpoint",
        "error",
        "fallback",
        "first_at",
        "id",
        "kept_inputs",
        "model",
        "opened",
        "opened_ns",
        "revision",
        "snapshot",
        "status",
        "streamed",
        "trace_id",
        "usage",
    )

    def __init__(self, accounts: Accounts, endpoint: str, snapshot: int) -> None:
        self._accounts = accounts
        self.id = new_id("req")
        self.trace_id = ""
        self.opened_ns = accounts.clock.now_ns()
        self.opened = accounts.clock.monotonic()
        self.endpoint = endpoint
        self.end_user = ""
        self.snapshot = snapshot
        self.model = ""
        self.revision = ""
        self.status = 0
        self.error: TiffinError | None = None
        self.cache = ""
        self.fallback = ""
        self.kept_inputs = 0
        self.streamed = False
        self.first_at = 0.0
        self.usage = NO_USAGE
        self.charge = Charge()
        self.cost_pico = 0
        self.attempts: list[Attempt] = []

    def meant_for(self, name: str, exchange: Exchange) -> None:
        """The body says whom it is for, which counts where no header did."""
        if name and not exchange.header(END_USER):
            self.end_user = kept(name)

    def apart(self) -> "Account":
        """One for work that is done for this request, and perhaps for others with it: it isn't
        opened or closed, and whoever pays for the work takes it over."""
        work = Account(self._accounts, self.endpoint, self.snapshot)
        work.id, work.trace_id, work.model = self.id, self.trace_id, self.model
        return work

    def take(self, work: "Account", beside: "Account | None" = None) -> None:
        """What work came to is this request's, and that what was done `beside` it was in vain."""
        self.charge, self.attempts = work.charge, work.attempts
        self.usage, self.revision = work.usage, work.revision
        self.fallback = work.fallback
        if beside is not None:
            now, last = self._accounts.clock.monotonic(), beside.attempts[-1:]
            stopped = any(one.error == STOPPED for one in last)
            self.charge.beside(beside.charge, beside.usage, now, stopped=stopped)
            tries = sorted([*self.attempts, *beside.attempts], key=lambda one: one.started_ns)
            self.attempts[:] = [
                msgspec.structs.replace(one, n=n) for n, one in enumerate(tries, start=1)
            ]

    def hand_over(self, price: Price | None) -> None:
        """Somebody else takes what this request's work comes to."""
        self.usage, self.attempts, self.charge = NO_USAGE, [], Charge()
        self.given(price)

    def given(self, price: Price | None) -> None:
        """The answer was made for another request; what was tried for this one was in vain."""
        self.charge.free(price, self.usage, self._accounts.clock.monotonic())
        self.usage = NO_USAGE

    def elapsed_ms(self) -> int:
        """Whole milliseconds since it was opened."""
        return int((self._accounts.clock.monotonic() - self.opened) * 1000)

    def used(self) -> Usage:
        """The use of an answer that is there whole: what is told of its cost is what it costs."""
        now = self._accounts.clock.monotonic()
        self.usage = self.charge.used(self.usage, Outcome.OK, now)
        return self.usage

    def content_sent(self) -> None:
        """The first byte of content went to the client."""
        if not self.first_at:
            self.first_at = self._accounts.clock.monotonic()

    def tried(self, target: str, started: float, status: int, error: str, placed: str = "") -> None:
        """One attempt ended; `error` is a slug, empty where it went well."""
        clock = self._accounts.clock
        now_ns, lasted_ns = clock.now_ns(), int((clock.monotonic() - started) * 1e9)
        self.attempts.append(
            Attempt(
                n=len(self.attempts) + 1,
                target=target,
                started_ns=now_ns - lasted_ns,
                ended_ns=now_ns,
                status=status,
                error=error,
                placed=placed,
            )
        )
        self._accounts.attempts.add((target, error or "ok"))

    def __enter__(self) -> "Account":
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        accounts = self._accounts
        now = accounts.clock.monotonic()
        outcome, slug = self._outcome(error)
        lasted = now - self.opened
        charge = self.charge
        self.usage = charge.used(self.usage, outcome, now)
        self.cost_pico, loss_pico = charge.settle(self.usage, outcome)
        accounts.sink.close(
            Closed(
                id=self.id,
                at_ns=accounts.clock.now_ns(),
                outcome=outcome,
                status=self.status,
                error=slug,
                model=self.model,
                revision=self.revision,
                snapshot=self.snapshot,
                cache=self.cache,
                kept_inputs=self.kept_inputs,
                duration_ns=int(lasted * 1e9),
                ttft_ns=int((self.first_at - self.opened) * 1e9) if self.first_at else 0,
                usage=self.usage,
                cost_pico=self.cost_pico,
                loss_pico=loss_pico,
                currency=charge.currency,
                retried_ns=charge.retried_ns,
                target=charge.target,
                upstream=charge.upstream,
                end_user=self.end_user,
                attempts=self.attempts,
            )
        )
        accounts.requests.add((self.model, self.endpoint, outcome.value))
        accounts.duration.observe((self.model,), lasted)
        if self.first_at:
            accounts.ttft.observe((self.model,), self.first_at - self.opened)

    def _outcome(self, raised: BaseException | None) -> tuple[Outcome, str]:
        """The way the request ended: by what was raised, else by what was noted as its error."""
        if isinstance(raised, asyncio.CancelledError) and not self.error:
            return Outcome.CANCELLED, STOPPED
        error = self.error or raised
        if error is None:
            return Outcome.OK, ""
        slug = error.slug if isinstance(error, TiffinError) else TiffinError.slug
        if self.streamed:
            return Outcome.PARTIAL, slug
        if isinstance(error, REFUSALS):
            return Outcome.REFUSED, slug
        return Outcome.FAILED, slug


def trace_id(exchange: Exchange) -> str:
    """The trace id of a valid W3C `traceparent`, else empty."""
    header = exchange.header(b"traceparent")
    if header is None or len(header) < 55 or header[2:3] != b"-" or header[35:36] != b"-":
        return ""
    found = header[3:35].decode("latin-1")
    if not found.strip("0") or not all(c in "0123456789abcdef" for c in found):
        return ""
    return found


def said(exchange: Exchange, name: bytes) -> str:
    """What the client says in a header, redacted and cut to what is safe to keep: never a key."""
    header = exchange.header(name)
    return "" if header is None else kept(header.decode("utf-8", "replace"))


def kept(text: str) -> str:
    """What of a client's word on itself is kept: never anything that looks personal."""
    short = redact(text[:MAX_SAID])[:128]
    return "".join(c for c in short if c.isascii() and (c.isalnum() or c in "-_."))
