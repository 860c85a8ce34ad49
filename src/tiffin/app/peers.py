"""The models that a pipeline calls, found in the published snapshot for as long as it runs."""

from collections.abc import Mapping
from pathlib import Path

import msgspec

from tiffin.adapters.upstreams.endpoint import Endpoint
from tiffin.adapters.upstreams.http1 import Http1Backend
from tiffin.app.polled_file import PolledFile
from tiffin.serving.pipeline.places import Places


class _Target(msgspec.Struct):
    model: str
    revision: str
    sockets: tuple[str, ...] = ()


class _Plan(msgspec.Struct):
    targets: tuple[_Target, ...] = ()


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

    def sockets_of(self, model: str, revision: str) -> tuple[str, ...]:
        """Where this revision answers: where requests for the model go, if it is that one.

        Else what else runs it: it may have become the old one, or not yet be the new one.
        """
        plan = self.plans.get(model)
        for target in plan.targets if plan else ():
            if target.model == model and target.revision == revision and target.sockets:
                return target.sockets
        others = [d for d in self.deployments if (d.model, d.revision) == (model, revision)]
        staying = [one for one in others if one.name not in self.leaving]
        return tuple(one.socket for one in staying or others)


class Peers:
    """A backend for each model of `revisions`; `follow` reads the snapshot where it changed."""

    def __init__(self, revisions: Mapping[str, str], snapshot: Path) -> None:
        self._revisions = revisions
        self._published = PolledFile(snapshot, Published)
        self.backends = {model: Places(model, connect) for model in revisions}
        self.follow()

    def follow(self) -> None:
        """Send what comes from now on to where the models answer now."""
        if not self._revisions or (fresh := self._published.changed()) is None:
            return
        for model, revision in self._revisions.items():
            self.backends[model].adopt(fresh.sockets_of(model, revision))

    def close(self) -> None:
        """Close every connection."""
        for places in self.backends.values():
            places.close()


def connect(socket: str) -> Http1Backend:
    """The backend of a replica at its socket."""
    return Http1Backend(Endpoint(authority=b"replica", path=socket))
