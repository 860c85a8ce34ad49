"""The bounded queue in front of an engine's slots: who runs next, and in which slot.

The state machine is pure (values and an injected clock); `Turn` is the only part that waits.
A slot is a lane of the engine's memory: it may still hold the tokens of its last prompt, which
only the same tenant may use again.
"""

import asyncio
import math
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from enum import Enum
from heapq import heapify, heapreplace
from types import TracebackType
from typing import Final

from tiffin.errors import DeadlineExceeded, Overloaded, TiffinError
from tiffin.ports.clock import Clock

RETRY_AFTER_MAX_S: Final = 60.0
HOLD_WEIGHT: Final = 0.2  # of the newest holding time in the running mean
REASONS: Final = ("full", "late", "expired")
"""Why a request is refused: the queue is full; it would come too late; its deadline has passed."""


class Standing(Enum):
    """Where a ticket is: it goes from WAITING to HOLDING to GONE, or straight to GONE."""

    WAITING = "waiting"
    HOLDING = "holding"
    GONE = "gone"


@dataclass(slots=True, eq=False)
class Claim:
    """One request at the queue: all its choices queue as one. Moments are monotonic seconds.

    By `aim` it should be answered and by `first` begun; after `deadline` it isn't any more.
    """

    tenant: str
    deadline: float = math.inf
    batch: bool = False
    aim: float = math.inf
    first: float = math.inf
    waiting: int = 0
    begun: bool = False


@dataclass(slots=True, eq=False)
class Ticket:
    """One choice's place, in the queue and then in a slot.

    `reuse_prefix` says that what the slot remembers is this tenant's own. Set `ran` when the
    engine has begun to answer: only then is it certain whose tokens the slot holds.
    """

    claim: Claim
    tokens: Sequence[int]
    asked: float
    standing: Standing = Standing.WAITING
    slot: int = -1
    reuse_prefix: bool = False
    ran: bool = False
    started: float = 0.0
    refusal: TiffinError | None = None
    called: asyncio.Future[None] | None = None


@dataclass(slots=True, eq=False)
class _Slot:
    number: int
    tenant: str = ""
    tokens: Sequence[int] = ()
    used: float = -math.inf
    holder: Ticket | None = None


@dataclass(slots=True)
class _Queues:
    """Waiting tickets, first come first, interactive before batch."""

    interactive: deque[Ticket] = field(default_factory=deque)
    batch: deque[Ticket] = field(default_factory=deque)

    def of(self, claim: Claim) -> deque[Ticket]:
        return self.batch if claim.batch else self.interactive

    def head(self) -> Ticket | None:
        queue = self.interactive or self.batch
        return queue[0] if queue else None

    def __len__(self) -> int:
        return len(self.interactive) + len(self.batch)


