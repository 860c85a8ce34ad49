"""One rule as it holds for one tenant, project, key or end user: what is left, what is refused."""

from datetime import UTC, datetime
from typing import Protocol

from tiffin.errors import (
    ConcurrencyExceeded,
    InvalidRequest,
    Pace,
    QuotaExceeded,
    RateLimited,
    TiffinError,
)
from tiffin.gateway.limits.calendar import PERIOD_NS, Budget
from tiffin.gateway.limits.gcra import Gcra
from tiffin.gateway.limits.shared_budget import SharedBudget
from tiffin.gateway.limits.shared_rate import SharedRate
from tiffin.gateway.limits.shared_slots import SharedSlots
from tiffin.gateway.limits.slots import Slots
from tiffin.ports.spent import Spent
from tiffin.telemetry.redact import redact
from tiffin.types.limits import (
    CONCURRENCY,
    INPUT,
    MONEY,
    OUTPUT,
    QUANTITIES,
    REQUESTS,
    TOKENS,
    Rule,
    Standing,
    amount_of,
    by_calendar,
)
from tiffin.types.money import shown
from tiffin.types.revisions import base_of

PACED = (REQUESTS, INPUT, OUTPUT, TOKENS)
"""What clients are told the pace of."""


class Meter(Protocol):
    """What counts for a limit. Moments are nanoseconds, of UTC for those by the calendar."""

    @property
    def capacity(self) -> int:
        """What may be taken at once; more never passes."""
        ...

    def wait(self, wanted: int, now: int) -> int:
        """Nanoseconds until so much may be taken, 0 where it may now. Takes nothing."""
        ...

    def take(self, wanted: int, now: int) -> None:
        """Take for good, after `wait`."""
        ...

    def reserve(self, wanted: int, now: int) -> int:
        """Take, after `wait`, what may be given back; returns the mark that `settle` wants."""
        ...

    def settle(self, mark: int, reserved: int, used: int, now: int) -> None:
        """End a reservation by what was used; called once for each."""
        ...

    def left(self, now: int) -> int:
        """How much may be taken right now."""
        ...

    def recovers_in(self, now: int) -> int:
        """Nanoseconds until everything may be taken again."""
        ...

    def rests(self, now: int) -> bool:
        """Whether it has nothing to remember."""
        ...


Now = tuple[int, int]
"""A moment in nanoseconds, of the monotonic clock and of UTC."""


class Limit:
    """A rule, its holder (`tenant 'shop'`) and what counts for both.

    `of` is a quantity's place, `clock` that of the meter's moments in a `Now`. `seen` is the last
    snapshot that had it, `asked_ns` when a store was last asked (UTC). Money is in `currency`.
    """

    __slots__ = (
        "asked_ns",
        "capacity",
        "clock",
        "currency",
        "holder",
        "level",
        "meter",
        "of",
        "rule",
        "seen",
        "shadow",
    )

    def __init__(self, rule: Rule, level: str, holder: str, meter: Meter) -> None:
        self.rule = rule
        self.level = level
        self.holder = holder
        self.meter = meter
        self.capacity = meter.capacity
        self.of = QUANTITIES.index(rule.of)
        self.clock = int(by_calendar(rule))
        self.shadow = rule.shadow
        self.seen = 0
        self.currency = ""
        self.asked_ns = 0

    def change(self, rule: Rule, now: Now) -> None:
        """Take a rule that counts the same and allows another amount; what was used stays used."""
        self.rule = rule
        self.shadow = rule.shadow
        amount = amount_of(rule)
        match self.meter:
            case Gcra() | SharedRate():
                self.meter.change(amount, PERIOD_NS[rule.per], rule.burst or amount, now[0])
            case Slots() | Budget() | SharedSlots() | SharedBudget():
                self.meter.change(amount)
        self.capacity = self.meter.capacity

    def holds_for(self, model: str) -> bool:
        """Whether requests to a public name count."""
        models = self.rule.models
        return not models or model in models or base_of(model) in models

    @property
    def needs_store(self) -> bool:
        """Whether it refuses where the store that gateways share doesn't answer."""
        return (self.rule.without_store or ("refuse" if self.of == MONEY else "local")) == "refuse"

    def __str__(self) -> str:
        """What it limits, for people: `tokens a minute of key 'shop/web'`."""
        return f"{self.what} of {self.holder}"

    @property
    def what(self) -> str:
        """What it limits, without the holder: `output tokens a day with chat`."""
        rule = self.rule
        pace = f" a{'n' if rule.per == 'hour' else ''} {rule.per}" if rule.per else ""
        models = f" with {', '.join(rule.models)}" if rule.models else ""
        return f"{rule.of.replace('_', ' ')}{pace}{models}"

    def shows(self, amount: int) -> str:
        """An amount of what it counts, for people."""
        return shown(amount, self.currency) if self.of == MONEY else str(amount)

    def pace(self, now: int) -> Pace:
        """How it stands, as clients are told."""
        meter = self.meter
        return Pace(
            "requests" if self.rule.of == "requests" else "tokens",
            int(self.rule.amount),
            meter.left(now),
            -(-meter.recovers_in(now) // 1_000_000),
        )

    def standing(self, now: Now) -> Standing:
        """How it stands, for operators."""
        meter, moment = self.meter, now[self.clock]
        return Standing(
            holder=redact(self.holder) if self.level == "end_user" else self.holder,
            level=self.level,
            rule=self.rule,
            whole=meter.capacity,
            left=meter.left(moment),
            resets_s=round(meter.recovers_in(moment) / 1e9, 3),
            asked_ns=self.asked_ns,
        )

    def refusal(self, wanted: int, wait_ns: int, now: int) -> TiffinError:
        """Why so much isn't allowed now, and when it may be."""
        capacity = self.meter.capacity
        if self.of == CONCURRENCY:
            return ConcurrencyExceeded(
                f"{self.holder} already has {capacity} requests running, which is its limit of"
                f" {self.what}",
                retry_after=wait_ns / 1e9,
            )
        if self.of == MONEY:
            return self._spent(wanted, wait_ns, now)
        if wanted > capacity:
            return InvalidRequest(
                f"the request may need {wanted}, and {self.holder} may never have more than"
                f" {capacity} at once of its limit of {self.what}; ask for less"
            )
        error = RateLimited(
            f"{self.holder} is over its limit of {int(self.rule.amount)} {self.what}",
            retry_after=wait_ns / 1e9,
        )
        if self.of in PACED:
            error.pace = self.pace(now)
        return error

    def _spent(self, wanted: int, wait_ns: int, now: int) -> QuotaExceeded:
        anew = datetime.fromtimestamp((now + wait_ns) // 10**9, UTC)
        left, all_of_it = self.shows(self.meter.left(now)), self.shows(self.meter.capacity)
        return QuotaExceeded(
            f"{self.holder} has {left} left of its {all_of_it} for {self.what}, and the request may"
            f" cost {self.shows(wanted)}; the next {self.rule.per} begins at"
            f" {anew:%Y-%m-%dT%H:%M:%SZ}"
        )


def meter_of(rule: Rule, name: str, spent: Spent, east_ns: int) -> Meter:
    """What counts for a rule; its days begin so long before those of UTC."""
    amount = amount_of(rule)
    if rule.of == "concurrency":
        return Slots(amount)
    if by_calendar(rule):
        return Budget(amount, rule.per, spent.record(name), east_ns)
    return Gcra(amount, PERIOD_NS[rule.per], rule.burst or amount)
