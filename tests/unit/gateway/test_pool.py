"""Stations keep their bounds and their order; the pool follows the snapshot and the replicas."""

import asyncio
from types import TracebackType

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tiffin.errors import (
    ConfigInvalid,
    DeadlineExceeded,
    Loading,
    NoHealthyReplica,
    Overloaded,
    TiffinError,
    UpstreamUnavailable,
)
from tiffin.gateway.placement.measures import Measures
from tiffin.gateway.placement.place import Place
from tiffin.gateway.pool import NoOutlook, Pool, probe
from tiffin.gateway.share import Share
from tiffin.gateway.station import Station
from tiffin.ports.backend import Call, Reply
from tiffin.telemetry.metrics import Meter
from tiffin.types.snapshot import Plan, Snapshot, Target


class FakeReply:
    """A whole reply with a status."""

    content_type = b"application/json"
    streaming = False
    retry_after: float | None = None
    inference_header = b""
    usage = b""

    def __init__(self, status: int) -> None:
        self.status = status

    async def read(self) -> bytes:
        return b""

    async def read_all(self, limit: int) -> bytes:
        return b"{}"

    def rest(self, seconds: float) -> None:
        """Everything is here already."""


class FakeBackend:
    """Answers with one status, or fails; counts what runs."""

    def __init__(self, status: int = 200, error: TiffinError | None = None) -> None:
        self.status = status
        self.error = error
        self.running = 0
        self.most = 0
        self.closed = False

    def start(self, call: Call) -> "FakeBackend":
        return self

    async def __aenter__(self) -> Reply:
        if self.error is not None:
            raise self.error
        self.running += 1
        self.most = max(self.most, self.running)
        return FakeReply(self.status)

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.running -= 1

    def close(self) -> None:
        self.closed = True


class Told(NoOutlook):
    """Gives these reasons, one a question."""

    def __init__(self, *reasons: str) -> None:
        self.reasons = list(reasons)

    def explain(self, target: Target) -> str:
        return self.reasons.pop(0)


def target(**changes: object) -> Target:
    base = {"model": "m", "revision": "r", "kind": "remote", "max_concurrency": 2, "queue": 2}
    return Target(**{**base, **changes})  # type: ignore[arg-type]


def snapshot(*targets: Target) -> Snapshot:
    plans = {t.model: Plan(name=t.model, identity="i", targets=(t,)) for t in targets}
    return Snapshot(
        number=1, config_hash="", published_ns=0, keys={}, tenant_limits={}, plans=plans
    )


def place(backend: FakeBackend, **changes: object) -> Place:
    return Place(**{"backend": backend, "ready": True, **changes})  # type: ignore[arg-type]


def station_of(wanted: Target, *backends: FakeBackend) -> Station:
    return Station(wanted, [place(backend) for backend in backends], Measures(Meter("t", "e")))


def call(seconds: float = 5.0) -> Call:
    return Call(b"/x", b"", b"", asyncio.get_running_loop().time() + seconds)


async def test_places_are_bounded_then_the_queue_then_refused() -> None:
    backend = FakeBackend()
    station = station_of(target(), backend)
    go = asyncio.Event()

    async def run() -> None:
        async with station.visit(call()):
            await go.wait()

    tasks = [asyncio.create_task(run()) for _ in range(4)]
    for _ in range(5):
        await asyncio.sleep(0)
    with pytest.raises(Overloaded, match="2 calls running and 2 waiting"):
        async with station.visit(call()):
            pass
    go.set()
    await asyncio.gather(*tasks)
    assert backend.most == 2
    assert station.running == 0


async def test_a_deadline_ends_the_wait_in_the_queue() -> None:
    station = station_of(target(max_concurrency=1), FakeBackend())
    async with station.visit(call()):
        with pytest.raises(DeadlineExceeded):
            async with station.visit(call(0.01)):
                pass
    assert station.running == 0


