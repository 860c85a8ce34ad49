"""The targets that can be called: one station each, with its room, its health and its backend."""

import asyncio
from collections import deque
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from types import TracebackType
from typing import Protocol

from tiffin.errors import DeadlineExceeded, Loading, NoHealthyReplica, Overloaded, TiffinError
from tiffin.ports.backend import Backend, Call, Reply
from tiffin.types.snapshot import Snapshot, Target

READY_PATH = b"/v2/health/ready"
PROBE_EVERY_S = 0.2
PROBE_READY_EVERY_S = 1.0
PROBE_TIMEOUT_S = 2.0
FAILED_RETRY_S = 30.0


class ClosableBackend(Backend, Protocol):
    """A backend that a station owns."""

    def close(self) -> None:
        """Close every connection; what runs fails."""
        ...


class Station:
    """One target: a bounded number of calls at once, a bounded queue before them."""

    def __init__(self, target: Target, backend: ClosableBackend) -> None:
        self.target = target
        self.backend = backend
        self.ready = target.kind == "remote"
        self.loaded = False
        self.probe_at = 0.0
        self.running = 0
        self._waiting: deque[asyncio.Future[None]] = deque()

    def check(self, explain: Callable[[Target], str]) -> None:
        """Raise what keeps this target from answering, if anything does."""
        if self.ready:
            return
        name, again = self.target.model, 2.0 if self.loaded else FAILED_RETRY_S
        if reason := explain(self.target):
            raise NoHealthyReplica(f"the model '{name}' doesn't run: {reason}", retry_after=again)
        if self.loaded:
            raise NoHealthyReplica(
                f"the replica of '{name}' is down and being replaced", retry_after=2.0
            )
        raise Loading(f"the model '{name}' is being loaded", retry_after=2.0)

    def visit(self, call: Call) -> "Visit":
        """A place taken and the call sent, as a context; leaving it stops the call."""
        return Visit(self, call)

    def took(self) -> bool:
        """Take a place if one is free and nobody waits for it."""
        if self.running < self.target.max_concurrency and not self._waiting:
            self.running += 1
            return True
        return False

    async def wait(self, deadline: float) -> None:
        """Wait in order for a place; raises `Overloaded` where too many do already."""
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
        """Give a place back, to the one that waited longest."""
        while self._waiting:
            waiter = self._waiting.popleft()
            if not waiter.done():
                waiter.set_result(None)  # the place goes on to it: `running` stays
                return
        self.running -= 1

    def _forget(self, waiter: asyncio.Future[None]) -> None:
        if waiter.done() and not waiter.cancelled():
            self.give()  # the place had just been handed over
        elif waiter in self._waiting:
            self._waiting.remove(waiter)


class Visit:
    """One attempt at one station: a place in its room, then the exchange with its backend."""

    __slots__ = ("_call", "_exchange", "_station")

    def __init__(self, station: Station, call: Call) -> None:
        self._station = station
        self._call = call
        self._exchange: AbstractAsyncContextManager[Reply] | None = None

    async def __aenter__(self) -> Reply:
        if not self._station.took():
            await self._station.wait(self._call.deadline)
        try:
            exchange = self._station.backend.start(self._call)
            reply = await exchange.__aenter__()
        except BaseException:
            self._station.give()
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
        if exchange is not None:
            self._station.give()
            await exchange.__aexit__(kind, error, trace)


class Pool:
    """Stations by target; `adopt` follows the snapshot, `probe` follows the replicas' health.

    `explain` says why a replica doesn't run, as far as is known; it is asked where one isn't ready.
    """

    def __init__(
        self,
        connect: Callable[[Target], ClosableBackend],
        explain: Callable[[Target], str] = lambda target: "",
    ) -> None:
        self._connect = connect
        self._explain = explain
        self._stations: dict[Target, Station] = {}
        self._broken: dict[Target, str] = {}

    def adopt(self, snapshot: Snapshot) -> None:
        """Make stations for new targets and close those of targets that are gone.

        A station that still runs calls is left to them and closed when a later snapshot comes.
        """
        wanted = {t for plan in snapshot.plans.values() for t in plan.targets}
        # Known to be ready before any plan has them, so that the switch is without a gap.
        wanted |= set(snapshot.coming.values())
        self._broken = {}
        for target in wanted:
            if target not in self._stations and target.state == "ready-to-run":
                try:
                    self._stations[target] = Station(target, self._connect(target))
                except TiffinError as error:  # a key that can't be read fails this target alone
                    self._broken[target] = error.message
        for target, station in list(self._stations.items()):
            if target not in wanted and not station.running:
                station.backend.close()
                del self._stations[target]

    def station(self, target: Target) -> Station:
        """The station of a target; raises `Loading` or `NoHealthyReplica` where there is none."""
        station = self._stations.get(target)
        if station is None:
            if target.state == "unloaded":
                raise NoHealthyReplica(
                    f"the model '{target.model}' is unloaded ({target.reason})",
                    retry_after=FAILED_RETRY_S,
                )
            if target.state == "failed" or target in self._broken:
                reason = self._broken.get(target, target.reason)
                raise NoHealthyReplica(
                    f"the model '{target.model}' can't run: {reason}", retry_after=FAILED_RETRY_S
                )
            reason = f" ({target.reason})" if target.reason else ""
            raise Loading(f"the model '{target.model}' is being fetched{reason}", retry_after=5.0)
        station.check(self._explain)
        return station

    def failure(self, target: Target) -> str:
        """Why a target doesn't run, where the time alone won't mend it; else empty."""
        if target.state == "failed":
            return target.reason
        known = self._broken.get(target, "")
        return known if known or target.kind == "remote" else self._explain(target)

    async def probe_for_ever(self) -> None:
        """Ask every replica whether it is ready, again and again; a mute one holds up no other."""
        asking: set[Station] = set()

        async def ask(station: Station) -> None:
            try:
                await probe(station)
            finally:
                asking.discard(station)

        async with asyncio.TaskGroup() as group:
            while True:
                now = asyncio.get_running_loop().time()
                for station in self._stations.values():
                    due = now >= station.probe_at or not station.ready
                    if due and station.target.kind != "remote" and station not in asking:
                        asking.add(station)
                        station.probe_at = now + PROBE_READY_EVERY_S
                        group.create_task(ask(station))
                await asyncio.sleep(PROBE_EVERY_S)

    def close(self) -> None:
        """Close every station."""
        for station in self._stations.values():
            station.backend.close()


async def probe(station: Station) -> None:
    """One readiness question; anything but a 200 in time means not ready."""
    deadline = asyncio.get_running_loop().time() + PROBE_TIMEOUT_S
    call = Call(path=READY_PATH, body=b"", headers=b"", deadline=deadline, method=b"GET")
    try:
        async with station.backend.start(call) as reply:
            await reply.read_all(65_536)
            station.ready = reply.status == 200
    except TiffinError:
        station.ready = False
    station.loaded = station.loaded or station.ready
