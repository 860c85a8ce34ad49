"""The targets that can be called, the places that they share, and who waits for them."""

import asyncio
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Protocol

import msgspec

from tiffin.errors import Loading, NoHealthyReplica, TiffinError
from tiffin.gateway.due import Due
from tiffin.gateway.placement.circuit import Held
from tiffin.gateway.placement.measures import Measures
from tiffin.gateway.placement.place import ClosableBackend, Place
from tiffin.gateway.placement.upstream import Upstream
from tiffin.gateway.share import WHOLE, Share
from tiffin.gateway.station import FAILED_RETRY_S, Station
from tiffin.gateway.vigil import Foresight, Vigil
from tiffin.ports.backend import Call
from tiffin.telemetry.folders import without_folders
from tiffin.telemetry.metrics import Meter
from tiffin.types.demand import Demand, Demands
from tiffin.types.snapshot import Snapshot, Target

READY_PATH = b"/v2/health/ready"
PROBE_EVERY_S = 0.2
PROBE_AWAITED_EVERY_S = 0.05
PROBE_READY_EVERY_S = 1.0
PROBE_TIMEOUT_S = 2.0


class Outlook(Protocol):
    """What is known here of the processes behind targets, by those who keep them."""

    def explain(self, target: Target) -> str:
        """Why none of its replicas runs; empty while one may. It is asked where none is ready."""
        ...

    def foresee(self, target: Target) -> Foresight:
        """What to expect of loading it."""
        ...

    def is_ready(self, socket: str) -> bool:
        """Whether the replica there was ready when somebody last looked."""
        ...


class NoOutlook:
    """Nothing is known."""

    def explain(self, target: Target) -> str:
        """Nothing."""
        return ""

    def foresee(self, target: Target) -> Foresight:
        """Nothing."""
        return Foresight()

    def is_ready(self, socket: str) -> bool:
        """It will say so itself."""
        return False


