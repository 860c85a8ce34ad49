"""The replicas of a model that steps call, as one backend; they may come and go meanwhile."""

import asyncio
from collections.abc import Callable, Iterable
from contextlib import AbstractAsyncContextManager
from types import TracebackType
from typing import Final, Protocol

from tiffin.errors import NoHealthyReplica, UpstreamUnavailable
from tiffin.ports.backend import Backend, Call, Reply

AVOID_S: Final = 1.0


class ClosableBackend(Backend, Protocol):
    """A backend that a place owns."""

    def close(self) -> None:
        """Close every connection; what runs fails."""
        ...


class _Place:
    """One replica: how many calls are at it, and until when it is the last choice."""

    def __init__(self, backend: ClosableBackend) -> None:
        self.backend = backend
        self.running = 0
        self.avoided_until = 0.0
        self.gone = False

    def leave(self) -> None:
        self.running -= 1
        self.close_if_gone()

    def close_if_gone(self) -> None:
        if self.gone and not self.running:
            self.backend.close()


class Places:
    """Satisfies `ports.backend.Backend`: a call goes to the replica that has the fewest.

    One that can't be reached is tried last for a second, and the call goes on to the next.
    """

    def __init__(self, model: str, connect: Callable[[str], ClosableBackend]) -> None:
        self._model = model
        self._connect = connect
        self._places: dict[str, _Place] = {}

    def adopt(self, sockets: Iterable[str]) -> None:
        """From now on these are its replicas; calls at others end as they would have."""
        wanted = set(sockets)
        for socket in wanted - self._places.keys():
            self._places[socket] = _Place(self._connect(socket))
        for socket in self._places.keys() - wanted:
            place = self._places.pop(socket)
            place.gone = True
            place.close_if_gone()

    def start(self, call: Call) -> AbstractAsyncContextManager[Reply]:
        """Send the call to a replica; raises `NoHealthyReplica` where there is none."""
        return _Visit(self, call)

    def in_turn(self) -> list[_Place]:
        """All places, the best first; raises `NoHealthyReplica` where there is none."""
        if not self._places:
            raise NoHealthyReplica(f"the model '{self._model}' doesn't run", retry_after=2.0)
        now = asyncio.get_running_loop().time()
        return sorted(
            self._places.values(), key=lambda place: (place.avoided_until > now, place.running)
        )

    def close(self) -> None:
        """Close every connection."""
        self.adopt(())


class _Visit:
    __slots__ = ("_call", "_exchange", "_place", "_places")

    def __init__(self, places: Places, call: Call) -> None:
        self._places = places
        self._call = call
        self._place: _Place | None = None
        self._exchange: AbstractAsyncContextManager[Reply] | None = None

    async def __aenter__(self) -> Reply:
        *others, last = self._places.in_turn()
        for place in others:
            try:
                return await self._enter(place)
            except UpstreamUnavailable:
                place.avoided_until = asyncio.get_running_loop().time() + AVOID_S
        return await self._enter(last)

    async def _enter(self, place: _Place) -> Reply:
        place.running += 1
        try:
            exchange = place.backend.start(self._call)
            reply = await exchange.__aenter__()
        except BaseException:
            place.leave()
            raise
        self._place, self._exchange = place, exchange
        return reply

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        exchange, self._exchange = self._exchange, None
        place, self._place = self._place, None
        if exchange is not None and place is not None:
            try:
                await exchange.__aexit__(kind, error, trace)
            finally:
                place.leave()