@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 4), st.booleans(), st.booleans()), max_size=30))
def test_every_place_comes_back_whatever_happens(plan: list[tuple[int, bool, bool]]) -> None:
    async def play() -> None:
        backend = FakeBackend()
        station = station_of(target(), backend)

        async def run(steps: int, breaks: bool) -> None:
            async with station.visit(call()):
                for _ in range(steps):
                    await asyncio.sleep(0)
                if breaks:
                    raise ValueError

        tasks = []
        for steps, breaks, cancel in plan:
            tasks.append(asyncio.create_task(run(steps, breaks)))
            await asyncio.sleep(0)
            if cancel:
                tasks[len(tasks) // 2].cancel()
            assert station.running <= 2
        await asyncio.gather(*tasks, return_exceptions=True)
        assert station.running == 0
        assert backend.running == 0
        assert backend.most <= 2

    asyncio.run(play())


async def test_a_failed_start_gives_its_place_back() -> None:
    station = station_of(target(), FakeBackend(error=UpstreamUnavailable("down")))
    for _ in range(5):
        with pytest.raises(UpstreamUnavailable):
            async with station.visit(call()):
                pass
    assert station.running == 0


async def test_a_replica_is_called_only_after_it_said_that_it_is_ready() -> None:
    backend = FakeBackend(status=503)
    pool = Pool(lambda *_: backend)
    local = target(kind="llamacpp", sockets=("/s",))
    pool.adopt(snapshot(local))
    with pytest.raises(Loading):
        pool.station(local)
    station = next(iter(pool._stations.values()))
    only = station.places[0]
    await probe(only)
    with pytest.raises(Loading):
        pool.station(local)
    backend.status = 200
    await probe(only)
    assert pool.station(local) is station
    backend.error = UpstreamUnavailable("gone")
    await probe(only)
    with pytest.raises(NoHealthyReplica):
        pool.station(local)


async def test_a_model_that_is_fetched_or_failed_says_so() -> None:
    pool = Pool(lambda *_: FakeBackend())
    fetching = target(kind="llamacpp", state="fetching", reason="34 %")
    failed = target(model="f", kind="llamacpp", state="failed", reason="digest mismatch")
    pool.adopt(snapshot(fetching, failed))
    with pytest.raises(Loading, match="34 %"):
        pool.station(fetching)
    with pytest.raises(NoHealthyReplica, match="digest mismatch"):
        pool.station(failed)


async def test_a_replica_that_cant_start_says_why() -> None:
    told = Told("", "the file is cut off")
    pool = Pool(lambda *_: FakeBackend(), told)
    local = target(kind="llamacpp", sockets=("/s",))
    pool.adopt(snapshot(local))
    with pytest.raises(Loading):
        pool.station(local)
    with pytest.raises(NoHealthyReplica, match="cut off") as refusal:
        pool.station(local)
    assert refusal.value.retry_after == 30.0


async def test_a_target_whose_key_cant_be_read_fails_alone() -> None:
    def connect(wanted: Target, _: str) -> FakeBackend:
        if wanted.model == "keyless":
            raise ConfigInvalid("the variable K isn't set", where="key_env")
        return FakeBackend()

    pool = Pool(connect)
    keyless, fine = target(model="keyless"), target()
    pool.adopt(snapshot(keyless, fine))
    assert pool.station(fine).target is fine
    with pytest.raises(NoHealthyReplica, match="K isn't set"):
        pool.station(keyless)


async def test_stations_of_vanished_targets_are_closed() -> None:
    backends: list[FakeBackend] = []

    def connect(*_: object) -> FakeBackend:
        backends.append(FakeBackend())
        return backends[-1]

    pool = Pool(connect)
    pool.adopt(snapshot(target()))
    pool.adopt(snapshot(target(model="other")))
    assert [b.closed for b in backends] == [True, False]


@pytest.mark.parametrize(("most", "shares"), [(5, [3, 2]), (1, [1, 1])])
async def test_gateways_divide_what_an_upstream_takes_at_once(most: int, shares: list[int]) -> None:
    wanted = target(max_concurrency=most)
    for ordinal, share in enumerate(shares):
        pool = Pool(lambda *_: FakeBackend(), share=Share(ordinal, len(shares)))
        pool.adopt(snapshot(wanted))
        station = pool.station(wanted)
        assert [station.took() for _ in range(share + 1)] == [*[True] * share, False]
