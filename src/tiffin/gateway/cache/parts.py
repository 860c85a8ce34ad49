"""What a flight does for a request of many inputs: each has an answer of its own, which is kept;
only those are made that aren't, and each of them once."""

from contextlib import AbstractAsyncContextManager
from dataclasses import replace
from types import TracebackType
from typing import Final

from tiffin.dialects.dialect import Inputs, Whole
from tiffin.errors import UpstreamFailed
from tiffin.gateway.account import Account
from tiffin.gateway.cache.courses import slot_of
from tiffin.gateway.cache.flights import Flight, Making
from tiffin.gateway.cache.rules import wants_fresh
from tiffin.gateway.cache.shelf import Placed, Remembered, Shelf, Slot
from tiffin.gateway.respond import JSON, Delivery, Kept
from tiffin.gateway.run import Answer, Run
from tiffin.ports.exchange import Headers

INPUTS: Final = b"x-tiffin-cache-inputs"


class PartsCourse:
    """Answers under the keys of their inputs; satisfies `flights.Course`. `at` and `key` are as
    they are of a whole one, but for several inputs there is no key to be told."""

    def __init__(
        self, shelf: Shelf, run: Run, delivery: Delivery, make: Making, inputs: Inputs
    ) -> None:
        self.run = run
        self.delivery = delivery
        self.result = "miss"
        self.kept_inputs = 0
        self.inputs = inputs
        self._shelf = shelf
        self._make = make
        self.slots = [slot_of(run, delivery, part) for part in inputs.parts()]
        self.answers: dict[Slot, bytes] = {}
        self.missing = list(dict.fromkeys(self.slots))
        self.key = self.slots[0].key if len(self.slots) == 1 else b""
        self.at = self.key or slot_of(run, delivery, run.asked.canonical()).key

    def headers(self) -> Headers:
        """How many of the inputs were kept."""
        if not self.kept_inputs:
            return []
        return [(INPUTS, b"%d/%d" % (self.kept_inputs, len(self.slots)))]

    async def find(self, work: Account) -> Kept | None:
        """The answer, where that of every input is kept."""
        return await self._find("hit", stale=False)

    async def stale(self) -> Kept | None:
        """The answer, where that of every input was good not long ago."""
        return await self._find("stale", stale=True)

    def make(self, run: Run, account: Account) -> AbstractAsyncContextManager[Answer]:
        """A context that makes what isn't kept."""
        if len(self.missing) == len(self.slots):
            return self._make(run, account)
        if self.kept_inputs:
            self.result = "partial"
        some = self.inputs.only([self.slots.index(slot) for slot in self.missing])
        return Completed(self, self._make(replace(run, asked=some), account))

    def unpaid(self, body: bytes) -> bytes:
        """It used nothing."""
        answers = self.inputs.split(body)
        return self.inputs.joined(answers, b"") if answers else body

    async def keep(self, flight: Flight) -> None:
        """Keep what was made."""
        if not self.answers:
            self.answers = dict(zip(self.slots, self.inputs.split(flight.body()), strict=False))
        form = self.run.asked.cached_as
        fresh = [slot for slot in self.missing if slot in self.answers]
        made = [
            Remembered(body=self.answers[slot], headers=[], streaming=False, form=form)
            for slot in fresh
        ]
        placed = list(map(Placed, fresh, made))
        await self._shelf.keep(placed, self.run.plan.cache, flight.work.opened_ns)

    def joined(self, made: bytes) -> bytes:
        """The whole answer; `made` is what was made of it now, empty if nothing was."""
        return self.inputs.joined([self.answers[slot] for slot in self.slots], made)

    async def _find(self, result: str, *, stale: bool) -> Kept | None:
        if wants_fresh(self.delivery.exchange):
            return None
        unique = list(dict.fromkeys(self.slots))
        found = await self._shelf.find(unique, stale=stale)
        answers = {slot: one.body for slot, one in found.items()}
        missing = [slot for slot in unique if slot not in answers]
        if stale and missing:
            return None
        self.answers, self.missing = answers, missing
        self.kept_inputs = sum(slot in answers for slot in self.slots)
        if missing:
            return None
        self.result = result
        return Kept(body=self.joined(b""), headers=[JSON], streaming=False)


class Completed:
    """A context: what is made, and what was kept, as one answer."""

    def __init__(self, course: PartsCourse, making: AbstractAsyncContextManager[Answer]) -> None:
        self._course = course
        self._making = making

    async def __aenter__(self) -> Answer:
        answer = await self._making.__aenter__()
        try:
            return self._complete(answer)
        except BaseException as error:
            await self._making.__aexit__(type(error), error, None)
            raise

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self._making.__aexit__(kind, error, trace)

    def _complete(self, answer: Answer) -> Answer:
        course = self._course
        made = course.inputs.split(answer.body) if isinstance(answer, Whole) else []
        if not isinstance(answer, Whole) or len(made) != len(course.missing):
            raise UpstreamFailed("the answer doesn't say which of its rows is whose")
        course.answers |= zip(course.missing, made, strict=True)
        return Whole(answer.headers, course.joined(answer.body), answer.usage)
