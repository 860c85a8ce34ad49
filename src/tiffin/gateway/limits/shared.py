"""What counts for a limit that several gateways share: what is wanted of the store, what it said.

As meters they count for this gateway alone, by its share of the limit: for while the store doesn't
answer. What `left` says is of whichever answered last.
"""

from hashlib import sha256
from typing import Protocol

from tiffin.gateway.limits.calendar import PERIOD_NS, Budget
from tiffin.gateway.limits.shared_budget import SharedBudget
from tiffin.gateway.limits.shared_rate import SharedRate
from tiffin.gateway.limits.shared_slots import SharedSlots
from tiffin.gateway.share import Share
from tiffin.ports.limit_store import Change, Want
from tiffin.ports.spent import Spent
from tiffin.types.limits import Rule, amount_of, by_calendar


class Shared(Protocol):
    """A meter that the store counts for, too."""

    def want(self, amount: int, now: int, *, shadow: bool, lasting: bool) -> Want:
        """What to ask the store for."""
        ...

    def learn(self, want: Want, level: int, now: int, *, taken: bool) -> int:
        """The store has answered: so much was taken before. Nanoseconds until what was wanted may
        be had, 0 where there was room, and then it was `taken` perhaps."""
        ...

    def change_of(self, want: Want, reserved: int, used: int, now: int) -> Change:
        """What to tell the store when a want is settled that was taken."""
        ...


SharedMeter = SharedRate | SharedBudget | SharedSlots


def shared_meter_of(rule: Rule, name: str, spent: Spent, east_ns: int, share: Share) -> SharedMeter:
    """What counts for a rule that gateways share; its days begin so long before those of UTC."""
    amount = amount_of(rule)
    digest = sha256(name.encode()).hexdigest()[:32]
    if rule.of == "concurrency":
        return SharedSlots(digest, amount, share)
    if by_calendar(rule):
        own = Budget(amount, rule.per, spent.record(name), east_ns)
        return SharedBudget(digest, amount, own, share)
    return SharedRate(digest, (amount, PERIOD_NS[rule.per], rule.burst or amount), share)
