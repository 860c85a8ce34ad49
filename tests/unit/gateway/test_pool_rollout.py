"""The switch from one generation to the next is without a gap, whatever this gateway has seen."""

import msgspec

from tests.unit.gateway.test_pool import FakeBackend, snapshot
from tiffin.gateway.pool import NoOutlook, Pool
from tiffin.types.snapshot import Deployment, Snapshot, Target


def target(*sockets: str) -> Target:
    return Target(model="m", revision="r", kind="echo", sockets=sockets)


class OldIsReady(NoOutlook):
    def is_ready(self, socket: str) -> bool:
        return socket == "/old"


def leaving(of: Snapshot, name: str) -> Snapshot:
    spec = msgspec.Raw(b"{}")
    old = Deployment(name=name, model="m", revision="r", socket=f"/{name}", spec=spec)
    return msgspec.structs.replace(of, deployments=(old,), leaving={name: 1})


async def test_what_took_the_place_of_others_was_ready_by_then() -> None:
    pool = Pool(lambda wanted, socket: FakeBackend())
    pool.adopt(snapshot(target("/old")))
    fresh = target("/new-0", "/new-1")
    pool.adopt(leaving(snapshot(fresh), "old"))
    station = pool.station(fresh)
    assert [place.ready for place in station.places] == [True, True]
    for place in station.places:
        place.ready = False  # it went down since
    pool.adopt(leaving(snapshot(fresh), "old"))
    assert not station.ready()


async def test_what_replaces_a_ready_one_is_trusted_by_who_never_saw_it_leave() -> None:
    pool = Pool(lambda wanted, socket: FakeBackend(), OldIsReady())
    pool.adopt(snapshot(target("/old")))
    pool.adopt(snapshot(target("/new")))
    assert pool.station(target("/new")).ready()


async def test_what_replaces_a_server_of_somebody_else_says_itself_when_it_is_ready() -> None:
    pool = Pool(lambda wanted, socket: FakeBackend())
    pool.adopt(snapshot(Target(model="m", revision="", kind="remote", url="http://there")))
    fresh = msgspec.structs.replace(target("/new"), on_demand=True)
    pool.adopt(snapshot(fresh))
    assert not pool.station(fresh).ready()


async def test_the_first_generation_says_itself_when_it_is_ready() -> None:
    pool = Pool(lambda wanted, socket: FakeBackend())
    first = msgspec.structs.replace(target("/one"), on_demand=True)
    pool.adopt(snapshot(first))
    assert not pool.station(first).ready()
