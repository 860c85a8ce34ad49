"""Admission: two moments and one permit, which gives back what wasn't used, however it ends.

The first moment is before anything is parsed: room, concurrency and requests, all or none. The
second is when a request is known: everything else that it may need, all or none, as an estimate
that its account corrects when it is closed.
"""

from collections.abc import Sequence
from types import TracebackType

from tiffin.dialects.dialect import Asked
from tiffin.dialects.statuses import pace_headers
from tiffin.errors import Draining, Overloaded
from tiffin.gateway.account import Account
from tiffin.gateway.anomalies.watch import Seen, Watch
from tiffin.gateway.limits.calendar import Unrecorded
from tiffin.gateway.limits.caps import HeldCaps
from tiffin.gateway.limits.counts import Counts, Held, OwnCounts, Wanted
from tiffin.gateway.limits.habits import Habits
from tiffin.gateway.limits.limit import Limit, Now
from tiffin.gateway.limits.needs import Claim, Needs
from tiffin.gateway.limits.table import LimitTable
from tiffin.ports.clock import Clock
from tiffin.ports.exchange import Headers
from tiffin.ports.spent import Spent
from tiffin.telemetry.metrics import Meter
from tiffin.types.limits import CONCURRENCY, QUANTITIES
from tiffin.types.snapshot import Principal, Snapshot

SWEEP_AT_ONCE = 2_000
NOTHING = (0,) * len(QUANTITIES)
SHADOW = b"x-tiffin-limit-shadow"


class Admission:
    """Counts what runs and what was spent, by tenant, project, key and end user."""

    def __init__(
        self,
        clock: Clock,
        max_in_flight: int,
        spent: Spent | None = None,
        meter: Meter | None = None,
        counts: Counts | None = None,
    ) -> None:
        self.in_flight = 0
        self.draining = False
        self.clock = clock
        self.counts = counts = counts or OwnCounts()
        self.limits = LimitTable(spent or Unrecorded(), build=counts.meter_of)
        self.habits = Habits()
        self._max_in_flight = max_in_flight
        meter = meter or Meter("gateway", "")
        self.watch = Watch(clock, meter)
        self._verdicts = meter.counter(
            "tiffin_limit_refusals_total",
            "Requests over a limit, refused or (a shadow) only counted",
            ("of", "level", "verdict"),
        )

    async def admit(self, principal: Principal, snapshot: Snapshot) -> "Permit":
        """A permit to enter at once and to hold while the request runs; or a `Rejected` that says
        when to try again, or `LimitStoreUnavailable`.

        The rate of requests stays spent even if the request fails later; a refusal spends nothing.
        """
        if self.draining:
            raise Draining("the server is stopping; try again in a moment", retry_after=5.0)
        if self.in_flight >= self._max_in_flight:
            raise Overloaded(
                f"all {self._max_in_flight} places for requests are taken", retry_after=1.0
            )
        if snapshot.anomalies is not None:
            self.watch.admit(principal, snapshot.anomalies)
        permit = Permit(self, principal, snapshot)
        self.in_flight += 1
        try:
            await permit.begin()
        except BaseException:
            self.in_flight -= 1
            raise
        return permit

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

    __slots__ = (
        *("_admission", "_anomalies", "_course", "_held", "_needs", "_now", "_over", "_principal"),
        "_seen",
    )

    def __init__(self, admission: Admission, principal: Principal, snapshot: Snapshot) -> None:
        self._admission = admission
        self._principal = principal
        self._anomalies = snapshot.anomalies
        self._seen: Seen | None = None
        self._now = now = moments(admission.clock)
        self._course = admission.limits.course(principal, snapshot, now)
        self._over: list[Limit] = []
        self._held: list[Held] = []
        self._needs: Needs | None = None

    async def begin(self) -> None:
        """The first moment: take a slot and a request of everything that holds, all or none."""
        if self._course.first:
            await self._take(self._course.first)

    @property
    def caps(self) -> HeldCaps:
        """What this request may ask for at most."""
        return self._course.caps

    def headers(self) -> Headers:
        """How the tightest limit of requests stands, and which shadows were passed."""
        return [*tightest(self._course.paced, self._now), *self._shadows(0)]

    def look_at(self, asked: Asked, account: Account) -> None:
        """Watch a request, where that is wanted, and its answer once its account is closed."""
        if self._anomalies is not None:
            watch = self._admission.watch
            self._seen = watch.asked(self._principal, asked, account, self._anomalies)

    async def reserve(self, claim: Claim) -> Headers:
        """Take what a request may need, all or none; returns headers that tell of it.

        Raises `RateLimited`, `ConcurrencyExceeded` or `QuotaExceeded`, then nothing was taken; and
        `InvalidRequest` for what could never be had.
        """
        course, admission = self._course, self._admission
        if not (course.second or course.users):
            return []
        self._now = now = moments(admission.clock)
        second = course.second_for(claim.plan.name)
        if course.users and (user := claim.end_user()):
            second = second.with_users(admission.limits.of_user(course, user, now), claim.plan.name)
        if not second.limits:
            return []
        needs = Needs(
            claim,
            admission.habits.of(self._principal.tenant, claim.plan.name, claim.asked.operation),
            money=second.money,
        )
        before = len(self._over)
        wanted = [(limit, amount) for limit in second.limits if (amount := needs.of(limit))]
        await self._take(wanted)
        self._needs = needs
        told = [*tightest(second.paced, now), *self._shadows(before)]
        return told if course.paced else [*told, *tightest(second.rates, now)]

    def __enter__(self) -> "Permit":
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
        if self._seen is not None:
            self._admission.watch.answered(self._seen)

    def _settle(self, error: BaseException | None) -> None:
        """Give back what wasn't used, as the closed account says."""
        now = moments(self._admission.clock)
        used = self._needs.used(well=error is None) if self._needs is not None else NOTHING
        for held in self._held:
            held.settle(used, now)
        self._held.clear()

    async def _take(self, wanted: Wanted) -> None:
        """Take all or none of these; raises the refusal of the first that is over."""
        taken = await self._admission.counts.take(self._principal.tenant, wanted, self._now)
        if taken.held is not None:
            self._held.append(taken.held)
        for (limit, amount), wait_ns in zip(wanted, taken.waits, strict=True):
            if wait_ns:
                self._exceeds(limit, amount, wait_ns)

    def _exceeds(self, limit: Limit, wanted: int, wait_ns: int) -> None:
        """So much is over a limit: raises its refusal, unless it is a shadow."""
        self._admission.over(limit)
        if not limit.shadow:
            raise limit.refusal(wanted, wait_ns, self._now[limit.clock])
        self._over.append(limit)

    def _shadows(self, since: int) -> Headers:
        """The header that names the shadows that were passed."""
        over = self._over[since:]
        if not over:
            return []
        # An end user may be called anything, but may add no header.
        return [(SHADOW, "; ".join(map(str, over)).encode("unicode_escape"))]


def tightest(limits: Sequence[Limit], now: Now) -> Headers:
    """How that one stands of which least is left."""
    if not limits:
        return []
    if len(limits) == 1:
        return pace_headers(limits[0].pace(now[limits[0].clock]))
    least = min(limits, key=lambda one: one.meter.left(now[one.clock]))
    return pace_headers(least.pace(now[least.clock]))


def moments(clock: Clock) -> Now:
    """Now, by both clocks."""
    return int(clock.monotonic() * 1e9), clock.now_ns()
