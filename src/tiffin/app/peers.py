"""The models that a pipeline calls, found in the published snapshot for as long as it runs.

They are called as the gateway calls them: by the places that are ready, and one that is loaded on
demand is woken by whoever needs it.
"""

from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import Final

import msgspec

from tiffin.adapters.upstreams.endpoint import Endpoint
from tiffin.adapters.upstreams.http1 import Http1Backend
from tiffin.app.demand import SUFFIX
from tiffin.app.outlook import StatusOutlook
from tiffin.app.polled_file import PolledFile
from tiffin.errors import Draining, Loading, UpstreamUnavailable
from tiffin.gateway.due import Due
from tiffin.gateway.placement.place import ClosableBackend
from tiffin.gateway.pool import Pool
from tiffin.gateway.station import Visit
from tiffin.ports.backend import Call, Reply
from tiffin.telemetry.metrics import Meter
from tiffin.types.demand import Demands
from tiffin.types.snapshot import Deployment, Plan, Snapshot, Target
from tiffin.types.whole_file import replace_file

MAX_CALLS: Final = 4096
"""Calls at a replica at once: a pipeline's own bounds come before."""


class _Plan(msgspec.Struct):
    targets: tuple[Target, ...] = ()


class _Deployment(msgspec.Struct):
    name: str
    model: str
    revision: str
    socket: str


class Published(msgspec.Struct):
    """The part of a snapshot that says where models answer."""

    plans: dict[str, _Plan] = {}
    deployments: tuple[_Deployment, ...] = ()
    leaving: dict[str, int] = {}

    def target_of(self, model: str, revision: str) -> Target:
        """Where this revision answers: where requests for the model go, if it is that one.

        Else what else runs it: it may have become the old one, or not yet be the new one.
        """
        plan = self.plans.get(model)
        known = [one for one in plan.targets if one.model == model] if plan else []
        same = next((one for one in known if one.revision == revision), None)
        if same is not None and same.sockets:
            return msgspec.structs.replace(same, max_concurrency=MAX_CALLS)
        others = [d for d in self.deployments if (d.model, d.revision) == (model, revision)]
        staying = [one for one in others if one.name not in self.leaving]
        if sockets := tuple(one.socket for one in staying or others):
            return Target(
                model=model,
                revision=revision,
                kind="replica",
                sockets=sockets,
                max_concurrency=MAX_CALLS,
            )
        gone = "the revision that this pipeline was made of isn't served any more"
        return same or Target(
            model=model, revision=revision, kind="replica", state="unloaded", reason=gone
        )


def connect(socket: str) -> ClosableBackend:
    """The backend of a replica at its socket."""
    return Http1Backend(Endpoint(authority=b"replica", path=socket))


class Peers:
    """A backend for each model of a pipeline; `follow` reads the snapshot where it changed.

    `watch_for_ever` looks which of their replicas are ready. What is asked of models that are
    loaded on demand stands in a file beside the pipeline's socket.
    """

    def __init__(
        self,
        pipeline: Deployment,
        snapshot: Path,
        meter: Meter,
        connect: Callable[[str], ClosableBackend] = connect,
    ) -> None:
        self._revisions: Mapping[str, str] = pipeline.peers
        self._published = PolledFile(snapshot, Published)
        own = Path(pipeline.socket)
        self._demand = own.with_name(own.stem + SUFFIX)
        self._told: Demands = {}
        outlook = StatusOutlook(own.with_name("status.json"))
        self._pool = Pool(lambda _, at: connect(at), outlook, meter, self.tell)
        nowhere = Published()
        self._targets = {model: nowhere.target_of(model, r) for model, r in pipeline.peers.items()}
        self.backends = {model: PeerBackend(self, model) for model in pipeline.peers}
        self.follow()

    def follow(self) -> None:
        """Send what comes from now on to where the models answer now."""
        if not self._revisions or (fresh := self._published.changed()) is None:
            return
        self._targets = {model: fresh.target_of(model, r) for model, r in self._revisions.items()}
        self._pool.adopt(
            Snapshot(
                number=0,
                config_hash="",
                published_ns=0,
                keys={},
                tenant_limits={},
                plans={
                    model: Plan(name=model, identity="", targets=(target,))
                    for model, target in self._targets.items()
                },
            )
        )

    async def visit(self, model: str, call: Call) -> Visit:
        """A visit to a model, which is woken first where it sleeps: within the call's deadline.

        Raises the reason why it can't be called.
        """
        station = self._pool.station(self._targets[model])
        if station.target.on_demand and not station.ready():
            await self._pool.awake(station.target, Due(call.deadline, named=True))
            station = self._pool.station(self._targets[model])
        return station.visit(call)

    def tell(self) -> None:
        """Write what is asked of models that are loaded on demand, where that changed."""
        demands = self._pool.demands()
        if demands == self._told:
            return
        try:
            replace_file(self._demand, msgspec.json.encode(demands), lasting=False)
        except OSError:
            return  # the disk is full: it is tried again soon
        self._told = demands

    async def watch_for_ever(self) -> None:
        """Ask their replicas whether they are ready, again and again."""
        if self._revisions:
            await self._pool.probe_for_ever()

    def close(self) -> None:
        """Close every connection."""
        self._pool.close()


class PeerBackend:
    """One model as a backend; satisfies `ports.backend.Backend`."""

    def __init__(self, peers: Peers, model: str) -> None:
        self._peers = peers
        self._model = model

    def start(self, call: Call) -> AbstractAsyncContextManager[Reply]:
        """Send the call to a replica of it; a refusal that is raised inside is heeded."""
        return self._visit(call)

    @asynccontextmanager
    async def _visit(self, call: Call) -> AsyncIterator[Reply]:
        try:
            async with await self._peers.visit(self._model, call) as reply:
                yield reply
        except (Draining, Loading, UpstreamUnavailable):
            self._peers.follow()  # something else may have taken its place
            raise
