"""How long slots will be held and newcomers wait, from what was learnt; moments are given to it."""

from collections.abc import Iterable, Sequence
from heapq import heapify, heapreplace
from typing import Final, NamedTuple

from tiffin.serving.lanes.claim import Seen, Ticket, Work
from tiffin.serving.lanes.pace import Pace

LEARN_TOKENS: Final = 16  # after which a running answer teaches how fast the model writes


class Own(NamedTuple):
    """What a newcomer takes once it has its slots, in seconds: to the first token, and whole."""

    first_s: float
    whole_s: float


class Foresight:
    """What is known of one model's `slots`; tell it of every start, token and end."""

    def __init__(self, slots: int, now: float) -> None:
        self.pace = Pace(slots)
        """What was learnt of the model."""
        self._running = 0
        self._use = 0.0  # slot seconds so far
        self._use_at = now

    @property
    def known(self) -> bool:
        """Whether anything was learnt yet."""
        return self.pace.reading.at(1) > 0

    def typical_s(self, work: Work) -> float:
        """How long such work usually holds its slot; 0: nothing is known."""
        pace = self.pace
        return pace.hold_s(self._size(work), pace.lengths.mean(work.answer))

    def own(self, works: Sequence[Work]) -> Own:
        """How long a newcomer's choices take, as far as can be promised."""
        pace = self.pace
        sizes = [self._size(work) for work in works]
        longest = max(
            pace.hold_s(size, pace.lengths.promised(work.answer))
            for size, work in zip(sizes, works, strict=True)
        )
        return Own(pace.reading.at(sizes[0]), longest)

    def waits(
        self, left_s: list[float], ahead: Iterable[Ticket], works: Sequence[Work]
    ) -> list[float]:
        """How long each choice of a newcomer would wait, where slots are free after `left_s`.

        Slots come free one after the other, and who is ahead takes the next. While anybody waits
        all slots run, so that is how fast they are taken to be.
        """
        heapify(left_s)
        for ticket in ahead:
            heapreplace(left_s, left_s[0] + self.typical_s(ticket.work))
        waits = []
        for work in works:
            waits.append(left_s[0])
            heapreplace(left_s, left_s[0] + self.typical_s(work))
        return waits

    def left_s(self, ticket: Ticket, now: float) -> float:
        """How long a holder will need its slot yet; one that is late, half as long again."""
        pace, answer = self.pace, ticket.work.answer
        if ticket.seen is not None:
            self._learn_writing(ticket, LEARN_TOKENS, now)
            token_s = pace.token_s
            left_s = pace.lengths.left(ticket.done, answer) * token_s
            # What comes several tokens at once is further along than it looks.
            return max(left_s - (now - ticket.seen.latest), min(left_s, token_s))
        held_s = now - ticket.started
        read_s = pace.reading.at(ticket.size)
        rest_s = max(read_s - held_s, held_s / 2 if held_s > read_s else 0.0)
        return rest_s + pace.hold_s(0, pace.lengths.mean(answer)) - pace.reading.at(0)

    def started(self, ticket: Ticket, size: float, now: float) -> None:
        """It has a slot, and so much of its prompt must be read."""
        ticket.started = now
        ticket.size = size
        self.pace.learn_fresh(size, len(ticket.work.tokens))
        self._use_until(now)
        self._running += 1

    def came(self, ticket: Ticket, tokens: int, now: float) -> None:
        """So many tokens of its answer have come."""
        ticket.done += tokens
        if ticket.seen is not None:
            ticket.seen.latest = now
            return
        ticket.ran = True
        self.pace.reading.learn(ticket.size, now - ticket.started)
        ticket.seen = Seen(ticket.done, now, self._use_until(now), now)

    def ended(self, ticket: Ticket, now: float) -> None:
        """It gives its slot back."""
        self._learn_writing(ticket, 1, now)
        if ticket.seen is not None and ticket.work.answer:
            self.pace.lengths.add(ticket.done, ticket.work.answer, ended=ticket.ended)
        self._use_until(now)
        self._running -= 1

    def _size(self, work: Work) -> float:
        return work.size or self.pace.size(len(work.tokens))

    def _learn_writing(self, ticket: Ticket, least: int, now: float) -> None:
        seen = ticket.seen
        if seen is None or ticket.done - seen.tokens < least or seen.latest <= seen.at:
            return
        use = self._use_until(now)
        running = (use - seen.use) / (now - seen.at)
        self.pace.writing.learn(running, seen.latest - seen.at, ticket.done - seen.tokens)
        use -= self._running * (now - seen.latest)
        ticket.seen = Seen(ticket.done, seen.latest, use, seen.latest)

    def _use_until(self, now: float) -> float:
        self._use += self._running * (now - self._use_at)
        self._use_at = now
        return self._use
