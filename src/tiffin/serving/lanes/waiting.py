"""Who is next of those that wait: shares of tenants, interactive before batch; pure.

Tenants share slots by their weights: each has a mark of where its use ends, and the lowest mark is
next. So who asks little never waits behind another's flood, and a tenant's own requests keep their
order. Batch work waits for interactive work, but is owed a small share of what that takes.
"""

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final

from tiffin.serving.lanes.claim import Claim, Ticket

BATCH_SHARE: Final = 0.05
"""Of slot time, while interactive work never ends, for batch work."""
FORGET_AT: Final = 64  # tenants that are remembered before the needless are forgotten


@dataclass(slots=True)
class _Use:
    """One tenant's waiting tickets, and where its use ends."""

    weight: float
    end: float = 0.0
    tickets: deque[Ticket] = field(default_factory=deque)


class _Line:
    """One class of urgency. Each request in it counts once, however many choices of it wait."""

    def __init__(self) -> None:
        self.claims = 0
        self._uses: dict[str, _Use] = {}
        self._reached = 0.0
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def __iter__(self) -> Iterator[Ticket]:
        for use in self._uses.values():
            yield from use.tickets

    def put(self, ticket: Ticket) -> None:
        use = self._uses.get(ticket.claim.tenant)
        if use is None:
            self._forget()
            use = self._uses[ticket.claim.tenant] = _Use(ticket.claim.weight)
        use.weight = ticket.claim.weight
        if not use.tickets:
            use.end = max(use.end, self._reached)
        use.tickets.append(ticket)
        self._count += 1

    def first(self) -> Ticket:
        return min(self._waiting(), key=_by_mark).tickets[0]

    def remove(self, ticket: Ticket) -> None:
        self._uses[ticket.claim.tenant].tickets.remove(ticket)
        self._count -= 1
        self._rest()

    def take(self) -> tuple[Ticket, bool]:
        """The next one, and whether others who came sooner have to let it pass."""
        heads = self._waiting()
        use = min(heads, key=_by_mark)
        ticket = use.tickets.popleft()
        passed = any(other.tickets and other.tickets[0].number < ticket.number for other in heads)
        self._reached = max(self._reached, use.end)
        use.end += ticket.cost / use.weight
        self._count -= 1
        self._rest()
        return ticket, passed

    def settle(self, claim: Claim, more: float) -> None:
        """A slot was held for so much longer (or shorter) than was taken for it."""
        use = self._uses.get(claim.tenant)
        if use is not None:
            use.end += more / use.weight

    def before(self, claim: Claim, costs: Sequence[float]) -> list[Ticket]:
        """Those who would go before a newcomer's last choice, in their order."""
        own = self._uses.get(claim.tenant)
        mark = max(own.end, self._reached) if own else self._reached
        if own:
            mark += sum(ticket.cost for ticket in own.tickets) / claim.weight
        last = mark + sum(costs[:-1]) / claim.weight
        found: list[tuple[float, int, Ticket]] = []
        for use in self._uses.values():
            at = use.end
            for ticket in use.tickets:
                if at > last and use is not own:
                    break
                found.append((at, ticket.number, ticket))
                at += ticket.cost / use.weight
        return [ticket for _, _, ticket in sorted(found)]

    def last_of_most(self, claim: Claim) -> Ticket | None:
        """The newest of the tenant who has most waiting by its weight, if more than this one's."""
        most = max(self._waiting(), key=lambda use: len(use.tickets) / use.weight, default=None)
        own = self._uses.get(claim.tenant)
        if most is None or most is own:
            return None
        mine = ((len(own.tickets) if own else 0) + 1) / claim.weight
        if mine >= len(most.tickets) / most.weight:
            return None
        return next((t for t in reversed(most.tickets) if not t.claim.begun), None)

    def _waiting(self) -> list[_Use]:
        return [use for use in self._uses.values() if use.tickets]

    def _rest(self) -> None:
        """Where nothing waits, nobody has had more than another."""
        if not self._count:
            self._uses.clear()
            self._reached = 0.0

    def _forget(self) -> None:
        """Let go of tenants without any waiting where they are many, of past uses first."""
        if len(self._uses) < FORGET_AT:
            return
        self._keep(lambda use: use.end > self._reached)
        if len(self._uses) >= 2 * FORGET_AT:
            self._keep(lambda use: False)

    def _keep(self, wanted: Callable[[_Use], bool]) -> None:
        self._uses = {
            tenant: use for tenant, use in self._uses.items() if use.tickets or wanted(use)
        }


