"""The one loop over a plan's targets, inside one deadline and one budget.

Nothing of an attempt reaches the client before the **commit point**: the whole answer, or a
stream's first byte of content. Before it another target may be tried; after it, never.
"""

import asyncio
import random
from collections import deque
from types import TracebackType
from typing import NamedTuple

from tiffin.errors import Overloaded, Rejected, TiffinError, UpstreamFailed
from tiffin.gateway.account import NO_USAGE, STOPPED, Account
from tiffin.gateway.attempt import Attempt
from tiffin.gateway.guard.policy import Guards
from tiffin.gateway.placement.choice import Reason
from tiffin.gateway.placement.place import Place
from tiffin.gateway.pool import Pool
from tiffin.gateway.retries import another_may, is_the_targets, may_come_again, rule_of, wait_s
from tiffin.gateway.run import Answer, Run
from tiffin.ports.clock import Clock
from tiffin.types.snapshot import Target


class Turn(NamedTuple):
    """A target's next try: not before `at` (monotonic), after it `failed` so often."""

    target: Target
    at: float = 0.0
    failed: int = 0


class Attempts:
    """Entering finds an answer or raises the reason there is none; leaving stops the work.

    Every target of the plan has its turn before any has another one, also at another of its places
    where the budget doesn't suffice for both. What failed in a way that may pass comes again, after
    a while, where the budget and the deadline leave room for it.
    """

    __slots__ = (
        "_account",
        "_before",
        "_clock",
        "_current",
        "_guards",
        "_pool",
        "_run",
        "_tried",
        "_warm",
    )

    def __init__(
        self, pool: Pool, guards: Guards, run: Run, account: Account, clock: Clock
    ) -> None:
        self._pool = pool
        self._guards = guards
        self._run = run
        self._account = account
        self._clock = clock
        self._current: Attempt | None = None
        self._tried: tuple[Place, ...] = ()
        self._warm = False
        self._before = len(account.attempts)

    async def __aenter__(self) -> Answer:
        turns = deque(map(Turn, self._run.plan.targets))
        failures: list[str] = []
        told: TiffinError | None = None
        while turns:
            turn = turns.popleft()
            if turn.failed:
                await asyncio.sleep(turn.at - self._clock.monotonic())
            try:
                return await self._try(turn.target)
            except TiffinError as error:
                attempt = await self._leave(error)
                failures.append(f"{turn.target.model}: {error.message}")
                if not another_may(error):
                    raise
                if told is None or is_the_targets(error):
                    told = error
                left = self._run.plan.attempts - len(self._account.attempts) + self._before
                first = sum(not one.failed for one in turns)
                if left > first and self._elsewhere(attempt, error):
                    turns.appendleft(turn)
                else:
                    self._tried = ()
                    turns.extend(self._again(turn, attempt, error))
                last = not turns or left <= 0
                if last and len(set(failures)) == 1:
                    raise
                if last:
                    raise _of_all(told, failures) from error
            except BaseException as error:
                await self._leave(error)
                raise
        raise UpstreamFailed("the plan has no target to try")

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self._leave(error)

    async def _try(self, target: Target) -> Answer:
        account, run, now = self._account, self._run, self._clock.monotonic()
        account.charge.at(target, run.asked.pieces, account.usage, now)
        account.usage = NO_USAGE
        attempt = Attempt(self._pool, self._guards, run, account, self._clock, target)
        self._current = attempt
        answer = await attempt.answer(self._tried)
        self._heed(attempt)
        attempt.committed = True
        account.fallback = "" if target is run.plan.targets[0] else target.model
        if target.kind == "remote":
            attempt.judge(None)  # a stream may last: whoever waits to try it needn't wait for that
        return answer

    def _heed(self, attempt: Attempt) -> None:
        """What the account is to know of an attempt."""
        if not attempt.committed:
            self._account.usage = attempt.usage
            self._account.revision = attempt.revision

    async def _leave(self, error: BaseException | None) -> Attempt | None:
        """End the attempt that there is, and write it down."""
        attempt, self._current = self._current, None
        if attempt is None:
            return None
        self._heed(attempt)
        visit, place = attempt.visit, attempt.place
        remote = attempt.target.kind == "remote"
        if place is not None or not remote:
            self._write_down(attempt, error)
        if remote and error is not None:
            attempt.judge(error)
        if visit is not None:
            await visit.__aexit__(None, error, None)
        if visit is not None and place is not None and error is not None:
            self._tried = (*self._tried, place)
            self._warm = visit.reason == Reason.PREFIX.value
            if isinstance(error, Overloaded):
                place.full.said(attempt.ask(), error, self._clock.monotonic())
        return attempt

    def _write_down(self, attempt: Attempt, error: BaseException | None) -> None:
        """An entry of its own: at an upstream each is a call that was made there."""
        slug, status = "", 200
        if error is not None:
            slug = error.slug if isinstance(error, TiffinError) else STOPPED
            status = attempt.status if attempt.status >= 300 else 0
        placed = attempt.visit.reason if attempt.visit is not None else ""
        self._account.tried(attempt.target.model, attempt.started, status, slug, placed)

    def _elsewhere(self, attempt: Attempt | None, error: TiffinError) -> bool:
        """Whether the same target may do better at another try, at another of its places."""
        if attempt is None or attempt.place is None:
            return False
        if not is_the_targets(error):
            return False  # too long for the model, wherever that is
        if isinstance(error, Rejected) and not self._warm:
            return False  # a refusal of the place that had least to do is one of all
        target = attempt.target
        if target.kind == "remote" and not rule_of(attempt.phase, attempt.status).key:
            return False
        try:
            station = self._pool.station(target)
        except TiffinError:
            return False
        return bool(station.others(self._tried)) if station.ready() else target.on_demand

    def _again(self, turn: Turn, attempt: Attempt | None, error: TiffinError) -> list[Turn]:
        """The next turn of an upstream that failed, if it is to have one in time."""
        if attempt is None or attempt.place is None or turn.target.kind != "remote":
            return []
        if not may_come_again(error, attempt.phase, attempt.status):
            return []
        failed = turn.failed + 1
        chance = random.random()  # noqa: S311 - nobody gains by guessing it
        at = self._clock.monotonic() + wait_s(failed, error, chance)
        return [Turn(turn.target, at, failed)] if at < self._run.due.deadline else []


def _of_all(error: TiffinError, failures: list[str]) -> TiffinError:
    """The last error that was a target's, else the first, telling of the others too."""
    message = "every try failed: " + "; ".join(failures)
    return type(error)(message, retry_after=error.retry_after, param=error.param)
