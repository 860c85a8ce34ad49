"""Limits that several gateways count together, in a store; each its share while that is away."""

from collections.abc import Sequence
from typing import cast

from tiffin.errors import LimitStoreUnavailable
from tiffin.gateway.limits.counts import Held, Taken, Wanted, came_to, take_here
from tiffin.gateway.limits.limit import Limit, Meter, Now
from tiffin.gateway.limits.shared import Shared, shared_meter_of
from tiffin.gateway.limits.shared_budget import SharedBudget
from tiffin.gateway.share import Share
from tiffin.ports.limit_store import Change, LimitStore, Want
from tiffin.ports.spent import Spent
from tiffin.types.limits import REQUESTS, Rule

NO_BOUND = 1 << 100


class SharedCounts:
    """Counts in a store, a call for each moment of a request; satisfies `counts.Counts`."""

    def __init__(self, store: LimitStore, share: Share) -> None:
        self._store = store
        self._share = share
        # Spent while the store was away, to be told when it is back.
        self._owing: dict[SharedBudget, str] = {}

    def meter_of(self, rule: Rule, name: str, spent: Spent, east_ns: int) -> Meter:
        """What counts for a rule."""
        return shared_meter_of(rule, name, spent, east_ns, self._share)

    async def take(self, tenant: str, wanted: Wanted, now: Now) -> Taken:
        """Take all or none."""
        if not wanted:
            return Taken((), None)
        if self._store.up:
            try:
                if self._owing:
                    await self._repay_for(wanted, now)
                return await self._take_there(tenant, wanted, now)
            except LimitStoreUnavailable:
                pass  # it has just gone away
        return self._take_alone(tenant, wanted, now)

    async def repay(self, now: Now) -> None:
        """Tell the store what was spent without it; raises `LimitStoreUnavailable`."""
        while self._owing:
            await self._repay(next(iter(self._owing)), now)

    async def _repay_for(self, wanted: Wanted, now: Now) -> None:
        for limit, _ in wanted:
            if isinstance(limit.meter, SharedBudget) and limit.meter in self._owing:
                await self._repay(limit.meter, now)

    async def _repay(self, budget: SharedBudget, now: Now) -> None:
        tenant = self._owing.pop(budget)
        want = budget.want(0, now[1], shadow=True, lasting=True)._replace(room=NO_BOUND)
        budget.owe(want.now, 0)
        owed = budget.owed
        budget.owe(want.now, -owed)
        if owed:
            # So it counts before whatever is sent after it.
            want = want._replace(cost=max(owed, 0))
            change = Change(want, owed - want.cost, want.now)
            try:
                grant = await self._store.reserve(tenant, [want], now[0])
            except BaseException:
                budget.owe(want.now, owed)
                self._owing[budget] = tenant
                raise
            self._store.settle(tenant, grant.name, [change], now[0])

    async def _take_there(self, tenant: str, wanted: Wanted, now: Now) -> Taken:
        wants = [_want(limit, amount, now) for limit, amount in wanted]
        grant = await self._store.reserve(tenant, wants, now[0])
        for limit, _ in wanted:
            limit.asked_ns = now[1]
        waits = [
            _shared(limit).learn(want, level, now[limit.clock], taken=grant.taken)
            for (limit, _), want, level in zip(wanted, wants, grant.levels, strict=True)
        ]
        if not (grant.taken and grant.name):
            return Taken(waits, None)
        return Taken(waits, HeldThere(self._store, tenant, grant.name, _held(wanted, wants, waits)))

    def _take_alone(self, tenant: str, wanted: Wanted, now: Now) -> Taken:
        for limit, _ in wanted:
            if limit.needs_store and not limit.shadow:
                raise LimitStoreUnavailable(
                    f"the store that gateways share for limits doesn't answer, and {limit} is"
                    " refused without it",
                    retry_after=1.0,
                )
        taken = take_here(wanted, now)
        budgets = [limit.meter for limit, _ in wanted if isinstance(limit.meter, SharedBudget)]
        if taken.held is None or not budgets:
            return taken
        for budget in budgets:
            self._owing[budget] = tenant
        return Taken(taken.waits, HeldAlone(self._owing, tenant, taken.held, budgets))


Part = tuple[Limit, int, Want] | None
"""One that is held: its limit, how much was reserved, and what was wanted."""


class HeldThere:
    """A grant of the store."""

    __slots__ = ("_name", "_parts", "_store", "_tenant")

    def __init__(self, store: LimitStore, tenant: str, name: str, parts: Sequence[Part]) -> None:
        self._store = store
        self._tenant = tenant
        self._name = name
        self._parts = parts

    def settle(self, used: Sequence[int], now: Now) -> None:
        """Give back what wasn't used."""
        changes = [part and _change(*part, used, now) for part in self._parts]
        self._store.settle(self._tenant, self._name, changes, now[0])


class HeldAlone:
    """What was taken while the store was away; what it comes to is still to be told."""

    __slots__ = ("_budgets", "_held", "_owing", "_tenant")

    def __init__(
        self,
        owing: dict[SharedBudget, str],
        tenant: str,
        held: Held,
        budgets: Sequence[SharedBudget],
    ) -> None:
        self._owing = owing
        self._tenant = tenant
        self._held = held
        self._budgets = budgets

    def settle(self, used: Sequence[int], now: Now) -> None:
        """Give back what wasn't used."""
        self._held.settle(used, now)
        for budget in self._budgets:
            self._owing[budget] = self._tenant


def _shared(limit: Limit) -> Shared:
    return cast(Shared, limit.meter)


def _want(limit: Limit, amount: int, now: Now) -> Want:
    return _shared(limit).want(
        amount, now[limit.clock], shadow=limit.shadow, lasting=limit.of != REQUESTS
    )


def _held(wanted: Wanted, wants: Sequence[Want], waits: Sequence[int]) -> list[Part]:
    return [
        (limit, amount, want) if want.lasting and not wait else None
        for (limit, amount), want, wait in zip(wanted, wants, waits, strict=True)
    ]


def _change(limit: Limit, reserved: int, want: Want, used: Sequence[int], now: Now) -> Change:
    found = came_to(limit, reserved, used)
    return _shared(limit).change_of(want, reserved, found, now[limit.clock])
