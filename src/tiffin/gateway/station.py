"""One target that can be called: its room, its queue, its places, and a visit to one of them."""

import asyncio
from collections import deque
from collections.abc import Callable, Collection, Sequence
from contextlib import AbstractAsyncContextManager
from types import TracebackType

from tiffin.errors import (
    DeadlineExceeded,
    Draining,
    Loading,
    NoHealthyReplica,
    Overloaded,
    RunFailed,
    TiffinError,
    UpstreamRefused,
    UpstreamUnavailable,
)
from tiffin.gateway.placement.choice import Choice, Chooser, Wish
from tiffin.gateway.placement.full import Ask
from tiffin.gateway.placement.health import Verdict
from tiffin.gateway.placement.measures import Measures
from tiffin.gateway.placement.place import Place
from tiffin.gateway.placement.upstream import Upstream
from tiffin.gateway.retries import Fault
from tiffin.ports.backend import Call, Reply
from tiffin.telemetry import log
from tiffin.types.snapshot import Target

FAILED_RETRY_S = 30.0
ANYBODY = Wish()


class Station:
    """A bounded number of calls at once, a bounded queue before them, one place or several.

    `only` is the place where there is no choice. `used` is set by every call that ends. `upstream`
    is what is known of whom it belongs to, where that is somebody else; its places are our keys,
    and `room` is how many calls it takes at once from here.
    """

    def __init__(
        self,
        target: Target,
        places: Sequence[Place],
        measures: Measures,
        upstream: Upstream | None = None,
        room: int = 0,
    ) -> None:
        self.target = target
        self.places = tuple(places)
        self.only = places[0] if len(places) == 1 else None
        self.measures = measures
        self.upstream = upstream
        self.running = 0
        self.used = False
        self._chooser: Chooser[Place] = Chooser()
        self._room = room or target.max_concurrency * (len(places) if upstream is None else 1)
        self._waiting: deque[asyncio.Future[None]] = deque()

    def ready(self) -> bool:
        """Whether any place is."""
        only = self.only
        return only.ready if only is not None else any(place.ready for place in self.places)

    def others(self, tried: Collection[Place]) -> list[Place]:
        """The places that are ready, without those that were tried."""
        return [place for place in self.places if place.ready and place not in tried]

    def check(self, explain: Callable[[Target], str]) -> None:
        """Raise what keeps this target from answering, if anything but sleep does."""
        if self.ready():
            return
        target = self.target
        loaded = any(place.loaded for place in self.places)
        name, again = target.model, 2.0 if loaded else FAILED_RETRY_S
        if reason := explain(target):
            raise NoHealthyReplica(f"the model '{name}' doesn't run: {reason}", retry_after=again)
        if target.on_demand:
            return
        if loaded:
            raise NoHealthyReplica(
                f"the replica of '{name}' is down and being replaced", retry_after=2.0
            )
        raise Loading(f"the model '{name}' is being loaded", retry_after=2.0)

    def judge(
        self, place: Place, fault: Fault | None, tenant: str, began: float, now: float
    ) -> None:
        """A tenant's call at an upstream that began then has failed, or goes well (None)."""
        upstream, key, model = self.upstream, place.key, self.target.model
        if upstream is None or key is None:
            return
        was = upstream.circuit.openings
        if fault is None:
            upstream.went_well(key, began)
        elif upstream.failed(key, fault, tenant, began, now):
            self.measures.opened(model)
        if bool(was) != bool(upstream.circuit.openings):
            log.warning("upstream_back" if was else "upstream_left_alone", model=model)

    def full(self) -> bool:
        """Whether every place that is ready has refused something of late."""
        only = self.only
        if only is not None:
            return bool(only.full)
        return all(place.full for place in self.places if place.ready)

    def refusal(self, ask: Ask, now: float) -> Overloaded | None:
        """What to refuse a request with where every place that is ready has just refused its like.

        None where one of them may take it.
        """
        refusal = None
        for place in self.places:
            if place.ready:
                refusal = place.full.refusal(ask, now)
                if refusal is None:
                    return None
        return refusal

    def visit(self, call: Call, wish: Wish = ANYBODY, tried: Collection[Place] = ()) -> "Visit":
        """A place taken and the call sent, as a context; leaving it stops the call."""
        return Visit(self, call, wish, tried)

    def choose(self, wish: Wish, tried: Collection[Place]) -> Choice[Place]:
        """One of the places that are ready and weren't tried, or of all where there is none."""
        places = self.others(tried) or self.others(()) or self.places
        now = asyncio.get_running_loop().time()
        if self.upstream is not None:
            places = [one for one in places if one.key and not one.key.left_s("", now)] or places
        choice = self._chooser.choose(places, wish, now)
        self.measures.placed(self.target.model, choice.reason)
        return choice

    def took(self) -> bool:
        """Take room if some is free and nobody waits for it."""
        if self.running < self._room and not self._waiting:
            self.running += 1
            return True
        return False

    async def wait(self, deadline: float) -> None:
        """Wait in order for room; raises `Overloaded` where too many do already."""
        if len(self._waiting) >= self.target.queue:
            raise Overloaded(
                f"'{self.target.model}' has {self.running} calls running and"
                f" {len(self._waiting)} waiting, its limits",
                retry_after=1.0,
            )
        waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append(waiter)
        try:
            async with asyncio.timeout_at(deadline):
                await waiter
        except TimeoutError as error:
            self._forget(waiter)
            raise DeadlineExceeded("the deadline passed in the queue") from error
        except asyncio.CancelledError:
            self._forget(waiter)
            raise

    def give(self) -> None:
        """Give room back, to the one that waited longest."""
        while self._waiting:
            waiter = self._waiting.popleft()
            if not waiter.done():
                waiter.set_result(None)  # the room goes on to it: `running` stays
                return
        self.running -= 1

    def _forget(self, waiter: asyncio.Future[None]) -> None:
        if waiter.done() and not waiter.cancelled():
            self.give()  # the room had just been handed over
        elif waiter in self._waiting:
            self._waiting.remove(waiter)


