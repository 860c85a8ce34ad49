"""What a flight does for a request whose answer is kept as one."""

from contextlib import AbstractAsyncContextManager

import msgspec

from tiffin.dialects.dialect import Recasting, Whole
from tiffin.gateway.account import Account
from tiffin.gateway.cache.flights import Flight, Making
from tiffin.gateway.cache.rules import cache_key, wants_fresh
from tiffin.gateway.cache.shelf import Placed, Remembered, Shelf, Slot
from tiffin.gateway.respond import JSON, Delivery
from tiffin.gateway.run import Answer, Run
from tiffin.ports.exchange import Headers


class WholeCourse:
    """One answer under one key; satisfies `flights.Course`. Requests with the same `at` may share a
    flight; `key` is what their client is told, to have the answer purged."""

    kept_inputs = 0

    def __init__(self, shelf: Shelf, run: Run, delivery: Delivery, make: Making) -> None:
        self.run = run
        self.delivery = delivery
        self.result = "miss"
        self._shelf = shelf
        self._make = make
        self.slot = slot_of(run, delivery, run.asked.canonical())
        self.at = self.key = self.slot.key

    def headers(self) -> Headers:
        """Nothing else."""
        return []

    async def find(self, work: Account) -> Remembered | None:
        """The answer, if it is kept and good, and the client doesn't want it made now."""
        return await self._find("hit", stale=False)

    async def stale(self) -> Remembered | None:
        """The answer, if it was good not long ago."""
        return await self._find("stale", stale=True)

    def make(self, run: Run, account: Account) -> AbstractAsyncContextManager[Answer]:
        """A context that makes it."""
        return self._make(run, account)

    def unpaid(self, body: bytes) -> bytes:
        """It says what it used when it was made, as it does whenever it is given again."""
        return body

    async def keep(self, flight: Flight) -> None:
        """Keep it."""
        answer, asked = flight.answer, self.run.asked
        kept = Remembered(
            body=flight.body(),
            headers=answer.headers if isinstance(answer, Whole) else [],
            streaming=asked.streaming,
            form=asked.cached_as,
            usage=flight.work.usage,
        )
        placed = [self._placed(kept)]
        await self._shelf.keep(placed, self.run.plan.cache, flight.work.opened_ns)

    def _placed(self, kept: Remembered) -> Placed:
        return Placed(self.slot, kept)

    async def _find(self, result: str, *, stale: bool) -> Remembered | None:
        if wants_fresh(self.delivery.exchange):
            return None
        found = await self._shelf.find([self.slot], stale=stale)
        kept = self.in_form(found[self.slot]) if found else None
        if kept is not None:
            self.result = result
        return kept

    def in_form(self, kept: Remembered) -> Remembered | None:
        """An answer in the form that is asked for, where it can be had."""
        asked = self.run.asked
        if kept.form == asked.cached_as:
            return kept
        if not isinstance(asked, Recasting):
            return None
        body = asked.recast(kept.body, kept.form, asked.cached_as, kept.usage)
        if body is None:
            return None
        return msgspec.structs.replace(
            kept,
            body=body,
            headers=[] if asked.streaming else kept.headers or [JSON],
            streaming=asked.streaming,
            form=asked.cached_as,
        )


def slot_of(run: Run, delivery: Delivery, request: bytes) -> Slot:
    """Where the answer to a canonical request belongs."""
    key = cache_key(run, delivery.account.endpoint, request)
    return Slot(tenant=run.tenant, model=run.plan.name, key=key)
