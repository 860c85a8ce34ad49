"""Several places of one target, and models that sleep: through the whole walk, with fake places."""

import asyncio
from collections import Counter
from hashlib import sha256
from types import TracebackType
from typing import Any, Self

import msgspec
import pytest

from tests.polling import eventually
from tiffin.app.clock import SystemClock
from tiffin.dialects.openai.errors import hop_error_response
from tiffin.errors import Draining, RunFailed, TiffinError, UpstreamUnavailable
from tiffin.gateway.account import Accounts
from tiffin.gateway.admit import Admission
from tiffin.gateway.authenticate import Authentication
from tiffin.gateway.cache.replay import ReplayCache
from tiffin.gateway.guard.policy import Guards
from tiffin.gateway.keyring import Keyring
from tiffin.gateway.operations import all_operations
from tiffin.gateway.pool import READY_PATH, NoOutlook, Pool
from tiffin.gateway.vigil import Foresight
from tiffin.gateway.walk import Stages, Walk
from tiffin.ports.backend import Call, Reply
from tiffin.ports.clock import Clock
from tiffin.ports.exchange import Headers
from tiffin.telemetry.events import Closed, Opened
from tiffin.telemetry.metrics import Meter
from tiffin.testing.exchange import FakeExchange
from tiffin.types.snapshot import Plan, Principal, Snapshot, Target

KEY = b"sk-test-key-000000000000"
WHOLE = (
    b'{"choices":[{"message":{"content":"hi"}}],"usage":{"prompt_tokens":7,"completion_tokens":2}}'
)
[CHAT] = [all_operations().find(b"/v1/chat/completions")]


class Replica:
    """One fake replica: ready or not, answering or failing; it counts what it was asked."""

    def __init__(self) -> None:
        self.ready = True
        self.fails: TiffinError | None = None
        self.asked = 0
        self.calls: list[Call] = []
        self.running = 0
        self.closed = False
        self.go = asyncio.Event()
        self.go.set()

    def start(self, call: Call) -> "Exchange":
        return Exchange(self, call)

    def refuses(self) -> TiffinError | None:
        """What it answers with instead, as of now."""
        return self.fails

    def close(self) -> None:
        self.closed = True


class Exchange:
    """One call there."""

    content_type = b"application/json"
    inference_header = b""
    usage = b""
    streaming = False
    retry_after: float | None = None

    def __init__(self, replica: Replica, call: Call) -> None:
        self.replica = replica
        self.call = call
        self.probing = call.path == READY_PATH
        self.status = 200
        self.body = WHOLE

    async def __aenter__(self) -> Reply:
        replica = self.replica
        if self.probing:
            self.status = 200 if replica.ready else 503
            return self
        replica.asked += 1
        replica.calls.append(self.call)
        replica.running += 1
        try:
            await replica.go.wait()
            if isinstance(replica.fails, UpstreamUnavailable):
                raise replica.fails
        except BaseException:
            replica.running -= 1
            raise
        if (fails := replica.refuses()) is not None:
            self.status, _, self.body = hop_error_response(fails)
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if not self.probing:
            self.replica.running -= 1

    async def read(self) -> bytes:
        return self.body

    async def read_all(self, limit: int) -> bytes:
        return self.body

    def rest(self, seconds: float) -> None:
        """Everything is here already."""


class Seen(NoOutlook):
    """What the supervisor says, as a test sets it."""

    def __init__(self) -> None:
        self.foresight = Foresight()

    def foresee(self, target: Target) -> Foresight:
        return self.foresight


class Ledger:
    """Keeps what closed."""

    def __init__(self) -> None:
        self.closed: list[Closed] = []

    def open(self, event: Opened) -> None:
        """Not looked at."""

    def close(self, event: Closed) -> None:
        self.closed.append(event)