class Visit:
    """One attempt at one station: room in it, one of its places, the exchange with its backend."""

    __slots__ = ("_began", "_call", "_choice", "_exchange", "_station", "_tried", "_wish", "place")

    def __init__(self, station: Station, call: Call, wish: Wish, tried: Collection[Place]) -> None:
        self._station = station
        self._call = call
        self._wish = wish
        self._tried = tried
        self._choice: Choice[Place] | None = None
        self._exchange: AbstractAsyncContextManager[Reply] | None = None
        self._began = 0.0
        self.place: Place | None = None

    @property
    def reason(self) -> str:
        """Why this place, empty where there was no choice."""
        return self._choice.reason.value if self._choice is not None else ""

    async def __aenter__(self) -> Reply:
        station = self._station
        if not station.took():
            await station.wait(self._call.deadline)
        place = station.only
        if place is None:
            self._began = asyncio.get_running_loop().time()
            choice = self._choice = station.choose(self._wish, self._tried)
            place = choice.place
        self.place = place
        place.outstanding += 1
        if place.key is not None:
            place.key.enter(asyncio.get_running_loop().time())
        try:
            exchange = place.backend.start(self._call)
            reply = await exchange.__aenter__()
        except BaseException as error:
            self._leave(place, error)
            raise
        self._exchange = exchange
        return reply

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        exchange, self._exchange = self._exchange, None
        if exchange is not None and self.place is not None:
            self._leave(self.place, error)
            await exchange.__aexit__(kind, error, trace)

    def _leave(self, place: Place, error: BaseException | None) -> None:
        station = self._station
        station.give()
        station.used = True
        place.outstanding -= 1
        if error is not None and place.probed:
            self._heed(place, error)
        choice = self._choice
        if choice is None:
            return
        if station.upstream is None:
            now = asyncio.get_running_loop().time()
            trial = choice.reason.value == "probe"
            if place.health.settle(verdict(error), self._began, now, trial=trial):
                station.measures.ejected(station.target.model)
        if choice.line is not None:
            place.memory.give(choice.line)

    def _heed(self, place: Place, error: BaseException) -> None:
        """What it says of itself holds at once; what it doesn't say is asked soon."""
        if isinstance(error, Draining | Loading):
            place.ready = False
        elif isinstance(error, UpstreamUnavailable):
            place.probe_at = 0.0
            if self._station.target.on_demand:
                place.ready = False  # it was unloaded, perhaps: whoever comes is held


def verdict(error: BaseException | None) -> Verdict:
    """What the end of a request says of the place that had it.

    A refusal says nothing, whoever it blames, and neither does a client that left.
    """
    if error is None:
        return Verdict.GOOD
    if isinstance(error, UpstreamUnavailable):
        return Verdict.GONE
    if isinstance(error, UpstreamRefused):
        return Verdict.NEITHER
    if isinstance(error, RunFailed) or type(error) is TiffinError:
        return Verdict.FAILED
    return Verdict.NEITHER