class Lanes:
    """Grants `slots` slots to tickets; at most `queue` requests wait, others are refused.

    Every ticket must be given back by `leave`, whatever became of it.
    """

    def __init__(self, slots: int, queue: int, clock: Clock) -> None:
        self._slots = [_Slot(number) for number in range(slots)]
        self._limit = queue
        self._clock = clock
        self._queues = _Queues()
        self._claims = 0  # that wait
        self._hold_s = 0.0
        self._first_s = 0.0  # from holding a slot to the first token
        self.refusals = dict.fromkeys(REASONS, 0)
        """How many requests were refused, by why."""
        self._closed: Callable[[], TiffinError] | None = None

    @property
    def running(self) -> int:
        """How many slots are held."""
        return sum(slot.holder is not None for slot in self._slots)

    @property
    def waiting(self) -> int:
        """How many requests wait for a slot."""
        return self._claims

    def ask(self, claim: Claim, prompts: Sequence[Sequence[int]]) -> list[Ticket]:
        """Queue one ticket a prompt, all or none; those that find a slot hold it at once.

        Raises `Overloaded` (with an estimate of when to come again), `DeadlineExceeded`, or the
        refusal that `close` was given.
        """
        now = self._clock.monotonic()
        if self._closed is not None:
            raise self._closed()
        if claim.deadline <= now:
            self.refusals["expired"] += 1
            raise DeadlineExceeded("the deadline had passed before the request could be queued")
        free = len(self._slots) - self.running
        if len(prompts) > free and self._claims >= self._limit:
            self.refusals["full"] += 1
            raise Overloaded(
                f"the model's queue is full ({self._limit} requests wait)",
                retry_after=self.retry_after_s(),
            )
        if len(prompts) > free:
            self._refuse_late(claim, len(prompts), now)
        tickets = [Ticket(claim, tokens, now) for tokens in prompts]
        self._queues.of(claim).extend(tickets)
        claim.waiting = len(tickets)
        self._claims += 1
        self._grant()
        return tickets

    def leave(self, ticket: Ticket) -> None:
        """Give a ticket back: its place in the queue, or its slot to the next; idempotent."""
        if ticket.standing is Standing.WAITING:
            self._queues.of(ticket.claim).remove(ticket)
            self._unqueued(ticket)
        elif ticket.standing is Standing.HOLDING:
            self._release(ticket)
        ticket.standing = Standing.GONE
        self._grant()

    def close(self, refusal: Callable[[], TiffinError]) -> None:
        """Take nothing more; whoever waits without having begun gets this refusal."""
        self._closed = refusal
        for queue in (self._queues.interactive, self._queues.batch):
            for ticket in [ticket for ticket in queue if not ticket.claim.begun]:
                queue.remove(ticket)
                self._refuse(ticket, refusal())

    def retry_after_s(self) -> float:
        """Whole seconds until what waits now will have been served, by the recent holding time."""
        ahead_s = len(self._queues) * self._hold_s / len(self._slots)
        return min(RETRY_AFTER_MAX_S, max(1.0, math.ceil(ahead_s)))

    def began(self, ticket: Ticket) -> None:
        """Its first token has come."""
        ticket.ran = True
        self._first_s = _mean(self._first_s, self._clock.monotonic() - ticket.started)

    def wait_s(self, claim: Claim, choices: int = 1) -> float:
        """How long a newcomer's last choice would wait for its slot, by the recent holding times.

        A holder that has had its slot for longer than usual is taken to need half as long again.
        """
        now = self._clock.monotonic()
        ahead = len(self._queues.interactive)
        if claim.batch:
            ahead += len(self._queues.batch)
        # Slots come free one after the other; each is then held for as long as usual.
        free_at = [self._left_s(slot, now) for slot in self._slots]
        heapify(free_at)
        for _ in range(ahead + choices - 1):
            heapreplace(free_at, free_at[0] + self._hold_s)
        return free_at[0]

    def _left_s(self, slot: _Slot, now: float) -> float:
        if slot.holder is None:
            return 0.0
        held_s = now - slot.holder.started
        return max(self._hold_s - held_s, held_s / 2 if held_s > self._hold_s else 0.0)

    def _refuse_late(self, claim: Claim, choices: int, now: float) -> None:
        """Raise `Overloaded` where it would wait so long that it came too late."""
        if not self._hold_s or min(claim.deadline, claim.aim, claim.first) == math.inf:
            return
        wait_s = self.wait_s(claim, choices)
        whole_by = min(claim.deadline, claim.aim)
        if now + self._hold_s > claim.aim:  # the objective is missed however little waits
            whole_by = claim.deadline
        over_s = now + wait_s - min(whole_by - self._hold_s, claim.first - self._first_s)
        if wait_s and over_s > 0:
            self.refusals["late"] += 1
            raise Overloaded(
                f"a slot of the model would be free in about {wait_s:.1f} s,"
                " too late for the request's deadline or the model's objective",
                retry_after=min(RETRY_AFTER_MAX_S, over_s),
            )

    def _grant(self) -> None:
        now = self._clock.monotonic()
        while (ticket := self._queues.head()) is not None:
            late = ticket.claim.deadline <= now
            free = [slot for slot in self._slots if slot.holder is None]
            if not late and not free:
                return
            self._queues.of(ticket.claim).popleft()
            if late:
                self.refusals["expired"] += 1
                self._refuse(ticket, DeadlineExceeded("the deadline passed in the model's queue"))
            else:
                self._hold(ticket, _best(free, ticket), now)

    def _hold(self, ticket: Ticket, slot: _Slot, now: float) -> None:
        ticket.standing = Standing.HOLDING
        ticket.slot = slot.number
        ticket.reuse_prefix = slot.tenant == ticket.claim.tenant != ""
        ticket.started = now
        ticket.claim.begun = True
        slot.holder = ticket
        self._unqueued(ticket)
        _call(ticket)

    def _release(self, ticket: Ticket) -> None:
        slot = self._slots[ticket.slot]
        now = self._clock.monotonic()
        slot.holder = None
        slot.used = now
        # Until the engine answers, the slot may hold its last tenant's tokens or this one's.
        slot.tenant = ticket.claim.tenant if ticket.ran else ""
        slot.tokens = ticket.tokens if ticket.ran else ()
        held_s = now - ticket.started
        self._hold_s = _mean(self._hold_s, held_s)

    def _refuse(self, ticket: Ticket, error: TiffinError) -> None:
        ticket.standing = Standing.GONE
        ticket.refusal = error
        self._unqueued(ticket)
        _call(ticket)

    def _unqueued(self, ticket: Ticket) -> None:
        ticket.claim.waiting -= 1
        if ticket.claim.waiting == 0:
            self._claims -= 1


class Turn:
    """Entering waits for the ticket's slot, or raises its refusal; leaving gives the slot back."""

    __slots__ = ("_lanes", "_ticket")

    def __init__(self, lanes: Lanes, ticket: Ticket) -> None:
        self._lanes = lanes
        self._ticket = ticket

    async def __aenter__(self) -> Ticket:
        ticket = self._ticket
        try:
            if ticket.standing is Standing.WAITING:
                ticket.called = asyncio.get_running_loop().create_future()
                await ticket.called
            if ticket.refusal is not None:
                raise ticket.refusal
        except BaseException:
            self._lanes.leave(ticket)
            raise
        return ticket

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._lanes.leave(self._ticket)


def _mean(known: float, newest: float) -> float:
    return known + HOLD_WEIGHT * (newest - known) if known else newest


def _call(ticket: Ticket) -> None:
    if ticket.called is not None and not ticket.called.done():
        ticket.called.set_result(None)


def _best(free: Sequence[_Slot], ticket: Ticket) -> _Slot:
    """The tenant's own slot that remembers most of the prompt, else the one idle for longest.

    A slot counts only where at least half of what it remembers is used again: a chat template's
    first words alone are no reason to overwrite another conversation.
    """
    best, most = None, 0
    for slot in free:
        if slot.tenant == ticket.claim.tenant != "":
            shared = shared_prefix(slot.tokens, ticket.tokens)
            if shared > most and 2 * shared >= len(slot.tokens):
                best, most = slot, shared
    return best or min(free, key=lambda slot: slot.used)


def shared_prefix(one: Sequence[int], two: Sequence[int]) -> int:
    """How many first tokens two prompts share."""
    low, high = 0, min(len(one), len(two))
    while low < high:
        middle = (low + high + 1) // 2
        if one[low:middle] == two[low:middle]:
            low = middle
        else:
            high = middle - 1
    return low
