"""The bounded queue in front of an engine's slots: who runs next, and in which slot; pure.

A slot is a lane of the engine's memory: it may still hold the tokens of its last prompt, which
only the same tenant may use again. Who couldn't be answered in time is refused before it waits: how
long that would be follows from what the holders of slots still have to do, and from what is ahead.
"""

import math
from collections.abc import Callable, Sequence
from typing import Final

from tiffin.errors import DeadlineExceeded, Overloaded, TiffinError
from tiffin.ports.clock import Clock
from tiffin.serving.lanes.claim import Claim, Standing, Ticket, Work
from tiffin.serving.lanes.demand import Demand
from tiffin.serving.lanes.foresight import Foresight
from tiffin.serving.lanes.lane import Slot, best_of, shared_prefix
from tiffin.serving.lanes.waiting import BATCH_SHARE, Waiting

RETRY_AFTER_MAX_S: Final = 60.0
MOST_TAKEN: Final = 1 - BATCH_SHARE  # of the slots, by interactive work
DISPATCHES: Final = {
    "idle": "a slot was free",
    "turn": "it came first",
    "fair": "its tenant's share put it before others that came sooner",
    "batch_share": "batch work had its share due",
}
"""Why a choice of a request got its slot when it did."""
REASONS: Final = {
    "full": "the queue",
    "late": "for what is ahead",
    "long": "by itself",
    "overtaken": "by more pressing ones",
    "waited": "for longer than the model's queue_timeout_s",
    "expired": "its deadline has passed",
}
"""Why a request is refused."""


