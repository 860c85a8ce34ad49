"""Identical requests at the same time run once: one run, and everybody who waits for its answer.

A flight looks whether its answer is kept, else has it made, in a task of its own. Whoever began it
pays for it; when the payer leaves, the one who has waited longest takes over; when the last one
leaves, the work stops. What was made is kept before the flight is forgotten, so that whoever comes
in between is given it too.
"""

import asyncio
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from typing import Protocol

from tiffin.dialects.dialect import Whole
from tiffin.errors import DeadlineExceeded, Draining, TiffinError
from tiffin.gateway.account import Account
from tiffin.gateway.respond import Delivery, Kept, send_answer
from tiffin.gateway.retries import is_the_targets
from tiffin.gateway.run import Answer, Begun, Run
from tiffin.ports.exchange import Headers
from tiffin.types.usage import Usage

HELD_BYTES = 1_048_576
"""What of a stream is held for whoever reads slowly; then its model waits for the slowest."""

Making = Callable[[Run, Account], AbstractAsyncContextManager[Answer]]


class Course(Protocol):
    """What a flight does, for a request and those like it.

    `result` is what the cache came to, as clients are told it, and `kept_inputs` how many of the
    request's inputs were answered by it; both hold once there is an answer. `key` is what clients
    are told, to have it purged; empty where it is several.
    """

    run: Run
    delivery: Delivery
    result: str
    key: bytes
    kept_inputs: int

    def headers(self) -> Headers:
        """What else clients are told of it."""
        ...

    async def find(self, work: Account) -> Kept | None:
        """The answer, if it is kept; what looking for it takes is the `work`'s."""
        ...

    async def stale(self) -> Kept | None:
        """The answer where none can be made: one that was good."""
        ...

    def make(self, run: Run, account: Account) -> AbstractAsyncContextManager[Answer]:
        """A context that makes the answer, or what of it isn't kept."""
        ...

    def unpaid(self, body: bytes) -> bytes:
        """A whole answer as those get it whose request didn't make it."""
        ...

    async def keep(self, flight: "Flight") -> None:
        """Keep what a flight made."""
        ...


class Flight:
    """One run and what came of it until now."""

    def __init__(self, course: Course) -> None:
        self.run = course.run
        self.work = course.delivery.account.apart()
        self.kept: Kept | None = None
        self.answer: Answer | None = None
        self.error: BaseException | None = None
        self.over = False
        self.complete = False
        self.data = bytearray()
        self.base = 0
        self.payer: Seat | None = None
        self._seats: dict[Seat, None] = {}
        self._room = asyncio.Event()
        self._ended = asyncio.Event()
        self._due = self.run.due.deadline
        self.course = course
        self._record = Delivery(Recording(self), self.work, course.delivery.dialect, [])
        self.task = asyncio.ensure_future(self._fly())

    @property
    def later_s(self) -> float:
        """By how much its deadline was moved, since its model had to be loaded first."""
        return self.run.due.deadline - self._due

    @property
    def whole(self) -> bool:
        """Whether all of the answer so far is still here, for whoever comes now."""
        return self.error is None and not self.base

    @property
    def ready(self) -> bool:
        """Whether there is something to give to who waits: a stream has begun, or it is over."""
        return self.over or isinstance(self.answer, Begun)

    def body(self) -> bytes:
        """The complete answer, as its client gets it."""
        return self.answer.body if isinstance(self.answer, Whole) else bytes(self.data)

    def sit(self, seat: "Seat") -> None:
        """Somebody waits; the first one pays."""
        if self.payer is None and not (self._seats or self.over):
            self.payer = seat
        self._seats[seat] = None

    async def leave(self, seat: "Seat") -> None:
        """Somebody doesn't wait any more; the work stops with the last."""
        try:
            if self.complete and seat is self.payer:
                await self._ended.wait()
        finally:
            del self._seats[seat]
            self._room.set()
        if seat is not self.payer:
            return
        if self._seats:
            self.payer = next(iter(self._seats))
            seat.account.hand_over(self.run.plan.targets[0].price)
            self.payer.pays = True
            self.payer.account.cache = self.course.result
            self.payer.account.kept_inputs = self.course.kept_inputs
            return
        try:
            if not self.over:
                self.task.cancel()
                await asyncio.wait([self.task])
        finally:
            self._settle()

    async def room(self) -> None:
        """Wait until what is held isn't too much, letting go of what everybody has."""
        while len(self.data) > HELD_BYTES and self._seats:
            read = min(seat.at for seat in self._seats)
            if read > self.base:
                del self.data[: read - self.base]
                self.base = read
                continue
            self._room.clear()
            await self._room.wait()

    def tell(self) -> None:
        """There is news for who waits."""
        for seat in self._seats:
            seat.news.set()

    def has_read(self) -> None:
        """Somebody took a part."""
        self._room.set()

    async def _fly(self) -> None:
        await self._have_it()
        if self.complete and self.whole:
            await self.course.keep(self)

    async def _have_it(self) -> None:
        try:
            self.kept = await self.course.find(self.work)
            if self.kept is None:
                await self._make_it()
        except asyncio.CancelledError:
            self.error = Draining("the server is stopping; try again in a moment")
            raise
        except BaseException as error:  # noqa: BLE001 - whoever waits raises it
            self.error = error
        finally:
            self.over = True
            self._settle()
            self.tell()
            self._ended.set()

    async def _make_it(self) -> None:
        """Have it made; where its targets fail before anything of it is there, another will do."""
        course = self.course
        try:
            async with course.make(self.run, self.work) as self.answer:
                await send_answer(self._record, self.answer)
        except TiffinError as error:
            if self.data or not is_the_targets(error):
                raise
            self.kept = await course.stale()
            if self.kept is None:
                raise
        else:
            self.complete = True

    def _settle(self) -> None:
        """What it came to is the payer's."""
        payer = self.payer
        if payer is not None and (self.kept is None or self.work.attempts):
            payer.account.take(self.work)
        if self.over:
            self.payer = None


