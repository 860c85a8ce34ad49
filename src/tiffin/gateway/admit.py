"""Admission's first moment, before anything is parsed: room, concurrency and rate, all or none."""

from collections import Counter
from types import TracebackType

from tiffin.errors import ConcurrencyExceeded, Draining, Overloaded, RateLimited
from tiffin.gateway.limits.gcra import Rate, RateTable
from tiffin.ports.clock import Clock
from tiffin.ports.exchange import Headers
from tiffin.types.snapshot import Limits, Principal, Snapshot


class Admission:
    """Counts what runs and what was spent, by tenant and by key."""

    def __init__(self, clock: Clock, max_in_flight: int) -> None:
        self.in_flight = 0
        self.draining = False
        self.running: Counter[str] = Counter()
        self._clock = clock
        self._max_in_flight = max_in_flight
        self._rates = RateTable()

    def admit(self, principal: Principal, snapshot: Snapshot) -> "Permit":
        """A permit to hold while the request runs, or a `Rejected` that says when to try again.

        The rate stays spent even if the request fails later; a refusal spends nothing.
        """
        if self.draining:
            raise Draining("the server is stopping; try again in a moment", retry_after=5.0)
        if self.in_flight >= self._max_in_flight:
            raise Overloaded(
                f"all {self._max_in_flight} places for requests are taken", retry_after=1.0
            )
        scopes = _scopes(principal, snapshot)
        if not scopes:
            return Permit(self, ())
        now = self._clock.monotonic()
        for name, limits in scopes:
            self._check(name, limits, now)
        for name, limits in scopes:
            if limits.requests_per_minute:
                rate = Rate.per_minute(limits.requests_per_minute, limits.burst)
                self._rates.spend(name, rate, now)
        return Permit(self, tuple(name for name, limits in scopes if limits.concurrency))

    def headers(self, principal: Principal, snapshot: Snapshot) -> Headers:
        """The rate-limit headers of the tightest limit that holds for this principal."""
        now = self._clock.monotonic()
        tightest: tuple[int, int, float] | None = None
        for name, limits in _scopes(principal, snapshot):
            if limits.requests_per_minute:
                rate = Rate.per_minute(limits.requests_per_minute, limits.burst)
                left = self._rates.remaining(name, rate, now)
                wait = self._rates.wait(name, rate, now)
                if tightest is None or left < tightest[1]:
                    tightest = (limits.requests_per_minute, left, wait)
        if tightest is None:
            return []
        limit, left, wait = tightest
        return [
            (b"x-ratelimit-limit-requests", b"%d" % limit),
            (b"x-ratelimit-remaining-requests", b"%d" % left),
            (b"x-ratelimit-reset-requests", b"%dms" % round(wait * 1000)),
        ]

    def tick(self) -> None:
        """Forget what is back at its start; call it now and then."""
        self._rates.forget_idle(self._clock.monotonic())

    def _check(self, name: str, limits: Limits, now: float) -> None:
        if limits.concurrency and self.running[name] >= limits.concurrency:
            raise ConcurrencyExceeded(
                f"{name} already has {limits.concurrency} requests running, its limit",
                retry_after=1.0,
            )
        if limits.requests_per_minute:
            rate = Rate.per_minute(limits.requests_per_minute, limits.burst)
            wait = self._rates.wait(name, rate, now)
            if wait > 0:
                raise RateLimited(
                    f"{name} is over its {limits.requests_per_minute} requests a minute",
                    retry_after=wait,
                )


class Permit:
    """The right to run one request; leaving its context gives back what it held, however left."""

    __slots__ = ("_admission", "_held")

    def __init__(self, admission: Admission, held: tuple[str, ...]) -> None:
        self._admission = admission
        self._held = held

    def __enter__(self) -> "Permit":
        self._admission.in_flight += 1
        for name in self._held:
            self._admission.running[name] += 1
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._admission.in_flight -= 1
        running = self._admission.running
        for name in self._held:
            running[name] -= 1
            if not running[name]:
                del running[name]


def _scopes(principal: Principal, snapshot: Snapshot) -> list[tuple[str, Limits]]:
    scopes = []
    tenant = snapshot.tenant_limits.get(principal.tenant)
    if tenant is not None and (tenant.requests_per_minute or tenant.concurrency):
        scopes.append((f"tenant '{principal.tenant}'", tenant))
    own = principal.limits
    if own.requests_per_minute or own.concurrency:
        scopes.append((f"key '{principal.tenant}/{principal.key}'", own))
    return scopes
