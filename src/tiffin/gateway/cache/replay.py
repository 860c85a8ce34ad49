"""The cache stage of the walk: an answer that was made before is given again, one that is being
made is given to everybody who asks for it, one that is made is kept."""

import asyncio
from contextlib import AbstractAsyncContextManager
from types import TracebackType
from typing import Final

from tiffin.dialects.dialect import Conversing, Parted
from tiffin.errors import DeadlineExceeded
from tiffin.gateway.account import Accounts
from tiffin.gateway.cache.courses import WholeCourse
from tiffin.gateway.cache.flights import Flight, Making, Seat
from tiffin.gateway.cache.parts import PartsCourse
from tiffin.gateway.cache.rules import may_keep, wants_fresh
from tiffin.gateway.cache.semantic import Asking, SemanticCourse
from tiffin.gateway.cache.shelf import Shelf
from tiffin.gateway.respond import Delivery, send_kept
from tiffin.gateway.run import Answer, Run

MARK: Final = b"x-tiffin-cache"
KEY: Final = b"x-tiffin-cache-key"
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

    def course(self, run: Run, delivery: Delivery, make: Making) -> WholeCourse | PartsCourse:
        """What is done for a request."""
        if isinstance(run.asked, Parted):
            return PartsCourse(self.shelf, run, delivery, make, run.asked.inputs)
        if run.plan.embedder is not None and isinstance(run.asked, Conversing):
            question = None if run.asked.offers_tools else run.asked.question()
            if question is not None:
                asking = Asking(question, run.plan.embedder)
                return SemanticCourse(self.shelf, run, delivery, make, asking)
        return WholeCourse(self.shelf, run, delivery, make)

    def seat(self, look_up: "LookUp") -> Seat:
        """A seat in the flight of a request's answer, which begins here if there is none."""
        run, delivery = look_up.run, look_up.delivery
        place = (look_up.course.at, run.asked.cached_as, run.most_tokens, run.batch)
        flight = self._flights.get(place)
        fresh = wants_fresh(delivery.exchange)
        # What is claimed under an idempotency key is made and kept for that request.
        alone = fresh or run.paying is not None
        if flight is None or alone or not flight.whole:
            flight = Flight(look_up.course)
            if not alone:
                self._flights[place] = flight
                flight.task.add_done_callback(lambda _: self._landed(place, flight))
        return Seat(flight, run, delivery.account)

    async def shut(self) -> None:
        """Wait until what is being kept is kept."""
        if tasks := [flight.task for flight in self._flights.values()]:
            await asyncio.wait(tasks, timeout=SHUT_S)

    def _landed(self, place: Place, flight: Flight) -> None:
        if self._flights.get(place) is flight:
            del self._flights[place]


class LookUp:
    """One request's use of the cache."""

    __slots__ = ("_cache", "_seat", "course", "delivery", "run")

    def __init__(self, cache: ReplayCache, run: Run, delivery: Delivery, make: Making) -> None:
        self._cache = cache
        self._seat: Seat | None = None
        self.run = run
        self.delivery = delivery
        self.course = cache.course(run, delivery, make)

    async def __aenter__(self) -> Answer | None:
        delivery = self.delivery
        try:
            seat = await self._ready()
        except BaseException:
            await self.__aexit__(None, None, None)
            raise
        flight, account = seat.flight, delivery.account
        if flight.course.key:
            delivery.headers.append((KEY, flight.course.key.hex().encode()))
        if flight.kept is not None:
            result = flight.course.result
            self._given(result)
            self._tell(flight)
            send_kept(delivery, flight.kept, (MARK, result.encode()))
            return None
        account.fallback = flight.work.fallback
        if seat.pays:
            self._cache.mark(self.run, delivery, flight.course.result)
            self._tell(flight)
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

    def _tell(self, flight: Flight) -> None:
        self.delivery.account.kept_inputs = flight.course.kept_inputs
        self.delivery.headers += flight.course.headers()

    def _given(self, result: str) -> None:
        """What this request gets was made for another one."""
        account, plan = self.delivery.account, self.run.plan
        account.cache = result
        account.given(plan.targets[0].price)
        self._cache.accounts.cache.add((plan.name, result))