class Pool:
    """Stations by target, places by socket; `adopt` follows the snapshot, `probe_for_ever` the
    replicas' health.

    `connect` makes the backend of a target at one of its sockets (empty: it is elsewhere); `tell`
    is called when requests begin or cease to wait for a model. `share` is this gateway's part of
    what an upstream takes at once.
    """

    def __init__(
        self,
        connect: Callable[[Target, str], ClosableBackend],
        outlook: Outlook | None = None,
        meter: Meter | None = None,
        tell: Callable[[], None] = lambda: None,
        share: Share = WHOLE,
    ) -> None:
        self._connect = connect
        self._outlook = outlook or NoOutlook()
        self._measures = Measures(meter or Meter("", ""))
        self._tell = tell
        self._share = share
        self._stations: dict[Target, Station] = {}
        self._of_model: dict[str, Target] = {}
        self._places: dict[str | Target, Place] = {}
        self._retired: list[Place] = []
        self._upstreams: dict[str, Upstream] = {}
        self._held: dict[str, dict[str, Held]] = {}
        self._broken: dict[Target, str] = {}
        self._vigils: dict[str, Vigil] = {}
        self._used_ns: dict[str, int] = {}
        self._hurry = asyncio.Event()

    def adopt(self, snapshot: Snapshot) -> None:
        """Make stations for new targets and forget those of targets that are gone.

        Places that a target goes on with, or is about to have, keep what is known of them; one that
        no target has any more is closed when the last call there has ended.
        """
        wanted = {t for plan in snapshot.plans.values() for t in plan.targets}
        self._broken = {}
        served = {m for m, one in self._of_model.items() if self._serves(one)}
        self._of_model = {target.model: target for target in wanted}
        known, self._places = self._places, {}
        before, self._stations = self._stations, {}
        for target in wanted:
            if target.state != "ready-to-run":
                continue
            try:
                places = list(self._places_of(target, known))
            except TiffinError as error:  # a key that can't be read fails this target alone
                self._broken[target] = error.message
                continue
            station = before.get(target)
            station = self._stations[target] = station or self._station(target, places)
            if station.upstream is not None:
                station.upstream.keep([place.key for place in station.places])
        for target in snapshot.coming.values():
            list(self._places_of(target, known))
        served |= {one.model for one in snapshot.deployments if one.name in snapshot.leaving}
        self._trust(served)
        self._retired += known.values()
        self._sweep()
        self._used_ns = {m: at for m, at in self._used_ns.items() if m in self._of_model}
        named = {_address(target) for target in wanted}
        self._upstreams = {name: one for name, one in self._upstreams.items() if name in named}

    def station(self, target: Target) -> Station:
        """The station of a target, or of what took its place since; one that is loaded on demand
        may not be ready yet. Raises `Loading` or `NoHealthyReplica` where it can't be called.
        """
        station = self._stations.get(target)
        if station is None:
            now = self._of_model.get(target.model, target)
            station = self._stations.get(now)
            if station is None:
                raise self._missing(now)
        station.check(self._outlook.explain)
        return station

    async def awake(self, target: Target, due: Due) -> Due:
        """Hold a request until a model that is loaded on demand is ready, and what `Vigil.hold`
        raises; the time that the request has then."""
        now = asyncio.get_running_loop().time()
        vigil = self._vigils.get(target.model)
        if vigil is None:
            vigil = self._vigils[target.model] = Vigil(now, time.time_ns())
        holding = vigil.held
        # Told after this turn of the loop, when it is held or has left a wish.
        if not holding:
            asyncio.get_running_loop().call_soon(self._tell)
            self._hurry.set()
        return await vigil.hold(target, due, self._outlook.foresee(target))

    async def look_at(self, target: Target) -> None:
        """Ask replicas that count as ready whether they are: they may have ended a moment ago."""
        station = self._stations.get(target)
        places = station.places if station is not None else ()
        await asyncio.gather(*(probe(one) for one in places if one.probed and one.ready))

    def failure(self, target: Target) -> str:
        """Why a target doesn't run, where the time alone won't mend it; else empty."""
        if target.state == "failed":
            return without_folders(target.reason)
        known = self._broken.get(target, "")
        if known or target.kind == "remote":
            return without_folders(known)
        return self._outlook.explain(target)

    def demands(self) -> Demands:
        """What is asked of each model that is loaded on demand."""
        now_ns, now = time.time_ns(), asyncio.get_running_loop().time()
        found: Demands = {}
        for target, station in self._stations.items():
            if not target.on_demand:
                continue
            outstanding = sum(place.outstanding for place in station.places)
            if station.used or outstanding:
                station.used = False
                self._used_ns[target.model] = now_ns
            vigil = self._vigils.get(target.model)
            waiting = max(vigil.held, int(vigil.wanted(now))) if vigil is not None else 0
            used_ns = self._used_ns.get(target.model, 0)
            if waiting or used_ns:
                found[target.model] = Demand(
                    waiting=waiting,
                    since_ns=vigil.since_ns if vigil is not None and waiting else 0,
                    outstanding=outstanding,
                    used_ns=used_ns,
                )
        return found

    def held(self) -> dict[str, dict[str, Held]]:
        """Which upstreams are left alone now, for a restart: what `resume` takes."""
        now = asyncio.get_running_loop().time()
        found = {name: one.held(now) for name, one in self._upstreams.items()}
        return {name: held for name, held in found.items() if held}

    def resume(self, held: dict[str, dict[str, Held]]) -> None:
        """Leave alone what was left alone before; call it before anything is adopted."""
        self._held = held

    def measure(self) -> None:
        """Note how every model stands."""
        now = asyncio.get_running_loop().time()
        for target, station in self._stations.items():
            if station.upstream is not None:
                self._measures.upstream(target.model, station.upstream.state(now))
            elif target.kind != "remote":
                vigil = self._vigils.get(target.model)
                places = [(place, place.ready) for place in station.places]
                self._measures.look(target.model, vigil.held if vigil else 0, places)
        self._measures.gone({target.model for target in self._stations})

    async def probe_for_ever(self) -> None:
        """Ask every replica whether it is ready, again and again; a mute one holds up no other."""
        asking: set[Place] = set()

        async def ask(place: Place) -> None:
            try:
                await probe(place)
            finally:
                asking.discard(place)
                self._look()

        async with asyncio.TaskGroup() as group:
            while True:
                now = asyncio.get_running_loop().time()
                for place in self._places.values():
                    due = now >= place.probe_at or not place.ready
                    if due and place.probed and place not in asking:
                        asking.add(place)
                        place.probe_at = now + PROBE_READY_EVERY_S
                        group.create_task(ask(place))
                self._sweep()
                self._look()
                await self._pause()

    def close(self) -> None:
        """Close every place."""
        for place in [*self._places.values(), *self._retired]:
            place.backend.close()

    def _places_of(self, target: Target, known: dict[str | Target, Place]) -> Iterator[Place]:
        """Its places, those that were known taken over."""
        local = target.kind != "remote"
        keys: Sequence[str | Target] = target.sockets if local else _by_key(target)
        for key in keys:
            if key not in self._places:
                self._places[key] = known.pop(key) if key in known else self._place(target, key)
            yield self._places[key]

    def _station(self, target: Target, places: Sequence[Place]) -> Station:
        if target.kind != "remote":
            return Station(target, places, self._measures)
        room = max(1, self._share.of(target.max_concurrency))
        return Station(target, places, self._measures, self._upstream(target), room)

    def _upstream(self, target: Target) -> Upstream | None:
        """What is known of somebody else's server; it outlives other settings of its model."""
        if target.kind != "remote":
            return None
        name = _address(target)
        upstream = self._upstreams.get(name)
        if upstream is None:
            upstream = self._upstreams[name] = Upstream(target.model)
            now = asyncio.get_running_loop().time()
            upstream.resume(self._held.pop(name, {}), now)
        return upstream

    def _place(self, target: Target, key: str | Target) -> Place:
        if isinstance(key, Target):
            target = key
        socket = key if isinstance(key, str) else ""
        ready = not socket or self._outlook.is_ready(socket)
        upstream = self._upstream(target)
        named = f"{target.key_env}{target.key_file} {target.key_mark}"
        return Place(
            key=upstream.key(named) if upstream else None,
            slots=target.slots,
            backend=self._connect(target, socket),
            probed=bool(socket),
            ready=ready,
            loaded=ready,
        )

    def _serves(self, target: Target) -> bool:
        station = self._stations.get(target)
        return station is not None and station.upstream is None and station.ready()

    def _trust(self, replaced: set[str]) -> None:
        """What takes the place of replicas that serve was ready by then, whoever else knows it."""
        for target, station in self._stations.items():
            if target.model in replaced and not station.ready():
                for place in station.places:
                    place.ready = place.ready or not place.loaded
                    place.loaded = True

    def _missing(self, target: Target) -> TiffinError:
        name, reason = target.model, without_folders(self._broken.get(target, target.reason))
        if target.state == "unloaded":
            return NoHealthyReplica(
                f"the model '{name}' is unloaded ({reason})", retry_after=FAILED_RETRY_S
            )
        if target.state == "failed" or target in self._broken:
            return NoHealthyReplica(
                f"the model '{name}' can't run: {reason}", retry_after=FAILED_RETRY_S
            )
        if target.state == "ready-to-run":
            return NoHealthyReplica(f"the model '{name}' was taken away", retry_after=1.0)
        shown = f" ({reason})" if reason else ""
        return Loading(f"the model '{name}' is being fetched{shown}", retry_after=5.0)

    def _sweep(self) -> None:
        """Close what nobody uses any more."""
        for place in [place for place in self._retired if not place.outstanding]:
            self._retired.remove(place)
            place.backend.close()

    def _look(self) -> None:
        """Let go whoever waits for what has come, or can't come any more."""
        now = asyncio.get_running_loop().time()
        for model, vigil in list(self._vigils.items()):
            target = self._of_model.get(model)
            station = self._stations.get(target) if target is not None else None
            failure = ""
            if target is None or station is None:
                failure = target.reason or target.state if target else "it was taken away"
                failure = without_folders(failure)
            elif not station.ready():
                foresight = self._outlook.foresee(target)
                if foresight.failed_ns < vigil.since_ns or not foresight.failure:
                    if vigil.wanted(now):
                        continue
                else:
                    failure = foresight.failure
            elif vigil.held:
                self._measures.started(model, now - vigil.began)
            del self._vigils[model]
            vigil.end(failure)
            self._tell()

    async def _pause(self) -> None:
        if self._vigils:
            await asyncio.sleep(PROBE_AWAITED_EVERY_S)
            return
        self._hurry.clear()
        try:
            async with asyncio.timeout(PROBE_EVERY_S):
                await self._hurry.wait()
        except TimeoutError:
            return


def _by_key(target: Target) -> list[Target]:
    """An upstream with each of its keys."""
    return [
        msgspec.structs.replace(
            target, keys=(), key_env=key.env, key_file=key.file, key_mark=key.mark
        )
        for key in target.keys
    ] or [target]


def _address(target: Target) -> str:
    return f"{target.model} {target.url}"


async def probe(place: Place) -> None:
    """One readiness question; anything but a 200 in time means not ready."""
    loop = asyncio.get_running_loop()
    deadline = loop.time() + PROBE_TIMEOUT_S
    call = Call(path=READY_PATH, body=b"", headers=b"", deadline=deadline, method=b"GET")
    try:
        async with place.backend.start(call) as reply:
            await reply.read_all(65_536)
            place.ready = reply.status == 200
    except TiffinError:
        place.ready = False
    if place.ready:
        place.loaded = True
        place.health.answered(loop.time())