class House:
    """A walk over fake replicas by their sockets, which are probed all the time."""

    kind: type[Replica] = Replica

    def __init__(self, *sockets: str, clock: Clock | None = None, **settings: Any) -> None:
        self.replicas = {socket: self.kind() for socket in sockets}
        clock = clock or SystemClock()
        self.ledger, self.seen, self.told = Ledger(), Seen(), 0
        self.meter = Meter("t", "e")
        self.pool = Pool(lambda _, at: self.replicas[at], self.seen, self.meter, self._tell)
        accounts = Accounts(self.ledger, self.meter, clock)
        guards = Guards()
        self.walk = Walk(
            Stages(
                snapshot=lambda: self.snapshot,
                authenticate=Authentication(SystemClock(), Keyring()),
                admission=Admission(clock, 1000),
                accounts=accounts,
                guards=guards,
                cache=ReplayCache(accounts),
                pool=self.pool,
                max_body_bytes=100_000,
            )
        )
        self.number = 0
        self.publish(*sockets, **settings)
        guards.adopt(self.snapshot)

    def publish(self, *sockets: str, **settings: Any) -> None:
        self.number += 1
        for socket in sockets:
            self.replicas.setdefault(socket, self.kind())
        target = Target(
            model="m", revision=f"r{self.number}", kind="echo", sockets=sockets, **settings
        )
        self.target = target
        self.snapshot = Snapshot(
            number=self.number,
            config_hash="",
            published_ns=0,
            keys={sha256(KEY).hexdigest(): Principal(tenant="acme", key="main")},
            tenant_limits={},
            plans={"m": Plan(name="m", identity="i", targets=(target,), attempts=2)},
        )
        self.pool.adopt(self.snapshot)

    def _tell(self) -> None:
        self.told += 1

    async def ask(
        self, text: str = "hello", timeout_ms: int = 0, more: Headers | None = None
    ) -> FakeExchange:
        body = {"model": "m", "messages": [{"role": "user", "content": text}]}
        headers = [(b"authorization", b"Bearer " + KEY), *(more or ())]
        if timeout_ms:
            headers.append((b"x-request-timeout-ms", b"%d" % timeout_ms))
        exchange = FakeExchange(
            b"POST", b"/v1/chat/completions", headers=headers, body=msgspec.json.encode(body)
        )
        assert CHAT is not None
        await self.walk(exchange, CHAT)
        return exchange

    async def __aenter__(self) -> Self:
        self._probing = asyncio.create_task(self.pool.probe_for_ever())
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._probing.cancel()
        await asyncio.gather(self._probing, return_exceptions=True)
        self.pool.close()

    async def ready(self) -> None:
        await eventually(lambda: all(p.ready for p in self.pool._stations[self.target].places))

    def observed(self, name: str) -> float:
        families = {one.name: one for one in self.meter.snapshot().families}
        return sum(sum(series.numbers[1:]) for series in families[name].series)


async def test_requests_go_where_least_are_outstanding() -> None:
    async with House("/a", "/b") as house:
        await house.ready()
        for replica in house.replicas.values():
            replica.go.clear()
        asking = [asyncio.create_task(house.ask(f"{n}")) for n in range(10)]
        await eventually(lambda: sum(r.running for r in house.replicas.values()) == 10)
        assert [replica.running for replica in house.replicas.values()] == [5, 5]
        for replica in house.replicas.values():
            replica.go.set()
        await asyncio.gather(*asking)
        assert {p.outstanding for p in house.pool._stations[house.target].places} == {0}


@pytest.mark.parametrize(
    "failure", [UpstreamUnavailable("gone"), Draining("bye"), RunFailed("broke")], ids=repr
)
async def test_where_one_place_fails_another_answers(failure: TiffinError) -> None:
    async with House("/a", "/b") as house:
        await house.ready()
        house.replicas["/a"].fails = failure
        got = [await house.ask() for _ in range(20)]
        assert {one.status for one in got} == {200}
        tries = Counter(len(closed.attempts) for closed in house.ledger.closed)
        assert tries[2] <= 10
        assert all(closed.attempts[0].placed for closed in house.ledger.closed)


async def test_what_breaks_every_place_closes_neither_the_model_nor_a_single_place() -> None:
    for sockets in (("/a",), ("/a", "/b")):
        async with House(*sockets) as house:
            await house.ready()
            for replica in house.replicas.values():
                replica.fails = RunFailed("poison")
            for _ in range(30):
                assert (await house.ask()).status == 500
            for replica in house.replicas.values():
                replica.fails = None
            assert (await house.ask()).status == 200


async def test_a_text_goes_on_where_it_is_warm() -> None:
    async with House("/a", "/b", slots=4) as house:
        await house.ready()
        texts = [letter * 4000 for letter in "abcdefgh"]
        for text in texts:
            await house.ask(text)
        for _ in range(3):
            for text in texts:
                await house.ask(text)
        reasons = Counter(closed.attempts[0].placed for closed in house.ledger.closed)
        assert reasons == {"spread": 8, "prefix": 24}
        assert [replica.asked for replica in house.replicas.values()] == [16, 16]