class Waiting:
    """The queue: what is put in comes out once, by `take` or `remove`."""

    def __init__(self) -> None:
        self._interactive = _Line()
        self._batch = _Line()
        self._owed = 0.0  # what batch work may take before interactive work
        self._number = 0

    def __len__(self) -> int:
        return len(self._interactive) + len(self._batch)

    def __iter__(self) -> Iterator[Ticket]:
        yield from self._interactive
        yield from self._batch

    def claims(self, *, batch: bool) -> int:
        """How many requests of this class wait."""
        return self._line(batch).claims

    def put(self, claim: Claim, tickets: Sequence[Ticket]) -> None:
        """Queue a request's choices."""
        line = self._line(claim.batch)
        for ticket in tickets:
            self._number = ticket.number = self._number + 1
            line.put(ticket)
        claim.waiting = len(tickets)
        line.claims += 1

    def remove(self, ticket: Ticket) -> None:
        """Take one out, wherever it stands."""
        self._line(ticket.claim.batch).remove(ticket)
        self._gone(ticket.claim)

    def first(self) -> Ticket | None:
        """Who is next."""
        return self._next().first() if len(self) else None

    def take(self) -> tuple[Ticket, str]:
        """The next one and why it is: `turn` (of those who wait, it came first), `fair` (its
        tenant's share puts it before who came sooner) or `batch_share`."""
        line = self._next()
        shared = line is self._batch and len(self._interactive) > 0
        ticket, passed = line.take()
        self._settle(line, ticket.cost)
        self._gone(ticket.claim)
        return ticket, "batch_share" if shared else "fair" if passed else "turn"

    def settle(self, ticket: Ticket, held: float) -> None:
        """A ticket's slot was held for that long."""
        self._line(ticket.claim.batch).settle(ticket.claim, held - ticket.cost)

    def before(self, claim: Claim, costs: Sequence[float]) -> list[Ticket]:
        """Those who would go before a newcomer's last choice, in their order."""
        if claim.batch:
            return [*self._interactive, *self._batch.before(claim, costs)]
        owed = [self._batch.first()] if self._next() is self._batch and len(self._batch) else []
        return [*owed, *self._interactive.before(claim, costs)]

    def last_of_most(self, claim: Claim) -> Ticket | None:
        """The newest of the tenant with most waiting of this class, if that is unfair to this."""
        return self._line(claim.batch).last_of_most(claim)

    def _line(self, batch: bool) -> _Line:
        return self._batch if batch else self._interactive

    def _next(self) -> _Line:
        if not len(self._batch):
            return self._interactive
        if not len(self._interactive) or self._owed >= self._batch.first().cost:
            return self._batch
        return self._interactive

    def _settle(self, line: _Line, cost: float) -> None:
        """Batch work is owed its share of what others take while it waits."""
        if line is self._interactive and len(self._batch):
            self._owed += cost * BATCH_SHARE / (1 - BATCH_SHARE)
        elif line is self._batch and len(self._interactive):
            self._owed -= cost
        if not len(self._batch):
            self._owed = 0.0

    def _gone(self, claim: Claim) -> None:
        claim.waiting -= 1
        if claim.waiting == 0:
            self._line(claim.batch).claims -= 1


def _by_mark(use: _Use) -> tuple[float, int]:
    return use.end, use.tickets[0].number