class Seat:
    """One request that waits for a flight: reads the answer at its own pace. `at` is how many
    bytes of a stream it has had; `after` is whether all was made before it came."""

    def __init__(self, flight: Flight, run: Run, account: Account) -> None:
        self.flight = flight
        self.account = account
        self.at = 0
        self.news = asyncio.Event()
        self.after = flight.complete
        self._run = run
        flight.sit(self)
        self.leads = flight.payer is self
        self.pays = self.leads

    @property
    def late(self) -> bool:
        """Whether its own time is over."""
        return asyncio.get_running_loop().time() >= self._limit

    @property
    def _limit(self) -> float:
        return self._run.due.deadline + self.flight.later_s

    async def ready(self) -> None:
        """Wait until there is something; raises what became of the flight instead."""
        while not self.flight.ready:
            await self._news()
        if self.flight.error is not None and not self.flight.data:
            raise self.flight.error

    def answer(self) -> Answer:
        """What there is, for this request."""
        found = self.flight.answer
        if isinstance(found, Whole):
            body = found.body if self.pays else self.flight.course.unpaid(found.body)
            return Whole(found.headers, body, self.account.usage)
        return Begun(b"", SeatReply(self), SeatReading(self))

    @property
    def has_all(self) -> bool:
        """Whether nothing more comes of the stream, here."""
        flight = self.flight
        return self.at == flight.base + len(flight.data)

    async def read(self) -> bytes:
        """The next bytes; empty when there are no more."""
        flight = self.flight
        while self.has_all and not flight.over:
            await self._news()
        data = bytes(flight.data[self.at - flight.base :])
        self.at += len(data)
        flight.has_read()
        return data

    async def _news(self) -> None:
        """Wait for news; who doesn't lead has a deadline of its own."""
        self.news.clear()
        if self.leads:
            await self.news.wait()
            return
        limit = self._limit
        try:
            async with asyncio.timeout_at(limit):
                await self.news.wait()
        except TimeoutError as error:
            if self._limit <= limit:
                raise DeadlineExceeded(
                    "the same request is running, and its answer didn't come within this"
                    " request's time"
                ) from error


class SeatReply:
    """A stream as one who waits reads it; satisfies `ports.backend.Reply`."""

    status = 200
    content_type = b"text/event-stream"
    streaming = True
    retry_after: float | None = None
    inference_header = b""
    usage = b""

    def __init__(self, seat: Seat) -> None:
        self._seat = seat

    async def read(self) -> bytes:
        """The next bytes."""
        return await self._seat.read()

    async def read_all(self, limit: int) -> bytes:
        """All that comes; it is no more than one answer."""
        parts = []
        while part := await self.read():
            parts.append(part)
        return b"".join(parts)

    def rest(self, seconds: float) -> None:
        """What comes was read already."""


class SeatReading:
    """What has been read already, as one who waits passes it on; satisfies `dialect.Reading`."""

    def __init__(self, seat: Seat) -> None:
        self.content = True
        self.done = False
        self.error: TiffinError | None = None
        self.priced: Callable[[Usage], str] | None = None
        self._seat = seat

    @property
    def usage(self) -> Usage:
        """What this request pays for, as far as that is settled."""
        return self._seat.account.usage

    def feed(self, data: bytes) -> bytes:
        """The bytes as they are; once there are no more, whether that was the true end."""
        flight = self._seat.flight
        if self._seat.has_all:
            self.done = flight.complete
            if flight.error is not None:
                broke = TiffinError("the answer broke off")
                self.error = flight.error if isinstance(flight.error, TiffinError) else broke
        return data


class Recording:
    """What a flight's answer is sent to; satisfies `ports.exchange.Exchange`."""

    method = b"POST"
    path = b""
    query = b""
    gone = False
    begun = False
    keep_alive = True

    def __init__(self, flight: Flight) -> None:
        self._flight = flight

    def header(self, name: bytes) -> bytes | None:
        """There are none."""
        return None

    async def body(self, limit: int) -> bytes:
        """There is none."""
        return b""

    def respond(self, status: int, headers: Headers, body: bytes) -> None:
        """A whole answer, which the flight has."""

    def begin(self, status: int, headers: Headers) -> None:
        """A stream has begun."""
        self._flight.tell()

    def write(self, data: bytes) -> None:
        """A part of it; with the last one it is complete."""
        flight = self._flight
        flight.data += data
        if isinstance(flight.answer, Begun):
            reading = flight.answer.reading
            flight.complete = reading.done and reading.error is None
        flight.tell()

    async def drain(self) -> None:
        """Wait for who reads slowly."""
        await self._flight.room()

    def finish(self) -> None:
        """It is there."""

    def abort(self) -> None:
        """It isn't cut from here."""