class Lanes:
    """Grants `slots` slots to tickets; at most `queue` requests of either urgency wait.

    Nobody waits for its first slot for longer than `queue_timeout_s` (0: for ever). Every ticket
    must be given back by `leave`, whatever became of it.
    """

    def __init__(
        self, slots: int, queue: int, clock: Clock, *, queue_timeout_s: float = 0.0
    ) -> None:
        self._slots = [Slot(number) for number in range(slots)]
        self._limit = queue
        self._clock = clock
        self._patience_s = queue_timeout_s or math.inf
        self._waiting = Waiting()
        self._foresight = Foresight(slots, clock.monotonic())
        self._interactive, self._batch = Demand(), Demand()
        self._way_s = math.inf  # the least that requests took to get here
        self.running = 0
        """How many slots are held."""
        self.dispatches = dict.fromkeys(DISPATCHES, 0)
        """How many choices got a slot, by why."""
        self.refusals = dict.fromkeys(REASONS, 0)
        """How many requests were refused, by why."""
        self._closed: Callable[[], TiffinError] | None = None

    @property
    def waiting(self) -> int:
        """How many requests wait for a slot."""
        return self._waiting.claims(batch=False) + self._waiting.claims(batch=True)

    def ask(self, claim: Claim, works: Sequence[Work]) -> list[Ticket]:
        """Queue one ticket a choice, all or none; those that find a slot hold it at once.

        Raises `Overloaded` (with an estimate of when to come again), `DeadlineExceeded`, or the
        refusal that `close` was given.
        """
        now = self._clock.monotonic()
        if self._closed is not None:
            raise self._closed()
        if claim.deadline <= now:
            self.refusals["expired"] += 1
            raise DeadlineExceeded("the deadline had passed before the request could be queued")
        tickets = [Ticket(claim, work, now, cost=self._cost(work)) for work in works]
        demand = self._batch if claim.batch else self._interactive
        demand.add(claim.tenant, claim.weight, sum(ticket.cost for ticket in tickets), now)
        if len(works) > len(self._slots) - self.running:
            self._refuse_late(claim, works, now)
            self._make_room(claim)
        self._waiting.put(claim, tickets)
        while self.running < len(self._slots) and self._waiting.first() is not None:
            ticket, _ = self._waiting.take()
            self._hold(ticket, "idle", now)
        return tickets

    def leave(self, ticket: Ticket) -> None:
        """Give a ticket back: its place in the queue, or its slot to the next; idempotent."""
        if ticket.standing is Standing.WAITING:
            self._waiting.remove(ticket)
        elif ticket.standing is Standing.HOLDING:
            self._release(ticket)
        ticket.standing = Standing.GONE
        self._grant()

    def close(self, refusal: Callable[[], TiffinError]) -> None:
        """Take nothing more; whoever waits without having begun gets this refusal."""
        self._closed = refusal
        for claim in {ticket.claim for ticket in self._waiting if not ticket.claim.begun}:
            self._refuse(claim, refusal())

    def retry_after_s(self) -> float:
        """Seconds until what waits now will have been served, at least one."""
        ahead_s = sum(self._foresight.typical_s(ticket.work) for ticket in self._waiting)
        return min(RETRY_AFTER_MAX_S, max(1.0, ahead_s / len(self._slots)))

    def came(self, ticket: Ticket, tokens: int) -> None:
        """So many tokens of its answer have come; the first call says that it has begun."""
        self._foresight.came(ticket, tokens, self._clock.monotonic())

    def wait_s(self, claim: Claim, works: Sequence[Work]) -> list[float]:
        """How long a newcomer's choices would wait for their slots, in order.

        Others' requests that come later may go before it too, as far as their tenants' shares go:
        they are expected to ask for as much as they lately did.
        """
        now = self._clock.monotonic()
        foresight = self._foresight
        left_s = [
            0.0 if slot.holder is None else foresight.left_s(slot.holder, now)
            for slot in self._slots
        ]
        costs = [self._cost(work) for work in works]
        ahead = self._waiting.before(claim, costs)
        waits = foresight.waits(left_s, ahead, works)
        slots, interactive_rate = len(self._slots), self._interactive.rate(now)
        if claim.batch:
            left = 1 - min(MOST_TAKEN, interactive_rate / slots)
            return [wait_s / left for wait_s in waits]
        before: dict[str, float] = {}
        for ticket in ahead:
            tenant = ticket.claim.tenant
            before[tenant] = before.get(tenant, 0.0) + ticket.cost
        share_s = (before.get(claim.tenant, 0.0) + sum(costs)) / claim.weight
        more_s = self._interactive.to_come(claim.tenant, share_s, before, waits[-1], now)
        return [wait_s + more_s / slots for wait_s in waits]

    def patience_s(self, ticket: Ticket) -> float:
        """For how long it may wait yet."""
        return ticket.asked + self._patience_s - self._clock.monotonic()

    def give_up(self, ticket: Ticket) -> None:
        """It has waited for too long: it is refused, unless a choice of its request has begun."""
        if ticket.standing is Standing.WAITING and not ticket.claim.begun:
            self._refuse(ticket.claim, self._waited_out())
            self._grant()

    def _cost(self, work: Work) -> float:
        """What a choice counts for in its tenant's share: slot seconds, once they are known."""
        return self._foresight.typical_s(work) or 1.0

    def _refuse_late(self, claim: Claim, works: Sequence[Work], now: float) -> None:
        """Raise `Overloaded` where it would wait so long that it came too late."""
        if not self._foresight.known:
            return
        waits = self.wait_s(claim, works)
        claim.foreseen = waits[0]
        own = self._foresight.own(works)
        if now + own.whole_s > claim.deadline:
            self.refusals["long"] += 1
            raise DeadlineExceeded(
                f"the model needs about {own.whole_s:.1f} s for this, and its deadline is in"
                f" {claim.deadline - now:.1f} s"
            )
        # An objective that is missed however little waits refuses nobody. What it took to get here,
        # where that can take less, is waiting too.
        whole_by, first_by = claim.deadline, math.inf
        opened = claim.opened or now
        self._way_s = min(self._way_s, now - opened)
        soonest = opened + self._way_s
        if soonest + own.whole_s <= claim.aim:
            whole_by = min(whole_by, claim.aim)
        if soonest + own.first_s <= claim.first:
            first_by = claim.first
        over_s = max(
            now + waits[-1] + own.whole_s - whole_by,
            now + waits[0] + own.first_s - first_by,
            waits[0] - self._patience_s,
        )
        if waits[-1] and over_s > 0:
            self.refusals["late"] += 1
            raise Overloaded(
                f"a slot of the model would be free in about {waits[-1]:.1f} s, too late for the"
                " request's deadline, the model's objective or its queue_timeout_s",
                retry_after=min(RETRY_AFTER_MAX_S, over_s),
            )

    def _make_room(self, claim: Claim) -> None:
        """Raise `Overloaded` where the queue is full, unless another has more than its share."""
        if self._waiting.claims(batch=claim.batch) < self._limit:
            return
        last = self._waiting.last_of_most(claim)
        if last is None:
            self.refusals["full"] += 1
            raise Overloaded(
                f"the model's queue is full ({self._limit} requests wait)",
                retry_after=self.retry_after_s(),
            )
        self.refusals["overtaken"] += 1
        error = Overloaded(
            f"the model's queue is full ({self._limit} requests wait), and others have less than"
            " their share of it",
            retry_after=self.retry_after_s(),
        )
        self._refuse(last.claim, error)

    def _grant(self) -> None:
        """Give free slots to those who wait, and refuse those for whom it has become too late."""
        now = self._clock.monotonic()
        while (ticket := self._waiting.first()) is not None:
            refusal = self._too_late(ticket, now)
            if refusal is not None:
                self._refuse(ticket.claim, refusal)
            elif self.running < len(self._slots):
                ticket, reason = self._waiting.take()
                self._hold(ticket, reason, now)
            else:
                return

    def _too_late(self, ticket: Ticket, now: float) -> TiffinError | None:
        claim = ticket.claim
        if claim.deadline <= now:
            self.refusals["expired"] += 1
            return DeadlineExceeded("the deadline passed in the model's queue")
        if claim.begun:
            return None
        if now >= ticket.asked + self._patience_s:
            return self._waited_out()
        if now + self._foresight.typical_s(ticket.work) > claim.deadline:
            self.refusals["overtaken"] += 1
            return Overloaded(
                "what came before this took longer than foreseen; it would end past its deadline",
                retry_after=self.retry_after_s(),
            )
        return None

    def _waited_out(self) -> Overloaded:
        self.refusals["waited"] += 1
        return Overloaded(
            f"no slot of the model came free within {self._patience_s:g} s (queue_timeout_s)",
            retry_after=self.retry_after_s(),
        )

    def _hold(self, ticket: Ticket, reason: str, now: float) -> None:
        slot = best_of([slot for slot in self._slots if slot.holder is None], ticket)
        claim, work = ticket.claim, ticket.work
        ticket.standing = Standing.HOLDING
        ticket.slot = slot.number
        ticket.reason = reason
        ticket.reuse_prefix = slot.tenant == claim.tenant != ""
        known = shared_prefix(slot.tokens, work.tokens) if ticket.reuse_prefix else 0
        self._foresight.started(ticket, work.size or max(1, len(work.tokens) - known), now)
        claim.begun = True
        slot.holder = ticket
        self.running += 1
        self.dispatches[reason] += 1
        _call(ticket)

    def _release(self, ticket: Ticket) -> None:
        slot = self._slots[ticket.slot]
        now = self._clock.monotonic()
        self._foresight.ended(ticket, now)
        self._waiting.settle(ticket, now - ticket.started)
        self.running -= 1
        slot.holder = None
        slot.used = now
        # Until the engine answers, the slot may hold its last tenant's tokens or this one's.
        slot.tenant = ticket.claim.tenant if ticket.ran else ""
        slot.tokens = ticket.work.tokens if ticket.ran else ()

    def _refuse(self, claim: Claim, error: TiffinError) -> None:
        """All of a request's choices that wait get this refusal."""
        for ticket in [ticket for ticket in self._waiting if ticket.claim is claim]:
            self._waiting.remove(ticket)
            ticket.standing = Standing.GONE
            ticket.refusal = error
            _call(ticket)


def _call(ticket: Ticket) -> None:
    if ticket.called is not None and not ticket.called.done():
        ticket.called.set_result(None)