async def test_places_outlive_the_targets_that_name_them() -> None:
    async with House("/a", "/b") as house:
        await house.ready()
        kept, gone = house.replicas["/a"], house.replicas["/b"]
        gone.go.clear()
        kept.go.clear()
        asking = [asyncio.create_task(house.ask()) for _ in range(2)]
        await eventually(lambda: gone.running == 1 and kept.running == 1)
        before = house.pool._places["/a"]
        house.publish("/a", "/c")
        assert house.pool._places["/a"] is before
        assert before.outstanding == 1
        assert not gone.closed
        gone.go.set()
        kept.go.set()
        assert {one.status for one in await asyncio.gather(*asking)} == {200}
        await eventually(lambda: gone.closed)


async def test_who_pinned_a_target_that_is_gone_is_served_by_its_successor() -> None:
    async with House("/a") as house:
        await house.ready()
        pinned, house_target = house.snapshot, house.target
        house.publish("/b")
        await house.ready()
        house.snapshot = pinned
        assert (await house.ask()).status == 200
        assert house.replicas["/b"].asked == 1
        assert house.ledger.closed[-1].revision != house_target.revision


SLEEPS: dict[str, Any] = {"on_demand": True, "cold_start_s": 5.0}


async def asleep(**settings: Any) -> House:
    house = House("/a", **{**SLEEPS, **settings})
    house.replicas["/a"].ready = False
    house.replicas["/a"].fails = UpstreamUnavailable("nobody is there")
    return house


def wake(house: House) -> None:
    house.replicas["/a"].ready = True
    house.replicas["/a"].fails = None


async def test_all_who_wait_for_a_model_go_together_and_leave_one_demand() -> None:
    async with await asleep() as house:
        asking = [asyncio.create_task(house.ask()) for _ in range(20)]
        await eventually(lambda: house.pool.demands().get("m"))
        assert house.pool.demands()["m"].waiting == 20
        assert house.told >= 1
        wake(house)
        assert {one.status for one in await asyncio.gather(*asking)} == {200}
        assert house.replicas["/a"].asked == 20
        demand = house.pool.demands()["m"]
        assert (demand.waiting, demand.since_ns) == (0, 0)
        assert demand.used_ns > 0
        assert house.observed("tiffin_cold_start_seconds") == 1
        assert {len(closed.attempts) for closed in house.ledger.closed} == {1}


async def test_more_than_may_wait_are_refused_and_who_leaves_makes_room() -> None:
    async with await asleep(held=2) as house:
        asking = [asyncio.create_task(house.ask()) for _ in range(2)]
        await eventually(lambda: house.pool.demands().get("m"))
        refused = await house.ask()
        assert refused.status == 503
        assert b"overloaded" in refused.sent
        assert b"retry-after" in refused.answer_headers
        for task in asking:
            task.cancel()
        await asyncio.gather(*asking, return_exceptions=True)
        await eventually(lambda: not house.pool.demands())
        assert house.replicas["/a"].asked == 0


async def test_where_the_load_fails_all_are_told_why_at_once() -> None:
    async with await asleep() as house:
        asking = [asyncio.create_task(house.ask()) for _ in range(5)]
        await eventually(lambda: house.pool.demands().get("m"))
        house.seen.foresight = Foresight(failure="the file is cut off", failed_ns=2**62)
        got = await asyncio.gather(*asking)
        assert {one.status for one in got} == {503}
        assert all(b"the file is cut off" in one.sent for one in got)


async def test_a_client_without_the_time_is_refused_at_once_and_still_wakes_the_model() -> None:
    async with await asleep() as house:
        house.seen.foresight = Foresight(load_s=20.0)
        refused = await house.ask(timeout_ms=500)
        assert refused.status == 503
        assert int(refused.answer_headers[b"retry-after"]) in range(19, 22)
        assert house.pool.demands()["m"].waiting == 1
        house.seen.foresight = Foresight()
        assert (await house.ask(timeout_ms=50)).status == 504


async def test_a_model_that_is_being_unloaded_holds_who_comes_just_then() -> None:
    async with House("/a", **SLEEPS) as house:
        await house.ready()
        house.replicas["/a"].ready = False
        house.replicas["/a"].fails = Draining("bye")
        asking = asyncio.create_task(house.ask())
        await eventually(lambda: house.pool.demands().get("m"))
        await eventually(lambda: house.pool.demands()["m"].waiting)
        wake(house)
        assert (await asking).status == 200


async def test_what_is_coming_is_probed_before_it_is_needed() -> None:
    async with House("/a") as house:
        await house.ready()
        house.replicas["/b"] = Replica()
        coming = msgspec.structs.replace(house.target, revision="r9", sockets=("/b",))
        house.snapshot = msgspec.structs.replace(house.snapshot, coming={"m": coming})
        house.pool.adopt(house.snapshot)
        await eventually(lambda: house.pool._places["/b"].ready)
        house.publish("/b")
        assert (await house.ask()).status == 200
