"""Admission: two moments and one permit, which gives back what wasn't used, however it ends.

The first moment is before anything is parsed: room, concurrency and requests, all or none. The
second is when a request is known: everything else that it may need, all or none, as an estimate
that its account corrects when it is closed.
"""

from collections.abc import Sequence
from types import TracebackType

from tiffin.dialects.statuses import pace_headers
from tiffin.errors import Draining, Overloaded
from tiffin.gateway.limits.calendar import Unrecorded
from tiffin.gateway.limits.habits import Habits
from tiffin.gateway.limits.limit import Limit, Now
from tiffin.gateway.limits.needs import Claim, Needs
from tiffin.gateway.limits.table import LimitTable
from tiffin.ports.clock import Clock
from tiffin.ports.exchange import Headers
from tiffin.ports.spent import Spent
from tiffin.telemetry.metrics import Meter
from tiffin.types.limits import CONCURRENCY, INPUT, OUTPUT, REQUESTS, TOKENS
from tiffin.types.snapshot import Principal, Snapshot

SWEEP_AT_ONCE = 1_000
OF_TOKENS = (TOKENS, INPUT, OUTPUT)
SHADOW = b"x-tiffin-limit-shadow"

# A limit, how much of it was reserved, and the mark that its meter gave for that.
Hold = tuple[Limit, int, int]


class Admission:
    """Counts what runs and what was spent, by tenant, project, key and end user."""

    def __init__(
        self,
        clock: Clock,
        max_in_flight: int,
        spent: Spent | None = None,
        meter: Meter | None = None,
    ) -> None:
        self.in_flight = 0
        self.draining = False
        self.clock = clock
        self.limits = LimitTable(spent or Unrecorded())
        self.habits = Habits()
        self._max_in_flight = max_in_flight
        self._verdicts = (meter or Meter("gateway", "")).counter(
            "tiffin_limit_refusals_total",
            "Requests over a limit, refused or (a shadow) only counted",
            ("of", "level", "verdict"),
        )

    def admit(self, principal: Principal, snapshot: Snapshot) -> "Permit":
        """A permit to hold while the request runs, or a `Rejected` that says when to try again.

        The rate of requests stays spent even if the request fails later; a refusal spends nothing.
        """
        if self.draining:
            raise Draining("the server is stopping; try again in a moment", retry_after=5.0)
        if self.in_flight >= self._max_in_flight:
            raise Overloaded(
                f"all {self._max_in_flight} places for requests are taken", retry_after=1.0
            )
        return Permit(self, principal, snapshot)

    @property
    def running(self) -> dict[str, int]:
        """Requests running now by whoever has a limit of concurrency."""
        return {
            limit.holder: running
            for limit in self.limits
            if limit.of == CONCURRENCY and (running := limit.meter.capacity - limit.meter.left(0))
        }

    def sweep(self) -> None:
        """Forget limits that remember nothing; call it now and then."""
        now = moments(self.clock)
        self.limits.sweep(now, SWEEP_AT_ONCE)

    def over(self, limit: Limit) -> None:
        """A request was over a limit."""
        verdict = "shadow" if limit.shadow else "refused"
        self._verdicts.add((limit.rule.of, limit.level, verdict))


class Permit:
    """The right to run one request; leaving its context gives back what it held, however left."""

    __slots__ = ("_admission", "_claim", "_course", "_held", "_needs", "_over", "_slots", "_tenant")

    def __init__(self, admission: Admission, principal: Principal, snapshot: Snapshot) -> None:
        now = moments(admission.clock)
        self._admission = admission
        self._tenant = principal.tenant
        self._course = admission.limits.course(principal, snapshot, now)
        self._over: list[Limit] = []
        self._held: list[Hold] = []
        self._claim: Claim | None = None
        self._needs: Needs | None = None
        passed = [limit for limit in self._course.first if self._passes(limit, 1, now)]
        self._slots = [limit for limit in passed if limit.of == CONCURRENCY]
        for limit in passed:
            if limit.of == REQUESTS:
                limit.meter.take(1, now[limit.clock])

    def headers(self) -> Headers:
        """How the tightest limit of requests stands, and which shadows were passed."""
        return self._told(self._course.first, (REQUESTS,), self._over)

    def reserve(self, claim: Claim) -> Headers:
        """Take what a request may need, all or none; returns headers that tell of it.

        Raises `RateLimited`, `ConcurrencyExceeded` or `QuotaExceeded`, then nothing was taken; and
        `InvalidRequest` for what could never be had.
        """
        course, admission = self._course, self._admission
        if not course.second and not course.users:
            return []
        now = moments(admission.clock)
        limits: Sequence[Limit] = course.second
        if course.users and (user := claim.end_user()):
            limits = [*limits, *admission.limits.of_user(course, user, now)]
        model = claim.plan.name
        limits = [limit for limit in limits if limit.holds_for(model)]
        if not limits:
            return []
        needs = Needs(claim, self._tenant, admission.habits)
        before = len(self._over)
        wanted = [(limit, needs.of(limit)) for limit in limits]
        passed = [
            (limit, amount)
            for limit, amount in wanted
            if amount and self._passes(limit, amount, now)
        ]
        for limit, amount in passed:
            if limit.of == REQUESTS:
                limit.meter.take(1, now[limit.clock])
            else:
                self._held.append((limit, amount, limit.meter.reserve(amount, now[limit.clock])))
        self._claim, self._needs = claim, needs
        told = self._told(limits, OF_TOKENS, self._over[before:])
        if not any(limit.of == REQUESTS for limit in course.first):
            told += self._told(limits, (REQUESTS,), ())
        return told

    def __enter__(self) -> "Permit":
        self._admission.in_flight += 1
        for limit in self._slots:
            self._held.append((limit, 1, limit.meter.reserve(1, 0)))
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._admission.in_flight -= 1
        if self._held:
            self._settle(error)

    def _settle(self, error: BaseException | None) -> None:
        """Give back what wasn't used, as the closed account says."""
        now = moments(self._admission.clock)
        used: Sequence[int] = ()
        if self._claim is not None and self._needs is not None:
            account = self._claim.account
            used = self._needs.used(account)
            if account.usage.measured and not (error or account.error or account.cache == "hit"):
                self._needs.learn(account.usage)
        for limit, amount, mark in self._held:
            came_to = used[limit.of] if used else 0
            limit.meter.settle(mark, amount, came_to, now[limit.clock])
        self._held.clear()

    def _passes(self, limit: Limit, wanted: int, now: Now) -> bool:
        """Whether a limit lets so much pass; raises its refusal unless it is a shadow."""
        wait_ns = limit.meter.wait(wanted, now[limit.clock])
        if not wait_ns:
            return True
        self._admission.over(limit)
        if not limit.shadow:
            raise limit.refusal(wanted, wait_ns, now[limit.clock])
        self._over.append(limit)
        return False

    def _told(self, limits: Sequence[Limit], of: Sequence[int], over: Sequence[Limit]) -> Headers:
        """The headers of the tightest of some limits, and of shadows that were passed."""
        told: Headers = []
        paced = [limit for limit in limits if limit.of in of and not limit.shadow]
        if paced:
            now = moments(self._admission.clock)
            paces = [limit.pace(now[limit.clock]) for limit in paced]
            told += pace_headers(min(paces, key=lambda pace: pace.left))
        if over:
            # An end user may be called anything, but may add no header.
            told.append((SHADOW, "; ".join(map(str, over)).encode("unicode_escape")))
        return told


def moments(clock: Clock) -> Now:
    """Now, by both clocks."""
    return int(clock.monotonic() * 1e9), clock.now_ns()
