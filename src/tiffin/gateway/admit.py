"""Admission's first moment, before anything is parsed: room, concurrency and rate, all or none."""

from types import TracebackType

from tiffin.errors import ConcurrencyExceeded, Draining, Overloaded, RateLimited
from tiffin.gateway.limits.gcra import Gcra
from tiffin.ports.clock import Clock
from tiffin.ports.exchange import Headers
from tiffin.types.snapshot import Limits, Principal, Snapshot


class Scope:
    """A tenant or a key with a limit: what it may do, and what it does and has spent."""

    __slots__ = ("limit_header", "limits", "name", "rate", "running")

    def __init__(self, name: str) -> None:
        self.name = name
        self.limits = Limits()
        self.limit_header = (b"", b"")
        self.rate = Gcra()
        self.running = 0

    def set(self, limits: Limits) -> "Scope":
        """Take new limits; counts and spendings stay."""
        self.limits = limits
        if limits.requests_per_minute:
            burst = limits.burst or max(1, limits.requests_per_minute // 60)
            self.rate.set(60.0 / limits.requests_per_minute, burst)
            shown = b"%d" % limits.requests_per_minute
            self.limit_header = (b"x-ratelimit-limit-requests", shown)
        return self

    def check(self, now: float) -> None:
        """Raise what forbids one more request now; changes nothing."""
        limits = self.limits
        if limits.concurrency and self.running >= limits.concurrency:
            raise ConcurrencyExceeded(
                f"{self.name} already has {self.running} requests running, its limit is"
                f" {limits.concurrency}",
                retry_after=1.0,
            )
        if limits.requests_per_minute and (wait := self.rate.wait(now)) > 0:
            raise RateLimited(
                f"{self.name} is over its {limits.requests_per_minute} requests a minute",
                retry_after=wait,
            )


class Admission:
    """Counts what runs and what was spent, by tenant and by key."""

    def __init__(self, clock: Clock, max_in_flight: int) -> None:
        self.in_flight = 0
        self.draining = False
        self.clock = clock
        self._max_in_flight = max_in_flight
        self._scopes: dict[str, Scope] = {}
        self._of_key: dict[tuple[str, str], tuple[Scope, ...]] = {}
        self._snapshot = 0

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
        if snapshot.number != self._snapshot:
            self._adopt(snapshot)
        key = (principal.tenant, principal.key)
        scopes = self._of_key.get(key)
        if scopes is None:
            scopes = self._of_key[key] = self._find(principal, snapshot)
        now = self.clock.monotonic()
        for scope in scopes:
            scope.check(now)
        for scope in scopes:
            if scope.limits.requests_per_minute:
                scope.rate.spend(now)
        return Permit(self, scopes, now)

    @property
    def running(self) -> dict[str, int]:
        """Requests running now by limited tenant and key; those without any left out."""
        return {name: scope.running for name, scope in self._scopes.items() if scope.running}

    def _adopt(self, snapshot: Snapshot) -> None:
        """A new snapshot: look limits up afresh, and forget scopes that nobody has any more."""
        self._snapshot = snapshot.number
        self._of_key.clear()
        wanted = {_tenant_scope(name) for name in snapshot.tenant_limits}
        wanted.update(_key_scope(principal) for principal in snapshot.keys.values())
        self._scopes = {
            name: scope for name, scope in self._scopes.items() if name in wanted or scope.running
        }

    def _find(self, principal: Principal, snapshot: Snapshot) -> tuple[Scope, ...]:
        limits = {
            _tenant_scope(principal.tenant): snapshot.tenant_limits.get(principal.tenant),
            _key_scope(principal): principal.limits,
        }
        return tuple(
            self._scopes.setdefault(name, Scope(name)).set(limit)
            for name, limit in limits.items()
            if limit is not None and (limit.requests_per_minute or limit.concurrency)
        )


class Permit:
    """The right to run one request; leaving its context gives back what it held, however left."""

    __slots__ = ("_admission", "_now", "_scopes")

    def __init__(self, admission: Admission, scopes: tuple[Scope, ...], now: float) -> None:
        self._admission = admission
        self._scopes = scopes
        self._now = now

    def headers(self) -> Headers:
        """The rate-limit headers of the tightest limit that holds for this request."""
        tightest, least = None, 0
        for scope in self._scopes:
            if scope.limits.requests_per_minute:
                left = scope.rate.remaining(self._now)
                if tightest is None or left < least:
                    tightest, least = scope, left
        if tightest is None:
            return []
        wait_ms = max(0, tightest.rate.wait(self._now) * 1000)
        return [
            tightest.limit_header,
            (b"x-ratelimit-remaining-requests", b"%d" % least),
            (b"x-ratelimit-reset-requests", b"%dms" % wait_ms),
        ]

    def __enter__(self) -> "Permit":
        self._admission.in_flight += 1
        for scope in self._scopes:
            scope.running += 1
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._admission.in_flight -= 1
        for scope in self._scopes:
            scope.running -= 1


def _tenant_scope(tenant: str) -> str:
    return f"tenant '{tenant}'"


def _key_scope(principal: Principal) -> str:
    return f"key '{principal.tenant}/{principal.key}'"
