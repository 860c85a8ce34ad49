"""The cache stage of the walk: an answer that was made before is given again, one that is being
made is given to everybody who asks for it, one that is made is kept."""

import asyncio
from contextlib import AbstractAsyncContextManager
from types import TracebackType
from typing import Final

import msgspec

from tiffin.dialects.dialect import Recasting, Whole
from tiffin.errors import DeadlineExceeded
from tiffin.gateway.account import Accounts
from tiffin.gateway.cache.flights import Course, Flight, Making, Seat
from tiffin.gateway.cache.rules import cache_key, may_keep, wants_fresh
from tiffin.gateway.cache.shelf import Remembered, Shelf, Slot
from tiffin.gateway.respond import JSON, Delivery, send_kept
from tiffin.gateway.run import Answer, Run

MARK: Final = b"x-tiffin-cache"
KEY: Final = b"x-tiffin-cache-key"
MAX_KEEPING: Final = 256
SHUT_S: Final = 5.0

Place = tuple[bytes, str, int, bool]
"""A key and the form of an answer; how much its prompt may be, and whether it may wait: what one
request is refused, or waits for, another need not be."""


class ReplayCache:
    """Kept answers, and those that are on their way, for plans whose `cache` is on."""

    def __init__(self, accounts: Accounts, shelf: Shelf | None = None) -> None:
        self.accounts = accounts
        self.shelf = shelf or Shelf(accounts.clock)
        self._flights: dict[Place, Flight] = {}
        self._keeping = 0

    def answer(
        self, run: Run, delivery: Delivery, make: Making
    ) -> AbstractAsyncContextManager[Answer | None]:
        """A context: entering gives the answer to send, or None where it has been sent."""
        if not run.plan.cache.on:
            return make(run, delivery.account)
        if not may_keep(run, delivery.exchange):
            self.mark(run, delivery, "bypass")
            return make(run, delivery.account)
        return LookUp(self, run, delivery, make)

    def mark(self, run: Run, delivery: Delivery, result: str) -> None:
        """Note what the cache did for a request, in its account, its answer and the metrics."""
        delivery.account.cache = result
        delivery.headers.append((MARK, result.encode()))
        self.accounts.cache.add((run.plan.name, result))

    def seat(self, look_up: "LookUp") -> Seat:
        """A seat in the flight of a request's answer, which begins here if there is none."""
        run, delivery = look_up.run, look_up.delivery
        place = (look_up.slot.key, run.asked.cached_as, run.most_tokens, run.batch)
        flight = self._flights.get(place)
        fresh = wants_fresh(delivery.exchange)
        # What is claimed under an idempotency key is made and kept for that request.
        alone = fresh or run.paying is not None
        if flight is None or alone or not flight.whole:
            flight = Flight(look_up.course())
            if not alone:
                self._flights[place] = flight
                flight.task.add_done_callback(lambda _: self._landed(place, flight))
        return Seat(flight, run, delivery.account)

    async def keep(self, run: Run, slot: Slot, flight: Flight) -> None:
        """Keep what a flight came to; where too many are being kept already it isn't."""
        if self._keeping >= MAX_KEEPING:
            return
        self._keeping += 1
        try:
            answer, asked = flight.answer, run.asked
            kept = Remembered(
                body=flight.body(),
                headers=answer.headers if isinstance(answer, Whole) else [],
                streaming=asked.streaming,
                form=asked.cached_as,
                usage=flight.work.usage,
            )
            await self.shelf.keep(slot, run.plan.cache, kept)
        finally:
            self._keeping -= 1

    async def shut(self) -> None:
        """Wait until what is being kept is kept."""
        if tasks := [flight.task for flight in self._flights.values()]:
            await asyncio.wait(tasks, timeout=SHUT_S)

    def _landed(self, place: Place, flight: Flight) -> None:
        if self._flights.get(place) is flight:
            del self._flights[place]

    async def find(self, run: Run, slot: Slot, *, stale: bool) -> Remembered | None:
        """An answer in the form that is asked for: a good one; or one that was, not long ago."""
        kept = await self.shelf.find(slot, stale=stale)
        if kept is None or kept.form == run.asked.cached_as:
            return kept
        if not isinstance(run.asked, Recasting):
            return None
        body = run.asked.recast(kept.body, kept.form, run.asked.cached_as, kept.usage)
        if body is None:
            return None
        streaming, form = run.asked.streaming, run.asked.cached_as
        return msgspec.structs.replace(
            kept, body=body, headers=kept.headers or [JSON], streaming=streaming, form=form
        )


class LookUp:
    """One request's use of the cache."""

    __slots__ = ("_cache", "_seat", "delivery", "make", "run", "slot")

    def __init__(self, cache: ReplayCache, run: Run, delivery: Delivery, make: Making) -> None:
        self._cache = cache
        self._seat: Seat | None = None
        self.run = run
        self.delivery = delivery
        self.make = make
        self.slot = slot_of(run, delivery)

    async def __aenter__(self) -> Answer | None:
        delivery = self.delivery
        delivery.headers.append((KEY, self.slot.key.hex().encode()))
        try:
            seat = await self._ready()
        except BaseException:
            await self.__aexit__(None, None, None)
            raise
        flight, account = seat.flight, delivery.account
        if flight.kept is not None:
            result = "stale" if flight.is_stale else "hit"
            self._given(result)
            send_kept(delivery, flight.kept, (MARK, result.encode()))
            return None
        if seat.pays:
            self._cache.mark(self.run, delivery, "miss")
        else:
            result = "hit" if seat.after else "joined"
            self._given(result)
            delivery.headers.append((MARK, result.encode()))
            account.revision = flight.work.revision
        return seat.answer()

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        seat, self._seat = self._seat, None
        if seat is not None:
            await seat.flight.leave(seat)

    def course(self) -> Course:
        """What a flight does for this request."""

        async def find() -> Remembered | None:
            return await self._find(stale=False)

        async def stale() -> Remembered | None:
            return await self._find(stale=True)

        async def keep(flight: Flight) -> None:
            await self._cache.keep(self.run, self.slot, flight)

        return Course(self.run, self.delivery, find, stale, self.make, keep)

    async def _find(self, *, stale: bool) -> Remembered | None:
        if wants_fresh(self.delivery.exchange):
            return None
        return await self._cache.find(self.run, self.slot, stale=stale)

    async def _ready(self) -> Seat:
        """A seat where there is something to give; another flight where the first had less time
        than we have."""
        while True:
            seat = self._seat = self._cache.seat(self)
            try:
                await seat.ready()
            except DeadlineExceeded:
                if seat.leads or seat.late:
                    raise
                await self.__aexit__(None, None, None)
            else:
                return seat

    def _given(self, result: str) -> None:
        """What this request gets was made for another one."""
        account, plan = self.delivery.account, self.run.plan
        account.cache = result
        account.given(plan.targets[0].price)
        self._cache.accounts.cache.add((plan.name, result))


def slot_of(run: Run, delivery: Delivery) -> Slot:
    """Where the answer to a request belongs."""
    key = cache_key(run, delivery.account.endpoint, run.asked.canonical())
    return Slot(tenant=run.tenant, model=run.plan.name, key=key)
