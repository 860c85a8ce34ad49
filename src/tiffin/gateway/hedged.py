"""A second try beside a first one that is slow: whichever has an answer first gives it."""

import asyncio
from collections.abc import Callable
from dataclasses import replace
from types import TracebackType
from typing import Final

import msgspec

from tiffin.errors import TiffinError
from tiffin.gateway.account import Account
from tiffin.gateway.attempts import Attempts
from tiffin.gateway.retries import another_may
from tiffin.gateway.run import Answer, Run
from tiffin.telemetry.metrics import Counter
from tiffin.types.snapshot import Plan

MOST_SAVED: Final = 10.0
MAX_NAMES: Final = 10_000

Attempting = Callable[[Run, Account], Attempts]


class HedgeShares:
    """How many requests of each plan may be hedged: a share of all, and no more than ten at once
    after a time in which none was."""

    def __init__(self, results: Counter) -> None:
        self._results = results
        self._saved: dict[str, float] = {}

    def count(self, plan: Plan) -> None:
        """A request of a plan comes, which may be hedged."""
        if len(self._saved) >= MAX_NAMES:
            self._saved.clear()
        self._saved[plan.name] = min(MOST_SAVED, self._saved.get(plan.name, 1.0) + plan.hedge_most)

    def take(self, plan: Plan) -> bool:
        """Whether one may be hedged now."""
        saved = self._saved.get(plan.name, 0.0)
        if saved < 1.0:
            return False
        self._saved[plan.name] = saved - 1.0
        return True

    def told(self, plan: Plan, *, won: bool) -> None:
        """One that was hedged is answered, by the second try or by the first."""
        self._results.add((plan.name, "won" if won else "lost"))


class _Side:
    """One of the two, with an account of its own until it is known which one counts."""

    def __init__(self, make: Attempting, run: Run, account: Account, plan: Plan) -> None:
        self.run = replace(run, plan=plan)
        self.account = account.apart()
        self.attempts = make(self.run, self.account)
        self.task = asyncio.ensure_future(self.attempts.__aenter__())

    @property
    def error(self) -> BaseException | None:
        return self.task.exception() if self.task.done() else None

    async def end(self) -> None:
        """Stop its work, however far it has come."""
        self.task.cancel()
        await asyncio.wait([self.task])
        if not self.task.cancelled() and self.task.exception() is None:
            await self.attempts.__aexit__(None, asyncio.CancelledError(), None)


class Hedged:
    """Attempts at a plan, as a context; when none has come to anything after `hedge_s`, its other
    targets are tried once beside the first.

    Both spend from the plan's one number of attempts. The one that isn't taken is stopped, and what
    it cost is lost.
    """

    __slots__ = ("_account", "_make", "_run", "_shares", "_sides", "_taken")

    def __init__(self, make: Attempting, run: Run, account: Account, shares: HedgeShares) -> None:
        self._make = make
        self._run = run
        self._account = account
        self._shares = shares
        self._sides: list[_Side] = []
        self._taken: _Side | None = None

    async def __aenter__(self) -> Answer:
        plan = self._run.plan
        self._shares.count(plan)
        try:
            first = self._begin(plan)
            await asyncio.wait([first.task], timeout=plan.hedge_s)
            if not first.task.done() and not first.account.attempts and self._shares.take(plan):
                first.run.plan = msgspec.structs.replace(plan, attempts=plan.attempts - 1)
                rest = msgspec.structs.replace(plan, targets=plan.targets[1:], attempts=1)
                self._begin(rest)
            self._taken = await self._race()
        finally:
            await self._settle()
        return self._taken.task.result()

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._taken is not None:
            await self._taken.attempts.__aexit__(kind, error, trace)

    def _begin(self, plan: Plan) -> _Side:
        side = _Side(self._make, self._run, self._account, plan)
        self._sides.append(side)
        return side

    async def _race(self) -> _Side:
        """The first that has an answer, else the one whose failure is told."""
        first = self._sides[0]
        left = {side.task: side for side in self._sides}
        while left:
            done, _ = await asyncio.wait(left, return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                side = left.pop(task)
                if side.error is None:
                    return side
            if first.error is not None and not _may_pass(first.error):
                break
        return first

    async def _settle(self) -> None:
        """Stop all but the one that is taken; the account has what all of them came to."""
        taken = self._taken or self._sides[0]
        for side in self._sides:
            if side is not self._taken:
                await side.end()
        other = next((side.account for side in self._sides if side is not taken), None)
        self._account.take(taken.account, beside=other)
        if taken is not self._sides[0]:
            self._account.fallback = taken.account.charge.target
        self._run.due = taken.run.due
        if other is not None:
            self._shares.told(self._run.plan, won=taken is not self._sides[0])


def _may_pass(error: BaseException) -> bool:
    return isinstance(error, TiffinError) and another_may(error)
