"""Several gateways that count in one store admit together what one that counts alone admits."""

import asyncio
import itertools
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest
import throttled.utils
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from throttled import Throttled, rate_limiter, store

from tests.polling import eventually
from tests.unit.gateway.limits.desk import SHOP, Desk, Request, Running
from tests.valkey import Valkey, valkey
from tiffin.adapters.stores.shared_limits import LEASE_S, SharedLimits
from tiffin.adapters.stores.spent import SpentFile
from tiffin.adapters.stores.valkey import dialer
from tiffin.config.store_address import StoreAddress
from tiffin.dialects.dialect import Extent
from tiffin.errors import (
    ConcurrencyExceeded,
    LimitStoreUnavailable,
    QuotaExceeded,
    RateLimited,
    TiffinError,
)
from tiffin.gateway.admit import moments
from tiffin.gateway.limits.together import SharedCounts
from tiffin.gateway.share import Share
from tiffin.testing.clock import FakeClock
from tiffin.types.limits import Rule
from tiffin.types.money import PICO
from tiffin.types.price import Price
from tiffin.types.usage import Usage

PRICE = Price(currency="INR", output_token=PICO // 7)
TOKENS = Rule(of="output_tokens", amount=70, per="minute", burst=90)
REQUESTS = Rule(of="requests", amount=20, per="minute", burst=5)
SLOTS = Rule(of="concurrency", amount=3)
MONEY = Rule(of="money", amount=40, per="day")
EVERYTHING = (TOKENS, REQUESTS, SLOTS, MONEY)
WITHIN_S = 2.0

_PREFIXES = itertools.count()


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Valkey]:
    with valkey(tmp_path_factory.mktemp("valkey")) as found:
        yield found


@dataclass
class Gateway:
    """One that counts with others: its desk and its end of the store."""

    desk: Desk
    counts: SharedCounts
    store: SharedLimits
    keeping: "asyncio.Task[None]"

    async def told(self) -> None:
        """Everything that ended was told."""
        await eventually(lambda: self.store.up and not self.store.unsettled)

    async def die(self) -> None:
        """End as `kill -9` does it."""
        self.keeping.cancel()
        await asyncio.gather(self.keeping, return_exceptions=True)


@asynccontextmanager
async def gateways(
    server: Valkey,
    number: int,
    *rules: Rule,
    clock: FakeClock | None = None,
    timeout_s: float = WITHIN_S,
    spent: Path | None = None,
) -> AsyncIterator[list[Gateway]]:
    """So many gateways of one store, in which nobody has counted yet."""
    clock = clock or FakeClock()
    prefix = f"t{next(_PREFIXES)}"
    found: list[Gateway] = []
    async with AsyncExitStack() as stack:
        for ordinal in range(number):
            dial = dialer(StoreAddress(url=server.url, timeout_s=timeout_s))
            end = SharedLimits(dial, clock, f"ep{ordinal}", boot="b", prefix=prefix)
            keeping = asyncio.create_task(end.keep())
            counts = SharedCounts(end, Share(ordinal, number))
            record = SpentFile(spent, f"ep{ordinal}", clock.now_ns()) if spent else None
            desk = Desk(*rules, price=PRICE, counts=counts, clock=clock, spent=record)
            found.append(Gateway(desk, counts, end, keeping))
            stack.push_async_callback(found[-1].die)
        for gateway in found:
            await eventually(lambda gateway=gateway: gateway.store.up)  # type: ignore[misc]
        yield found


def asks(tokens: int) -> Request:
    """For an answer of so many tokens at most, and nothing else."""
    return Request(Extent(text=False, answer_tokens=tokens))


def used(tokens: int) -> Usage:
    return Usage(completion_tokens=tokens)


@dataclass
class Step:
    """An arrival at one of the gateways after a while (ms): how many tokens it asks for, how many
    eighths of them it uses, and which of those that run ends before it comes."""

    gap_ms: int
    gateway: int
    tokens: int
    uses: int
    ends: int | None


STEPS = st.lists(
    st.builds(
        Step,
        gap_ms=st.sampled_from([0, 1, 333, 7_001, 60_000]),
        gateway=st.integers(0, 3),
        tokens=st.integers(1, 60),
        uses=st.integers(0, 12),
        ends=st.none() | st.integers(0, 5),
    ),
    max_size=25,
)


@settings(
    max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(number=st.integers(1, 4), steps=STEPS)
def test_they_admit_exactly_what_one_would_that_counts_alone(
    server: Valkey, number: int, steps: list[Step]
) -> None:
    async def play() -> None:
        clock = FakeClock()
        alone = Desk(*EVERYTHING, price=PRICE, clock=clock)
        async with gateways(server, number, *EVERYTHING, clock=clock) as several:
            running: list[tuple[Running, Running, int, Gateway]] = []
            for step in steps:
                clock.advance(step.gap_ms / 1000)
                await asyncio.gather(*(gateway.store.beat() for gateway in several))
                if step.ends is not None and running:
                    await end(running.pop(step.ends % len(running)))
                gateway = several[step.gateway % number]
                ours = await verdict(gateway.desk, asks(step.tokens))
                theirs = await verdict(alone, asks(step.tokens))
                assert _told(ours) == _told(theirs)
                await gateway.told()
                if isinstance(ours, Running) and isinstance(theirs, Running):
                    assert ours.headers == theirs.headers
                    running.append((ours, theirs, step.tokens * step.uses // 8, gateway))
            while running:
                await end(running.pop())

    async def end(one: tuple[Running, Running, int, Gateway]) -> None:
        ours, theirs, tokens, gateway = one
        ours.end(used(tokens))
        theirs.end(used(tokens))
        await gateway.told()

    asyncio.run(play())


async def verdict(desk: Desk, request: Request) -> Running | TiffinError:
    try:
        return await desk.arrive(request)
    except TiffinError as refusal:
        return refusal


def _told(found: Running | TiffinError) -> object:
    """A verdict, as it can be compared."""
    if isinstance(found, Running):
        return "in"
    return type(found), found.message, found.retry_after


# What the other one keeps in floating point is exact in parts of a second that are powers of two.
@settings(
    max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(
    per_second=st.sampled_from([1, 2, 4, 8]),
    burst=st.integers(1, 20),
    arrivals=st.lists(st.tuples(st.integers(0, 256), st.integers(0, 3)), max_size=40),
)
def test_they_admit_and_refuse_as_throttled_does(
    server: Valkey,
    monkeypatch: pytest.MonkeyPatch,
    per_second: int,
    burst: int,
    arrivals: list[tuple[int, int]],
) -> None:
    async def play() -> None:
        clock = FakeClock()
        monkeypatch.setattr(throttled.utils, "now_mono_f", clock.monotonic)
        quota = rate_limiter.per_sec(per_second, burst=burst)
        other = Throttled(key="k", using="gcra", quota=quota, store=store.MemoryStore())
        rule = Rule(of="requests", amount=per_second, per="second", burst=burst)
        async with gateways(server, 4, rule, clock=clock) as four:
            for gap, at in arrivals:
                clock.advance(gap / 64)
                theirs = other.limit()
                ours = await verdict(four[at].desk, asks(1))
                assert isinstance(ours, RateLimited) is theirs.limited
                if isinstance(ours, RateLimited):
                    assert ours.retry_after == theirs.state.retry_after

    asyncio.run(play())


async def test_of_eight_at_once_at_four_gateways_a_budget_for_two_lets_two_in(
    server: Valkey,
) -> None:
    money = Rule(of="money", amount=2, per="month")
    async with gateways(server, 4, money) as four:
        came = await asyncio.gather(
            *(gateway.desk.arrive(asks(7)) for gateway in four * 2), return_exceptions=True
        )
        inside = [one for one in came if isinstance(one, Running)]
        assert len(inside) == 2
        assert sum(isinstance(one, QuotaExceeded) for one in came) == 6
        inside[0].end(used(0))  # it used nothing: there is room for another one
        for gateway in four:
            await gateway.told()
        await four[3].desk.arrive(asks(7))


async def test_what_is_refused_for_concurrency_takes_neither_requests_nor_tokens(
    server: Valkey,
) -> None:
    async with gateways(server, 2, *EVERYTHING) as (one, other):
        running = [await one.desk.arrive(asks(1)) for _ in range(3)]
        for _ in range(9):
            with pytest.raises(ConcurrencyExceeded):
                await other.desk.arrive(asks(1))
        running.pop().end(used(1))
        await one.told()
        await other.desk.arrive(asks(1))
        assert other.desk.left("requests a minute") == 1
        assert other.desk.left("output tokens") == 90 - 4


async def test_slots_of_a_gateway_that_was_killed_come_back_after_its_lease(
    server: Valkey,
) -> None:
    clock = FakeClock()
    async with gateways(server, 2, SLOTS, clock=clock) as (one, other):
        for _ in range(3):
            await one.desk.arrive(asks(1))
        await one.die()
        with pytest.raises(ConcurrencyExceeded):
            await other.desk.arrive(asks(1))
        clock.advance(LEASE_S + 1)
        for _ in range(3):
            await other.desk.arrive(asks(1))
        with pytest.raises(ConcurrencyExceeded):
            await other.desk.arrive(asks(1))


async def test_who_leaves_while_the_store_is_asked_holds_nothing(server: Valkey) -> None:
    async with gateways(server, 2, TOKENS, SLOTS) as (one, other):
        for _ in range(20):
            task = asyncio.create_task(one.desk.admission.admit(SHOP, one.desk.snapshot))
            await asyncio.sleep(0)
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
            await one.told()
        assert one.desk.admission.in_flight == 0
        for _ in range(3):
            await other.desk.arrive(asks(1))


async def test_a_frozen_store_costs_one_timeout_then_none_and_heals_by_itself(
    tmp_path: Path,
) -> None:
    rules = (
        Rule(of="output_tokens", amount=100, per="minute"),
        Rule(of="concurrency", amount=5),
    )
    loop = asyncio.get_running_loop()
    with valkey(tmp_path) as server:
        async with gateways(server, 2, *rules, timeout_s=0.3) as (one, other):
            before = await one.desk.arrive(asks(40))
            server.freeze()
            began = loop.time()
            during = await one.desk.arrive(asks(50))  # half of the limit is its own
            assert loop.time() - began >= 0.3
            assert not one.store.up
            began = loop.time()
            with pytest.raises(RateLimited):
                await one.desk.arrive(asks(1))
            assert loop.time() - began < 0.25
            before.end(used(10))
            during.end(used(50))
            server.thaw()
            await one.told()
            await other.told()
            assert (await other.desk.arrive(asks(1))).headers[b"x-ratelimit-remaining-tokens"] == (
                b"89"
            )


async def test_money_is_refused_without_the_store_unless_it_is_said_to_be_local(
    tmp_path: Path,
) -> None:
    local = Rule(of="money", amount=8, per="month", without_store="local")
    with valkey(tmp_path) as server:
        async with (
            gateways(server, 2, MONEY, timeout_s=0.3) as (strict, _),
            gateways(server, 2, local, timeout_s=0.3) as (one, other),
        ):
            (await one.desk.arrive(asks(14))).end(used(14))
            await one.told()
            server.freeze()
            with pytest.raises(LimitStoreUnavailable):
                await strict.desk.arrive(asks(1))
            for _ in range(3):  # it has half of the six that are left
                (await one.desk.arrive(asks(7))).end(used(7))
            with pytest.raises(QuotaExceeded):
                await one.desk.arrive(asks(7))
            server.thaw()
            await eventually(lambda: one.store.up and other.store.up)
            await one.counts.repay(moments(one.desk.clock))
            await one.told()
            inside = [await other.desk.arrive(asks(7)) for _ in range(3)]
            with pytest.raises(QuotaExceeded):
                await other.desk.arrive(asks(7))
            assert len(inside) == 3


async def test_who_comes_at_once_when_the_store_is_back_counts_after_what_was_spent_without_it(
    tmp_path: Path,
) -> None:
    local = Rule(of="money", amount=8, per="month", without_store="local")
    with valkey(tmp_path) as server:
        async with gateways(server, 1, local, timeout_s=0.3) as (one,):
            server.freeze()
            for _ in range(5):
                (await one.desk.arrive(asks(7))).end(used(7))
            server.thaw()
            await eventually(lambda: one.store.up)
            came = (one.desk.arrive(asks(7)) for _ in range(8))
            found = await asyncio.gather(*came, return_exceptions=True)
            assert sum(isinstance(each, Running) for each in found) == 3


async def test_a_store_that_forgot_everything_is_told_what_was_spent_and_what_runs(
    tmp_path: Path,
) -> None:
    (tmp_path / "spent").mkdir()
    rules = (Rule(of="money", amount=10, per="month"), SLOTS)
    with valkey(tmp_path) as server:
        async with gateways(server, 1, *rules, spent=tmp_path / "spent", timeout_s=0.5) as (one,):
            running = [await one.desk.arrive(asks(14)) for _ in range(3)]
            server.stop()
            await eventually(lambda: not one.store.up)
            with valkey(tmp_path):
                await eventually(lambda: one.store.up)
                with pytest.raises(ConcurrencyExceeded):
                    await one.desk.arrive(asks(1))
                for gone in running:
                    gone.end(used(14))
                await one.told()
                for _ in range(2):
                    (await one.desk.arrive(asks(14))).end(used(14))
                with pytest.raises(QuotaExceeded):
                    await one.desk.arrive(asks(1))
